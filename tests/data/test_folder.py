"""BEIR folders and JSON lines of pairs: what is read, and what is said about what cannot be."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cde.data import RetrievalSet
from cde.data.readers import folder_pairs as load_pairs
from cde.data.readers import folder_retrieval as load_retrieval

WriteBeir = Callable[..., Path]
WriteLines = Callable[[Path, Sequence[Any]], Path]


def compress(path: Path) -> None:
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


# --- retrieval sets


def test_a_beir_folder_is_read_with_titles_before_texts(
    tmp_path: Path, write_beir: WriteBeir
) -> None:
    corpus = [
        {"_id": "d1", "title": "Boats", "text": "are red"},
        {"_id": "d2", "text": "no title"},
        {"_id": "d3", "title": "", "text": "an empty one"},
        {"_id": "d4", "title": None, "text": "none"},
    ]
    folder = write_beir(tmp_path / "toy", corpus)
    expected = RetrievalSet(
        document_ids=["d1", "d2", "d3", "d4"],
        documents=["Boats are red", "no title", "an empty one", "none"],
        query_ids=["q1", "q2"],
        queries=["red?", "title?"],
        qrels={"q1": {"d1": 2}, "q2": {"d2": 1}},
        name="toy",
    )
    assert load_retrieval(folder) == expected
    compress(folder / "corpus.jsonl")
    compress(folder / "queries.jsonl")
    assert load_retrieval(folder) == expected


def test_only_queries_judged_in_the_split_are_asked(tmp_path: Path, write_beir: WriteBeir) -> None:
    folder = write_beir(tmp_path / "toy", qrels={"test": "q2\td1\t1\n", "dev": "q1\td1\t1\n"})
    assert load_retrieval(folder).query_ids == ["q2"]
    assert load_retrieval(folder, split="dev").query_ids == ["q1"]


def test_only_the_first_line_of_qrels_can_be_a_header(
    tmp_path: Path, write_beir: WriteBeir
) -> None:
    """A query may be called as a header is."""
    queries = [{"_id": "q1", "text": "red?"}, {"_id": "qid", "text": "who?"}]
    folder = write_beir(
        tmp_path / "toy", queries=queries, qrels={"test": "q1\td1\t1\nqid\td2\t1\n"}
    )
    assert load_retrieval(folder).qrels == {"q1": {"d1": 1}, "qid": {"d2": 1}}


def test_quotation_marks_in_ids_are_part_of_them(tmp_path: Path, write_beir: WriteBeir) -> None:
    corpus = [{"_id": '"d1"', "text": "one"}, {"_id": '"', "text": "two"}]
    folder = write_beir(tmp_path / "toy", corpus=corpus, qrels={"test": 'q1\t"d1"\t1\nq2\t"\t1\n'})
    assert load_retrieval(folder).qrels == {"q1": {'"d1"': 1}, "q2": {'"': 1}}


@pytest.mark.parametrize("place", ["exclude.tsv", "qrels/exclude.tsv"])
def test_exclusions_are_read_from_either_place(
    tmp_path: Path, write_beir: WriteBeir, place: str
) -> None:
    folder = write_beir(tmp_path / "toy")
    (folder / place).write_text("query-id\tcorpus-id\nq1\td2\nq1\td1\nq2\td1\n")
    assert load_retrieval(folder).excluded == {
        "q1": frozenset({"d1", "d2"}),
        "q2": frozenset({"d1"}),
    }


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_texts_survive_whatever_characters_they_hold(
    tmp_path_factory: pytest.TempPathFactory, write_beir: WriteBeir, text: str
) -> None:
    """Line separators within a text, quotes and tabs do not end a line or a field."""
    folder = write_beir(
        tmp_path_factory.mktemp("beir") / "toy",
        queries=[{"_id": "q1", "text": text}],
        qrels={"test": "q1\td1\t1\n"},
    )
    assert load_retrieval(folder).queries == [text]


def test_what_is_missing_is_told_with_what_there_is(tmp_path: Path, write_beir: WriteBeir) -> None:
    folder = write_beir(tmp_path / "toy", qrels={"train": "q1\td1\t1\n", "dev": "q1\td1\t1\n"})
    (folder / "qrels" / "exclude.tsv").write_text("q1\td2\n")  # a list of exclusions is no split
    with pytest.raises(FileNotFoundError, match=r"has no qrels/test\.tsv; it has dev, train$"):
        load_retrieval(folder)
    (folder / "corpus.jsonl").rename(folder / "documents.jsonl")
    with pytest.raises(
        FileNotFoundError, match=r"has no corpus\.jsonl or corpus\.jsonl\.gz"
    ) as caught:
        load_retrieval(folder, split="dev")
    assert "It has documents.jsonl, qrels, queries.jsonl" in str(caught.value)


@pytest.mark.parametrize("file", ["corpus", "queries"])
def test_an_id_that_occurs_twice_in_a_file_is_refused(
    tmp_path: Path, write_beir: WriteBeir, write_json_lines: WriteLines, file: str
) -> None:
    """As `RetrievalSet` refuses it: no text is dropped in silence."""
    folder = write_beir(tmp_path / "toy")
    name = {"corpus": "d1", "queries": "q1"}[file]
    rows = [json.loads(line) for line in (folder / f"{file}.jsonl").read_text().splitlines()]
    write_json_lines(folder / f"{file}.jsonl", [*rows, {"_id": name, "text": "another text"}])
    with pytest.raises(ValueError, match=f"'{name}' occurs more than once"):
        load_retrieval(folder)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("q2 d2 1", "expected 3 columns separated by tabs, got 'q2 d2 1'"),
        ("q2\td2\thigh", ".* whole number; it is 'high'"),
        ("q2\td2\t0.5", ".* whole number; it is '0.5'"),
        ("q2\td2\t", ".* whole number; it is ''"),
        ("q2\td2\t1_0", "a relevance grade must be a whole number; it is '1_0'"),
        ("q2\td2\t٣", "a relevance grade must be a whole number"),
        (f"q2\td2\t{10**20}", "a relevance grade must be 1000000 or less"),
        (f"q2\td2\t{'9' * 5000}", "a relevance grade must be a whole number"),
        ("q1\td1\t0", "'q1' → 'd1' is judged 0 here and 1 before"),
        ("q2\0\td2\t1", "an id must not hold NUL"),
    ],
)
def test_a_line_that_is_no_judgement_is_named_by_file_and_line(
    tmp_path: Path, write_beir: WriteBeir, line: str, said: str
) -> None:
    folder = write_beir(tmp_path / "toy", qrels={"test": f"q1\td1\t1\n{line}\n"})
    with pytest.raises(ValueError, match=rf"qrels/test\.tsv, line 3: {said}"):
        load_retrieval(folder)


# --- pairs


def test_pairs_are_read_with_their_domain_or_their_files_name(
    tmp_path: Path, write_json_lines: WriteLines
) -> None:
    """In the order of the files' names; an id names the file and the row."""
    write_json_lines(tmp_path / "b.jsonl", [{"query": "q1", "document": "d1"}])
    write_json_lines(
        tmp_path / "a.jsonl",
        [
            {"query": "q2", "document": "d2", "domain": "law"},
            {"query": "q3", "document": "d3", "other": 1},
        ],
    )
    compress(tmp_path / "a.jsonl")
    (tmp_path / "SOURCES.md").write_text("not pairs")
    pairs = load_pairs(tmp_path, name="mine")
    assert list(pairs) == [("q2", "d2"), ("q3", "d3"), ("q1", "d1")]
    assert pairs.domains == ["law", "a", "b"]
    assert pairs.ids == ["a:1", "a:2", "b:1"]
    assert pairs.name == "mine"


def test_one_file_is_read_as_a_folder_that_holds_it(
    tmp_path: Path, write_json_lines: WriteLines
) -> None:
    path = write_json_lines(tmp_path / "only.jsonl", [{"query": "q", "document": "d"}])
    assert load_pairs(path, name="x") == load_pairs(tmp_path, name="x")
    assert load_pairs(path).name == "only"


def test_no_file_and_a_folder_without_pairs_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"no file or folder .*/gone\.jsonl: expected \.jsonl\[\.gz\] with"
    ):
        load_pairs(tmp_path / "gone.jsonl")
    with pytest.raises(FileNotFoundError, match=r"holds no \.jsonl or \.jsonl\.gz file of pairs"):
        load_pairs(tmp_path)


def test_bytes_that_are_not_utf8_are_named_by_file(tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes('{"query": "é", "document": "x"}'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.jsonl: cannot be read as UTF-8"):
        load_pairs(tmp_path / "latin.jsonl")


def test_a_file_that_is_not_gzipped_or_is_damaged_anywhere_is_a_value_error_that_names_it(
    tmp_path: Path,
) -> None:
    """Whatever byte it is: zlib, the check sum or the JSON within notices."""
    path = tmp_path / "pairs.jsonl.gz"
    rows = (json.dumps({"query": f"q{i}", "document": f"d{i * i}"}) for i in range(200))
    packed = gzip.compress("\n".join(rows).encode(), mtime=0)
    damaged = [
        packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :]
        for place in range(10, len(packed), 25)
    ]
    for content in (b"plain text", packed[:-100], *damaged):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"pairs\.jsonl\.gz"):
            load_pairs(path)


@pytest.mark.parametrize(
    "name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "exclude.tsv", "pairs.jsonl"]
)
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(
    name: str, tmp_path: Path, write_beir: WriteBeir
) -> None:
    folder = write_beir(tmp_path / "beir")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    # whoever opens it reads nothing, and does not wait
    writer = threading.Thread(target=lambda: (folder / name).write_bytes(b""), daemon=True)
    writer.start()
    load: Callable[[Path], object] = load_retrieval
    if name == "pairs.jsonl":
        (folder / "corpus.jsonl").unlink()
        (folder / "queries.jsonl").unlink()
        load = load_pairs
    with pytest.raises(FileNotFoundError, match=rf"{name} is not a regular file"):
        load(folder)


def test_a_field_of_any_length_is_read_and_no_message_is_as_long(
    tmp_path: Path, write_beir: WriteBeir
) -> None:
    """Python's reader of CSV takes fields of at most 131,072 characters."""
    long = "x" * 200_000
    folder = write_beir(tmp_path / "beir", qrels={"test": f"q1\td1\t2\t{long}\n", "dev": ""})
    assert load_retrieval(folder).qrels == {"q1": {"d1": 2}}
    for line in (f"q1\td1\t{long}", f"{long}\td1\t1", f"q1\t{long}\t1\nq1\t{long}\t2"):
        (folder / "qrels" / "dev.tsv").write_text(line)
        with pytest.raises(ValueError, match=r"grade|judge") as caught:
            load_retrieval(folder, "dev")
        assert len(str(caught.value)) < 1500


def test_a_corpus_without_documents_is_refused_whatever_is_to_be_dropped(
    tmp_path: Path, write_beir: WriteBeir
) -> None:
    folder = write_beir(tmp_path / "beir")
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl.gz").write_bytes(b"")
    for drop_unknown in (False, True):
        with pytest.raises(ValueError, match="holds no documents: its corpus is empty"):
            load_retrieval(folder, drop_unknown=drop_unknown)
