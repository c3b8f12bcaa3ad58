"""`manuals`: the reference manuals of web services as many small collections, each a corpus.

`botocore` carries the descriptions of AWS' interfaces as JSON, `google-api-python-client` those of
Google's (both Apache-2.0). The name of an operation, a type or a field, its words apart, is the
query ("create queue request queue name"); its description is the document; a service is a corpus
(`aws/sqs`, `google/drive`). A second kind of query is a description's first sentence, whose
document is the rest.

Versions of a service are one corpus, the newest first. Descriptions of ten words or more are kept
as plain text, without repeats of an earlier one in the same corpus (MinHash, Jaccard 0.8). Corpora
are grouped into families, and these split into train, validation and test.
"""

from __future__ import annotations

import gzip
import html
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.data.sets import Pairs
from cde.progress import progress
from cde.storage import cache_folder, content_hash
from cde.validation import shown
from cde_studies.collections.duplicates import first_occurrences
from cde_studies.collections.installed import (
    carried_table,
    digest_of_table,
    distribution_key,
    kept_table,
    package_folder,
    read_in_processes,
)

#: what a query is: the name of what is described, or the description's first sentence
Kind = Literal["names", "sentences"]
#: which corpora
Part = Literal["train", "validation", "test", "all"]

#: import name → distribution that carries it
PACKAGES = {"botocore": "botocore", "googleapiclient": "google-api-python-client"}
#: a corpus of validation or test has so many pairs at least
LEAST_PAIRS = 200
#: corpora of that size in validation, and in test
HELD_OUT_CORPORA = 60

_FORMAT = "2"  # raise it when what is extracted changes
_LEAST_WORDS = 10  # of a description
_TAG, _LINK = re.compile(r"<[^>]*>"), re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ESCAPED_TAG = re.compile(r"</?(?:p|code|note|ul|ol|li|i|b|a|important)\b[^>]*>")  # some are, twice
_BEFORE_A_STOP = re.compile(r" (?=[.,;:)])")  # where a tag stood
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SENTENCE = re.compile(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<=[.!?])\s+(?=[A-Z])")


class Entry(NamedTuple):
    """A description: its corpus, the dotted name of what is described, and the text."""

    corpus: str
    id: str
    document: str


def words_of(name: str) -> str:
    """The words of a name in camel case, in lower case."""
    return " ".join(_HUMP.sub(" ", re.sub(r"[\W_]+", " ", name)).lower().split())


def split_sentence(description: str) -> tuple[str, str] | None:
    """A description's first sentence and the rest; None if either is too short."""
    first, *rest = _SENTENCE.split(description, maxsplit=1)
    if not rest or len(first.split()) < 3 or len(rest[0].split()) < _LEAST_WORDS:
        return None
    return first, rest[0]


def _plain(description: str) -> str:
    text = _LINK.sub(r"\1", html.unescape(_TAG.sub(" ", description)))
    return _BEFORE_A_STOP.sub("", " ".join(_ESCAPED_TAG.sub(" ", text).split()))


def _of_aws(path: Path) -> Iterator[tuple[str, str]]:
    manual = json.loads(gzip.decompress(path.read_bytes()))
    for name, operation in manual["operations"].items():
        yield name, operation.get("documentation")
    for name, shape in manual["shapes"].items():
        yield name, shape.get("documentation")
        for member, described in (shape.get("members") or {}).items():
            yield f"{name}.{member}", described.get("documentation")


def _of_google(path: Path) -> Iterator[tuple[str, str]]:
    manual = json.loads(path.read_bytes())
    yield from _methods(manual, "")
    for name, schema in (manual.get("schemas") or {}).items():
        yield from _properties(schema, name)


def _methods(resource: dict[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for name, method in (resource.get("methods") or {}).items():
        yield above + name, method.get("description")
        for parameter, described in (method.get("parameters") or {}).items():
            yield f"{above}{name}.{parameter}", described.get("description")
    for name, inner in (resource.get("resources") or {}).items():
        yield from _methods(inner, f"{above}{name}.")


def _properties(schema: dict[str, Any], name: str) -> Iterator[tuple[str, str]]:
    yield name, schema.get("description", "")
    for member, described in (schema.get("properties") or {}).items():
        yield from _properties(described, f"{name}.{member}")
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):  # what a list or a table holds is described where it is used
            yield from _properties({**inner, "description": ""}, name)


def _read(corpus: str, path: Path) -> list[Entry]:
    found = (_of_aws if corpus.startswith("aws/") else _of_google)(path)
    entries = (Entry(corpus, name, _plain(text)) for name, text in found if text)
    return [entry for entry in entries if entry.document.count(" ") >= _LEAST_WORDS - 1]


def _manuals() -> list[tuple[str, Path]]:
    """Corpus and file of every manual; of a corpus, the newest version first."""
    services = package_folder("botocore") / "data"
    manuals = [
        (f"aws/{path.parts[-3]}", path)
        for path in sorted(services.glob("*/*/service-2.json.gz"), reverse=True)
    ]
    documents = package_folder("googleapiclient") / "discovery_cache" / "documents"
    for path in sorted(documents.glob("*.json"), key=_age):
        name, dot, _ = path.stem.partition(".")
        if dot:  # the index of all services has no version
            manuals.append((f"google/{name}", path))
    return sorted(manuals, key=lambda manual: manual[0])  # stable: versions keep their order


def _age(path: Path) -> tuple[bool, list[int]]:
    """Finished versions before alpha and beta, higher numbers before lower."""
    version = path.stem.partition(".")[2]
    numbers = [-int(number) for number in re.findall(r"\d+", version)]
    return "alpha" in version or "beta" in version, numbers


def _repeats(corpus: pd.DataFrame) -> list[str]:
    """Why each row of a corpus is left out: "text", "near" or "name"; "" if it is kept."""
    folded = corpus["document"].str.casefold()
    exact = folded.duplicated().to_numpy()
    near = first_occurrences(corpus["document"].tolist(), 0.8) != np.arange(len(corpus))
    kept = corpus["query"].where(~near)
    named = (kept.duplicated() & kept.notna()).to_numpy()
    return np.select([exact, near, named], ["text", "near", "name"], "").tolist()  # type: ignore[no-any-return]


def families(texts: pd.DataFrame) -> pd.Series[int]:
    """The number of each corpus' family, by its name: kin have names that begin alike, or share a
    tenth of the smaller one's texts; kin of kin are kin.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    numbers, names = pd.factorize(texts["corpus"], sort=True)
    columns, _ = pd.factorize(texts["document"].str.casefold())
    holds = csr_matrix((np.ones(len(texts)), (numbers, columns)))
    holds.data[:] = 1
    shared = holds[:, np.asarray(holds.sum(axis=0)).ravel() <= 3]
    sizes = np.asarray(holds.sum(axis=1)).ravel()
    kin = (shared @ shared.T).toarray() >= 0.1 * np.minimum.outer(sizes, sizes)
    plain = [name.partition("/")[2].replace("-", "") for name in names]
    kin |= np.array([[a.startswith((b, b[:4])) or b.startswith(a) for a in plain] for b in plain])
    return pd.Series(connected_components(csr_matrix(kin))[1], index=names)


def _parts(of: pd.Series[int], sizes: pd.Series[int]) -> pd.Series[str]:
    """Train, validation or test for each corpus: families, in the order of a hash, fill
    test and then validation with corpora that are large enough.
    """
    members = {number: list(names) for number, names in of.groupby(of).groups.items()}
    order = sorted(members.values(), key=lambda names: content_hash(sorted(names)))
    parts = pd.Series("train", index=of.index)
    for part in ("test", "validation"):
        large = 0
        for names in order:
            here = int((sizes[names] >= LEAST_PAIRS).sum())
            free = (parts[names] == "train").all() and len(names) <= 6
            if free and 0 < here <= HELD_OUT_CORPORA - large:
                parts[names], large = part, large + here
    return parts


def is_installed() -> bool:
    return carried_table("manuals") is not None or all(
        importlib.util.find_spec(package) for package in PACKAGES
    )


def source_key() -> str:
    """A hash that changes when a file of the two packages does; reads no manual."""
    if table := carried_table("manuals"):
        return content_hash([_FORMAT, digest_of_table(table)])
    return content_hash([_FORMAT, *(distribution_key(*item) for item in PACKAGES.items())])


def _table(path: Path) -> pd.DataFrame:
    columns = (*Entry._fields, "query", "repeats", "family", "part")
    return kept_table(path, _extract, columns)


def table() -> pd.DataFrame:
    """Every description, those that are left out too: `corpus`, `id`, `query`, `document`,
    `repeats` (why it is left out: "text", "near" or "name"; else ""), `family` and `part`.
    """
    return _table(table_path()).copy()


def fingerprint() -> str:
    """Hash of all manuals: texts, what is left out, and the split (16 hexadecimal digits)."""
    return str(_table(table_path()).attrs["fingerprint"])


def table_path() -> Path:
    return carried_table("manuals") or cache_folder("manuals") / f"{source_key()}.parquet.sealed"


@lru_cache(maxsize=1)
def _by_corpus(path: Path) -> dict[str, pd.DataFrame]:
    frame = _table(path)
    kept = frame[frame["repeats"] == ""].groupby("corpus", sort=False)
    return {str(name): of_corpus for name, of_corpus in kept}


def _extract() -> pd.DataFrame:
    manuals = _manuals()
    title = f"manuals: reading {len(manuals):,} files"
    rows = read_in_processes(_read, manuals, title, batch=16)
    frame = pd.DataFrame(rows, columns=Entry._fields)
    frame["id"] = frame["corpus"] + "/" + frame["id"]
    frame["query"] = frame["id"].str.split("/", n=2).str[2].map(words_of)
    grouped = frame.groupby("corpus", sort=False)
    reasons = [_repeats(corpus) for _, corpus in progress(grouped, "manuals: duplicates")]
    frame["repeats"] = [reason for of_corpus in reasons for reason in of_corpus]
    kept = frame[frame["repeats"] == ""]
    kin = families(kept)
    frame["family"] = frame["corpus"].map(kin)
    frame["part"] = frame["corpus"].map(_parts(kin, kept.groupby("corpus").size()))
    texts = frame[["id", "document", "repeats", "part"]].to_numpy().ravel()
    frame.attrs["fingerprint"] = content_hash(texts)
    return frame


def corpora(part: Part = "all", least: int = LEAST_PAIRS) -> list[str]:
    """Names of the corpora of a part with so many pairs (names and descriptions) at least."""
    kept = _by_corpus(table_path())
    return sorted(name for name, rows in kept.items() if _in_part(rows, part).sum() >= least)


def _in_part(frame: pd.DataFrame, part: Part) -> NDArray[np.bool_]:
    if part not in ("train", "validation", "test", "all"):
        raise ValueError(
            f"split must be 'train', 'validation', 'test' or 'all'; it is {shown(part)}"
        )
    return np.ones(len(frame), bool) if part == "all" else (frame["part"] == part).to_numpy()


def load_pairs(
    names: Sequence[str] | None = None,
    part: Part = "all",
    kind: Kind = "names",
    name: str = "manuals",
) -> Pairs:
    """Pairs of some corpora (`aws/sqs`), by default of all; the domain of a pair is its corpus. Of
    "sentences", queries are first sentences, and documents what comes after them.
    """
    kept = _by_corpus(table_path())
    for strange in set(names or ()) - set(kept):
        near = get_close_matches(strange, kept, 3)
        raise ValueError(
            f"no manual is called {shown(strange)}; near it are {', '.join(near) or 'none'}. "
            "cde_studies.collections.manuals.corpora(least=1) lists them all"
        )
    chosen = [kept[corpus] for corpus in (kept if names is None else names)]
    frame = pd.concat([rows[_in_part(rows, part)] for rows in chosen])
    if frame.empty:
        raise ValueError(f"none of {shown(names)} is of the part {part!r}")
    rows: Iterable[Sequence[str]] = frame[["query", "document", "corpus", "id"]].to_numpy().tolist()
    if kind == "sentences":
        parted = ((split_sentence(row[1]), row) for row in rows)
        rows = [[*halves, *row[2:]] for halves, row in parted if halves]
        if not rows:
            raise ValueError(f"no description in {shown(names)} has a first sentence and a rest")
    queries, documents, domains, ids = [list(column) for column in zip(*rows, strict=True)]
    return Pairs(queries, documents, domains, ids, name=name)
