"""Names of collections, from `pydocs` to the Hub; what is loaded is entered in the process'
account.

Names: `pydocs`, `pydocs/<package>`, `manuals`, `manuals/<corpus>` (`manuals/aws/sqs`), the same
with `manuals-sentences`, `folder:<path>`, `hub:<repo>[:<config>]`, and, where `$CDE_DATA` is a
folder with `beir/` and `pairs/` in it, `beir/<name>` and `pairs/<source>`.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cde.data import manuals, pydocs, readers
from cde.data.sets import Pairs, RetrievalSet, Split
from cde.provenance import account
from cde.storage import content_hash
from cde.validation import checked_switch, checked_text, shown

__all__ = ["Source", "data_folder", "is_available", "list_sources", "load_pairs", "load_retrieval"]


@dataclass(frozen=True)
class Source:
    """A collection that can be loaded here: its name, what it offers, and where it is."""

    name: str
    kind: str  # "pairs", "retrieval" or "pairs, retrieval"
    location: str


def data_folder() -> Path | None:
    """The folder that `$CDE_DATA` names, None where it is not set."""
    value = os.environ.get("CDE_DATA")
    if not value:
        return None
    path = Path(value).expanduser()
    if not path.is_dir():
        raise FileNotFoundError(
            f"CDE_DATA is set to {value}, which is no folder; unset it, or point it at one with "
            "beir/ and pairs/"
        )
    return path


def list_sources() -> list[Source]:
    """Every collection that can be loaded on this machine without the network.

    Example:
        >>> [source.kind for source in list_sources() if source.name == "pydocs"]
        ['pairs, retrieval']
    """
    found = {"pydocs": "docstrings of the installed packages"}
    for package in pydocs.PACKAGES:
        role = "held out" if package in pydocs.HELD_OUT else "training"
        found[f"pydocs/{package}"] = f"docstrings of {package} ({role})"
    if manuals.is_installed():
        of = "of AWS' and Google's services, in botocore and google-api-python-client (Apache-2.0)"
        found["manuals"] = f"manuals {of}: name → description"
        found["manuals-sentences"] = f"manuals {of}: first sentence → rest"
    sources = [Source(name, "pairs, retrieval", where) for name, where in found.items()]
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
    return ValueError(
        f"no collection of {kind} is called {shown(name)}: {hint}Accepted are pydocs, "
        "pydocs/<package>, manuals, manuals/<corpus>, manuals-sentences[/<corpus>], "
        "folder:<path>, hub:<repo>[:<config>], and beir/<name> or pairs/<source> below $CDE_DATA; "
        "`cde sources` lists those on this machine"
    )


def _hub_name(name: str) -> tuple[str, str | None]:
    repository, _, configuration = name.removeprefix("hub:").partition(":")
    if not repository:
        raise ValueError(
            f"{shown(name)} names no repository; expected hub:<repo> or hub:<repo>:<config>"
        )
    return repository, configuration or None


def _path(name: str) -> Path | None:
    """The path of a `folder:…` name; the file or folder of a `beir/…`, `pairs/…` or `labelled/…`
    name, None if there is none.
    """
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


def _manual(name: str) -> tuple[list[str] | None, manuals.Kind] | None:
    """Corpora and kind of queries of a `manuals…` name, None for another; no corpora: all."""
    top, _, corpus = name.partition("/")
    if top not in ("manuals", "manuals-sentences"):
        return None
    return [corpus] if corpus else None, "names" if top == "manuals" else "sentences"


def _package(name: str) -> list[str]:
    """The package of a `pydocs/<package>` name, in a list; none for another name."""
    top, _, package = name.partition("/")
    return [package] if top == "pydocs" and package in pydocs.PACKAGES else []


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
    if (manual := _manual(name)) is not None:
        part = split or ("all" if manual[0] else "train")
        pairs = manuals.load_pairs(manual[0], part, manual[1], name=name)
    elif name.startswith("hub:"):
        pairs = readers.hub_pairs(*_hub_name(name), split=split or "train")
    elif split == "validation":
        raise ValueError(f"manuals alone have the split 'validation'; it was asked of {name}")
    elif name == "pydocs":
        pairs = pydocs.load_pairs(split=split or "train", deduplicate=deduplicate, name=name)
    elif packages := list(pydocs.PACKAGES) if name == "pydocs/*" else _package(name):
        pairs = pydocs.load_pairs(packages, split or "all", deduplicate, name)
    elif name.startswith(("folder:", "pairs/")) and (path := _path(name)) is not None:
        pairs = readers.folder_pairs(path, name=name).split(split or "all")
    else:
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
    if name == "pydocs":
        collection = pydocs.load_retrieval(name=name)
    elif package := _package(name):
        collection = pydocs.load_retrieval(package, name=name)
    elif (manual := _manual(name)) is not None:
        asked = manuals.load_pairs(manual[0], "all" if manual[0] else "test", manual[1], name=name)
        collection = RetrievalSet.from_pairs(asked)
    elif name.startswith("hub:"):
        collection = readers.hub_retrieval(*_hub_name(name), split=split, drop_unknown=drop_unknown)
    elif name.startswith(("folder:", "beir/")) and (path := _path(name)) is not None:
        collection = readers.folder_retrieval(path, split, drop_unknown, name=name)
    else:
        raise _unknown(name, "retrieval")
    _enter(name, collection)
    return collection


def _enter(name: str, loaded: Pairs | RetrievalSet) -> None:
    """Enter what was loaded in the account; of manuals, hundreds of which may be, all as one."""
    if _manual(name) is not None:
        name, fingerprint = "manuals", manuals.fingerprint()
    else:
        fingerprint = loaded.fingerprint
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
    """A hash that changes when the files behind a name do (their names, sizes and times of change);
    "missing" if there are none.
    """
    if name in ("pydocs", "pydocs/*") or _package(name):
        return pydocs.source_key()
    if _manual(name) is not None:
        return manuals.source_key() if manuals.is_installed() else "missing"
    if name.startswith("hub:"):
        return name
    path = _path(name)
    if path is None or not path.exists():
        return "missing"
    files = sorted([path] if path.is_file() else filter(Path.is_file, path.rglob("*")))
    stats = [(file.name, file.stat()) for file in files]
    # where a folder lies does not matter: a page stays fresh when its data are moved
    return content_hash(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)
