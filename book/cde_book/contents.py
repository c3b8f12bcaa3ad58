"""What collections hold on this machine, by their fingerprints: records are held against it."""

from __future__ import annotations

import contextlib
from typing import Any, get_args

from cde.data import load_pairs, load_retrieval
from cde.data.sets import Split
from cde.data.sources import source_key
from cde.provenance import account
from cde.storage import cache_folder, content_hash, read_json, write_json
from cde_studies.collections import manuals


def known_fingerprints(name: str) -> set[str]:
    """Fingerprints that a collection has on this machine, of pairs and of judgements, in every
    split: a record that names another one was made from other content. Kept on disk; nothing is
    entered in the process' account.
    """
    key = source_key(name)
    if key == "missing" or name.startswith("hub:"):
        return set()
    if name.partition("/")[0] in ("manuals", "manuals-sentences"):
        return {manuals.fingerprint()}
    splits: tuple[Split, ...] = ()
    if name.startswith(("pydocs", "folder:")):  # sources of $CDE_DATA are trained on whole
        splits = get_args(Split)
    kept = cache_folder("fingerprints") / f"{content_hash([name, *splits])}.json"
    stored = read_json(kept, since="format")
    if stored is not None and stored["key"] == key:
        return set(stored["fingerprints"])
    before, fingerprints = (dict(account.loaded), set(account.asked)), set[str]()
    ways: list[tuple[Any, tuple[str | None, ...]]] = [
        (load_pairs, (None, *splits)),
        (load_retrieval, ("test", "train", "dev")),
    ]
    try:
        for load, split in ((load, split) for load, every in ways for split in every):
            with contextlib.suppress(ValueError, FileNotFoundError):
                fingerprints.add(load(name, split).fingerprint)
    finally:
        account.loaded, account.asked = before
    write_json(kept, {"format": 2, "key": key, "fingerprints": sorted(fingerprints)})
    return fingerprints
