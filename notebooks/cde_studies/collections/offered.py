"""The names by which `cde.load_pairs` and `cde.load_retrieval` find `pydocs` and `manuals`: entry
points of the group `cde.collections`.
"""

from __future__ import annotations

from typing import Any

from cde.data.sets import Pairs, RetrievalSet
from cde.data.sources import Source
from cde_studies.collections import manuals, pydocs


class Pydocs:
    """`pydocs` (training pairs: of the packages that training may see), `pydocs/<package>`, and
    `pydocs/*`, the pairs of all packages.
    """

    def sources(self) -> list[Source]:
        found = {"pydocs": "docstrings of the installed packages"}
        for package in pydocs.PACKAGES:
            role = "held out" if package in pydocs.HELD_OUT else "training"
            found[f"pydocs/{package}"] = f"docstrings of {package} ({role})"
        return [Source(name, "pairs, retrieval", where) for name, where in found.items()]

    def load_pairs(self, name: str, split: Any, deduplicate: bool) -> Pairs | None:
        """Of all packages "train", of one everything, where no split is asked for."""
        if name == "pydocs":
            return pydocs.load_pairs(split=split or "train", deduplicate=deduplicate)
        packages = list(pydocs.PACKAGES) if name == "pydocs/*" else _package(name)
        return pydocs.load_pairs(packages, split or "all", deduplicate, name) if packages else None

    def load_retrieval(self, name: str) -> RetrievalSet | None:
        """Summaries that no training sees, and the docstrings of all packages or of one."""
        if name == "pydocs":
            return pydocs.load_retrieval()
        package = _package(name)
        return pydocs.load_retrieval(package, name) if package else None

    def source_key(self, name: str) -> str:
        known = name in ("pydocs", "pydocs/*") or _package(name)
        return pydocs.source_key() if known else "missing"

    def entry(self, name: str, loaded: Pairs | RetrievalSet) -> tuple[str, str]:
        return name, loaded.fingerprint


def _package(name: str) -> list[str]:
    """The package of `pydocs/<package>`, in a list; none for another name."""
    top, _, package = name.partition("/")
    return [package] if top == "pydocs" and package in pydocs.PACKAGES else []


class Manuals:
    """`manuals` (training pairs: of the training part; as one corpus: those of the test part),
    `manuals/<corpus>`, and the same with `manuals-sentences`, whose queries are first sentences.
    """

    def sources(self) -> list[Source]:
        """Both kinds of queries, where the two packages or their table are here."""
        of = "of AWS' and Google's services, in botocore and google-api-python-client (Apache-2.0)"
        return [
            Source(name, "pairs, retrieval", f"manuals {of}: {what}")
            for name, what in (
                ("manuals", "name → description"),
                ("manuals-sentences", "first sentence → rest"),
            )
            if manuals.is_installed()
        ]

    def load_pairs(self, name: str, split: Any, deduplicate: bool) -> Pairs | None:
        """Splits are whole corpora; a single one is whole. Duplicates are always left out."""
        top, _, corpus = name.partition("/")
        kind: manuals.Kind = "names" if top == "manuals" else "sentences"
        part: manuals.Part = split or ("all" if corpus else "train")
        return manuals.load_pairs([corpus] if corpus else None, part, kind, name=name)

    def load_retrieval(self, name: str) -> RetrievalSet | None:
        pairs = self.load_pairs(name, None if "/" in name else "test", deduplicate=True)
        return None if pairs is None else RetrievalSet.from_pairs(pairs)

    def source_key(self, name: str) -> str:
        return manuals.source_key() if manuals.is_installed() else "missing"

    def entry(self, name: str, loaded: Pairs | RetrievalSet) -> tuple[str, str]:
        """All manuals as one, since a process may load hundreds."""
        return "manuals", manuals.fingerprint()
