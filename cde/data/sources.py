"""Names of collections, from `pydocs` to the Hub; what is loaded is entered in the process'
account.

Names: `folder:<path>`, `hub:<repo>[:<config>]`; where `$CDE_DATA` is a folder with `beir/` and
`pairs/` in it, `beir/<name>` and `pairs/<source>`; and those that packages offer (`Offer`), as the
book does those of `pydocs` and `manuals`.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, Protocol

from cde.data import readers
from cde.data.sets import Pairs, RetrievalSet, Split
from cde.provenance import account
from cde.storage import content_hash
from cde.validation import checked_switch, checked_text, shown

__all__ = [
    "Offer",
    "Source",
    "data_folder",
    "is_available",
    "list_sources",
    "load_pairs",
    "load_retrieval",
]


@dataclass(frozen=True)
class Source:
    """A collection that can be loaded here: its name, what it offers, and where it is."""

    name: str
    kind: str  # "pairs", "retrieval" or "pairs, retrieval"
    location: str


class Offer(Protocol):
    """Collections that an installed package offers: a class that an entry point of the group
    `cde.collections` names. The entry point is called as the part of the names before a slash is.
    """

    def sources(self) -> list[Source]:
        """Those that can be loaded on this machine."""

    def load_pairs(self, name: str, split: Any, deduplicate: bool) -> Pairs | None:
        """The pairs of that name; None if there are none."""

    def load_retrieval(self, name: str) -> RetrievalSet | None:
        """The retrieval set of that name; None if there is none."""

    def source_key(self, name: str) -> str:
        """A hash that changes when the collection does, made without reading it; else "missing"."""

    def entry(self, name: str, loaded: Pairs | RetrievalSet) -> tuple[str, str]:
        """The name and the fingerprint under which what was loaded stands in the account."""


@cache
def _offers() -> dict[str, Offer]:
    """Each offer by the names of its entry points."""
    made: dict[type[Offer], Offer] = {}
    points = [(point.name, point.load()) for point in entry_points(group="cde.collections")]
    return {name: made.setdefault(offer, offer()) for name, offer in points}


def _offer(name: str) -> Offer | None:
    return _offers().get(name.partition("/")[0])


def data_folder() -> Path | None:
    """The folder that `$CDE_DATA` names, None where it is not set."""
    value = os.environ.get("CDE_DATA")
    if not value:
        return None
    path = Path(value).expanduser()
    if not path.is_dir():
        raise FileNotFoundError(
            f"CDE_DATA is set to {value}, which is no folder: unset it, or name one with beir/ and "
            "pairs/"
        )
    return path


def list_sources() -> list[Source]:
    """Every collection that can be loaded on this machine without the network.

    Example:
        >>> [source.kind for source in list_sources() if source.name == "pydocs"]
        ['pairs, retrieval']
    """
    sources = [source for offer in dict.fromkeys(_offers().values()) for source in offer.sources()]
    if (data := data_folder()) is not None:
        for path in sorted((data / "beir").glob("*/")):
            sources.append(Source(f"beir/{path.name}", "retrieval", str(path)))
        for path in sorted((data / "pairs").glob("*.jsonl*")):
            sources.append(Source(f"pairs/{path.name.split('.jsonl')[0]}", "pairs", str(path)))
    return sources


def _unknown(name: str, kind: str) -> ValueError:
    names = [source.name for source in list_sources() if kind in source.kind]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    if os.path.exists(name):
        hint = f"for the file or folder of that name say folder:{name}. "
    if name.startswith(("beir/", "pairs/")) and not os.environ.get("CDE_DATA"):
        hint += f"{name} is looked for below $CDE_DATA, which is not set. "
    offered = "".join(f"{top}[/<part>], " for top in _offers())
    return ValueError(
        f"no collection of {kind} is called {shown(name)}: {hint}Accepted are {offered}"
        "folder:<path>, hub:<repo>[:<config>], and beir/<name> or pairs/<source> below $CDE_DATA; "
        "`cde sources` lists those on this machine"
    )


def _path(name: str) -> Path | None:
    """The file or folder of a `folder:`, `beir/`, `pairs/` or `labelled/` name; None for none."""
    if name.startswith("folder:"):
        return Path(os.path.expanduser(name.removeprefix("folder:")))
    data = data_folder()
    top, _, rest = name.partition("/")
    if data is None or not rest or ".." in Path(rest).parts:
        return None
    if name == "pairs/*" and (data / "pairs").is_dir():
        return data / "pairs"
    if top == "beir" and os.path.isdir(data / name):
        return data / name
    if top in ("pairs", "labelled"):
        for suffix in (".jsonl.gz", ".jsonl"):
            if os.path.exists(data / f"{name}{suffix}"):
                return data / f"{name}{suffix}"
    return None


def load_pairs(
    name: str = "pydocs",
    split: Split | Literal["validation"] | None = None,
    deduplicate: bool = True,
) -> Pairs:
    """Load training pairs by name.

    Args:
        name: `pydocs` (the packages that training may see), `pydocs/<package>`, `pydocs/*` (all of
            them, those held out too), `manuals`, `manuals/<corpus>`, `manuals-sentences`,
            `folder:<path>`, `hub:<repo>[:<config>]`, or `pairs/<source>` below `$CDE_DATA`
            (`pairs/*`: all of those).
        split: "train", "test" (one document in ten, by a stable hash of its text) or "all";
            default "train" for `pydocs` and `manuals`, "all" for everything else. For `manuals`
            these are whole corpora, and there is a "validation". For the Hub, the split's name.
        deduplicate: drop exact and near duplicates (pydocs).

    Example:
        >>> load_pairs("pydocs/rich").queries[0].count(" ") >= 2
        True
    """
    name = checked_text(name, "name")
    checked_switch(deduplicate, "deduplicate")
    if split is not None:
        checked_text(split, "split")
    pairs: Pairs | None = None
    if (offer := _offer(name)) is not None:
        pairs = offer.load_pairs(name, split, deduplicate)
    elif name.startswith("hub:"):
        pairs = readers.hub_pairs(name, split or "train")
    elif name.startswith(("folder:", "pairs/")) and (path := _path(name)) is not None:
        pairs = readers.folder_pairs(path, name=name).split(split or "all")  # type: ignore[arg-type]
    if pairs is None:
        raise _unknown(name, "pairs")
    _enter(name, pairs)
    return pairs


def load_retrieval(
    name: str = "pydocs", split: str = "test", drop_unknown: bool = False
) -> RetrievalSet:
    """Load a retrieval set by name.

    Args:
        name: `pydocs`, `pydocs/<package>`, `manuals/<corpus>` (`manuals`: those of the test part
            as one corpus), `folder:<path>` (BEIR's layout), `hub:<repo>[:<config>]` (mteb's
            layout), or `beir/<name>` below `$CDE_DATA`.
        split: which judgements, for folders and the Hub. (pydocs asks only what no training sees.)
        drop_unknown: drop judgements that point nowhere instead of failing (folders and the Hub).

    Example:
        >>> load_retrieval("pydocs/mpmath").name
        'pydocs/mpmath'
    """
    name, split = checked_text(name, "name"), checked_text(split, "split")
    collection: RetrievalSet | None = None
    if (offer := _offer(name)) is not None:
        collection = offer.load_retrieval(name)
    elif name.startswith("hub:"):
        collection = readers.hub_retrieval(name, split, drop_unknown)
    elif name.startswith(("folder:", "beir/")) and (path := _path(name)) is not None:
        collection = readers.folder_retrieval(path, split, drop_unknown, name=name)
    if collection is None:
        raise _unknown(name, "retrieval")
    _enter(name, collection)
    return collection


def _enter(name: str, loaded: Pairs | RetrievalSet) -> None:
    offer = _offer(name)
    name, fingerprint = offer.entry(name, loaded) if offer else (name, loaded.fingerprint)
    account.asked.add(name)
    account.loaded[name] = fingerprint


def is_available(*names: str) -> bool:
    """Whether all these collections are here, without reading them; those on the Hub count as here.

    Example:
        >>> is_available("pydocs"), is_available("pydocs", "beir/no-such-collection")
        (True, False)
    """
    account.asked.update(names)
    return all(source_key(name) != "missing" for name in names)


def source_key(name: str) -> str:
    """A hash of names, sizes and times of change of the files of a name; "missing" for none."""
    if (offer := _offer(name)) is not None:
        return offer.source_key(name)
    if name.startswith("hub:"):
        return name
    path = _path(name)
    if path is None or not path.exists():
        return "missing"
    files = sorted([path] if path.is_file() else filter(Path.is_file, path.rglob("*")))
    stats = [(file.name, file.stat()) for file in files]
    # where a folder lies does not matter: a page stays fresh when its data are moved
    return content_hash(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)
