"""`pydocs`: docstrings read without executing anything, split the same way everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

import cde
from cde_studies.collections import installed, pydocs

BODY = "The body has to have at least twelve words, and this one has just enough of them."


# --- reading sources


ESCAPED = r"Try the \d first of all."


def doc(summary: str, depth: int = 0, kind: str = "") -> str:
    """A docstring, so many blocks deep."""
    return textwrap.indent(f'{kind}"""{summary}\n\n{BODY}\n"""\n', "    " * depth)


def package(folder: Path) -> None:
    """A package `fakepackage` of which every module raises when it is executed."""
    core = f"""
raise RuntimeError("executed")
class Thing:
{doc("Hold one single thing.", 1)}
    def method(self):
{doc("Do one single thing.", 2)}
        def inner():
{doc("Nobody reads this docstring.", 3)}
if True:
    def chosen():
{doc("Take the first way.", 2)}
else:
    async def chosen():
{doc("Take the other way.", 2)}
try:
    def tried():
{doc(ESCAPED, 2, "r")}
except ImportError:
    pass
"""
    files = {
        "__init__.py": f'{doc("Describe the whole package.")}raise RuntimeError("executed")\n',
        "core.py": core,
        "broken.py": f'{doc("Describe a broken module.")}print "Python 2"\n',
        "tests/test_core.py": doc("Test the core module."),
        "sub/__init__.py": "",
        "sub/deep.py": f"{doc('Describe the deep module.')}import not_installed\n",
    }
    for path, source in files.items():
        (folder / "fakepackage" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "fakepackage" / path).write_text(source)


def test_sources_are_read_without_being_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Definitions outside functions, by qualified name, in the order of the source."""
    package(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = pydocs.read_docstrings(pydocs.source_files("fakepackage"))
    assert [(row.id.removeprefix("fakepackage"), row.query) for row in rows] == [
        ("", "Describe the whole package."),
        (".core.Thing", "Hold one single thing."),
        (".core.Thing.method", "Do one single thing."),
        (".core.chosen", "Take the first way."),
        (".core.chosen", "Take the other way."),
        (".core.tried", r"Try the \d first of all."),
        (".sub.deep", "Describe the deep module."),
    ]
    assert {row.document for row in rows} == {BODY}
    assert {row.domain for row in rows} == {"fakepackage"}
    assert not any(name.startswith("fakepackage") for name in sys.modules)
    with pytest.raises(RuntimeError, match="executed"):
        __import__("fakepackage")


def test_what_is_read_does_not_depend_on_the_warnings_filter(tmp_path: Path) -> None:
    r"""Python warns of "\d" in a plain string, which may be an error."""
    path = tmp_path / "module.py"
    path.write_text(f'"""Say what \\d stands for.\n\n{BODY}\n"""\n')
    file = pydocs.SourceFile("package", path, "package.module")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = pydocs.read_docstrings([file])
    assert [row.query for row in rows] == [r"Say what \d stands for."]


WORDS_12 = "one two three four five six seven eight nine ten eleven twelve"
SPLITS: dict[str, tuple[str, tuple[str, str] | None]] = {
    "a summary and a body": (f"Add two numbers.\n\n{BODY}", ("Add two numbers.", BODY)),
    "no blank line between them": (f"  Add two numbers.\n{BODY}\n\n", ("Add two numbers.", BODY)),
    "spaces within the summary": (f"Add\ttwo   numbers\n\n{BODY}", ("Add two numbers", BODY)),
    "a summary of three lines": (
        f"Return the largest\nof the numbers given\nto the function.\n\n{BODY}",
        ("Return the largest of the numbers given to the function.", BODY),
    ),
    "a paragraph of four lines is not a summary: its first line is": (
        f"Return the largest\nof\nthe\nnumbers.\n\n{BODY}",
        ("Return the largest", f"of\nthe\nnumbers.\n\n{BODY}"),
    ),
    "a sentence that ends with its line": (
        f"Is this a question?\nIt is.\n\n{BODY}",
        ("Is this a question?", f"It is.\n\n{BODY}"),
    ),
    "three words and twelve are enough": (
        f"Three words here\n\n{WORDS_12}",
        ("Three words here", WORDS_12),
    ),
    "a summary of two words": (f"Two words\n\n{BODY}", None),
    "a body of eleven words": (f"Three words here\n\n{WORDS_12.removesuffix(' twelve')}", None),
    "a summary of 300 characters": (f"{'a b ' + 'c' * 296}\n\n{BODY}", ("a b " + "c" * 296, BODY)),
    "a summary of 301 characters": (f"{'a b ' + 'c' * 297}\n\n{BODY}", None),
    "no body": ("Only a summary of some words.", None),
    "blank": (" \n\n ", None),
}


@pytest.mark.parametrize("kind", SPLITS)
def test_a_docstring_is_split_into_summary_and_rest(kind: str) -> None:
    docstring, expected = SPLITS[kind]
    assert pydocs.split_docstring(docstring) == expected


# --- the collection


def test_train_and_test_are_disjoint_and_cover_everything() -> None:
    for name in ("rich", "numpy", "sympy"):
        train, test, everything = (
            pydocs.load_pairs([name], split=split) for split in ("train", "test", "all")
        )
        assert not set(train.ids) & set(test.ids)
        assert sorted([*train.ids, *test.ids]) == sorted(everything.ids)
        assert len(set(everything.ids)) == len(everything)


def test_a_pairs_split_depends_neither_on_the_package_set_nor_on_the_sample() -> None:
    together = pydocs.load_pairs(["rich", "numpy", "scipy"], split="test")
    for name in ("rich", "numpy", "scipy"):
        alone = pydocs.load_pairs([name], split="test")
        assert alone.ids == together.select(np.array(together.domains) == name).ids
    assert pydocs.load_pairs(["scipy", "rich", "numpy"], split="test") == together, (
        "nor on their order"
    )


def test_a_tenth_of_the_documents_is_held_back_for_the_test(pydocs_pairs: cde.Pairs) -> None:
    """Within 4 standard errors of a fair draw."""
    test = pydocs.load_pairs(split="test")
    n = len(pydocs_pairs) + len(test)
    assert abs(len(test) / n - 0.1) < 4 * np.sqrt(0.1 * 0.9 / n)


def test_equal_documents_stand_on_one_side_of_the_split() -> None:
    train, test = (pydocs.load_pairs(split=split, deduplicate=False) for split in ("train", "test"))
    assert not set(train.documents) & set(test.documents)


def test_held_out_packages_are_never_training_pairs(pydocs_pairs: cde.Pairs) -> None:
    held_out = {"sympy", "networkx", "polars", "sqlalchemy"}
    assert set(pydocs_pairs.domains) == set(pydocs.PACKAGES) - held_out


def test_no_training_pair_holds_a_document_that_a_query_asks_for(pydocs_pairs: cde.Pairs) -> None:
    asked = cde.load_retrieval("pydocs")
    text = dict(zip(asked.document_ids, asked.documents, strict=True))
    answers = {text[query] for query in asked.query_ids}
    assert len(answers) > 10_000
    assert not answers & set(pydocs_pairs.documents)
    assert not set(asked.query_ids) & set(pydocs_pairs.ids)


def test_the_retrieval_set_asks_all_of_a_held_out_package_and_the_test_split_of_another() -> None:
    """A query's one judged document is its own; documents trained on are in the corpus."""
    held, seen = cde.load_retrieval("pydocs/networkx"), cde.load_retrieval("pydocs/rich")
    assert held.query_ids == held.document_ids
    assert seen.query_ids == pydocs.load_pairs(["rich"], split="test").ids
    assert seen.document_ids == pydocs.load_pairs(["rich"], split="all").ids
    assert all(seen.qrels[query] == {query: 1} for query in seen.query_ids)


def test_no_pair_occurs_twice_and_those_that_were_dropped_do() -> None:
    def normal(pairs: cde.Pairs) -> list[str]:
        return [" ".join(f"{query} {document}".split()).casefold() for query, document in pairs]

    kept = pydocs.load_pairs(tuple(pydocs.PACKAGES), split="all")
    everything = pydocs.load_pairs(tuple(pydocs.PACKAGES), split="all", deduplicate=False)
    assert len(set(normal(kept))) == len(kept)
    assert set(normal(kept)) < set(normal(everything))
    assert len(set(normal(everything))) < len(everything)


def test_what_is_kept_holds_no_near_duplicates_above_nine_tenths() -> None:
    """By brute force: the true Jaccard similarity of every two documents of two packages."""

    def similar(deduplicate: bool) -> int:
        pairs = pydocs.load_pairs(["pandas", "narwhals"], split="all", deduplicate=deduplicate)
        texts = [f"{query} {document}" for query, document in pairs]
        held = CountVectorizer(
            ngram_range=(3, 3), token_pattern=r"\w+", binary=True, dtype=np.float32
        )
        matrix = held.fit_transform(texts)
        sizes = np.asarray(matrix.sum(axis=1)).ravel()
        common = (matrix @ matrix.T).tocoo()
        jaccard = common.data / (sizes[common.row] + sizes[common.col] - common.data)
        return int((jaccard[common.row < common.col] > 0.9).sum())

    assert similar(deduplicate=True) == 0
    assert similar(deduplicate=False) > 30


def test_the_table_is_parsed_once(monkeypatch: pytest.MonkeyPatch, pydocs_pairs: cde.Pairs) -> None:
    """With an emptied memory, the table is read from the cache and no source is opened."""

    def never(*_: Any) -> None:
        raise AssertionError("sources were read again")

    installed.kept_table.cache_clear()
    for name in ("read_docstrings", "source_files", "first_occurrences"):
        monkeypatch.setattr(pydocs, name, never)
    assert cde.load_pairs("pydocs").fingerprint == pydocs_pairs.fingerprint


def test_another_process_loads_the_same_content(pydocs_pairs: cde.Pairs) -> None:
    """Under another hash seed, which shuffles Python's sets."""
    script = (
        "import cde; "
        "print(cde.load_pairs().fingerprint, cde.load_retrieval('pydocs/rich').fingerprint)"
    )
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
    )
    expected = [pydocs_pairs.fingerprint, cde.load_retrieval("pydocs/rich").fingerprint]
    assert answer.stdout.decode().split() == expected


# --- the key of the cache


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed distribution `fakedist` with `fakepackage`; its RECORD can be rewritten."""
    folder = tmp_path / "fakedist-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: fakedist\nVersion: 1.0\n")
    (folder / "RECORD").write_text("fakepackage/a.py,sha256=AAA,1\nfakepackage/b.py,sha256=BBB,1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(pydocs.PACKAGES, "fakepackage", "fakedist")
    yield folder
    installed.distribution_key.cache_clear()


def key() -> str:
    installed.distribution_key.cache_clear()
    return pydocs.source_key(["fakepackage"])


def test_the_key_changes_with_a_files_hash_and_with_the_version(distribution: Path) -> None:
    old = key()
    record = (distribution / "RECORD").read_text()
    (distribution / "RECORD").write_text(record.replace("BBB", "CCC"))
    changed = key()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: fakedist\nVersion: 1.1\n")
    assert len({old, changed, key()}) == 3


def test_the_key_does_not_change_with_byte_code_or_the_order_of_the_record(
    distribution: Path,
) -> None:
    old = key()
    lines = (distribution / "RECORD").read_text().splitlines()
    (distribution / "RECORD").write_text(
        "\n".join([*reversed(lines), "fakepackage/__pycache__/a.cpython-311.pyc,,"])
    )
    assert key() == old
