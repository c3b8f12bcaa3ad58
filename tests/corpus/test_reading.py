"""Folders of one's own: what is a document, what is left out, in which order."""

from __future__ import annotations

import csv
import gzip
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from uuid import UUID

import datasets
import pandas as pd
import polars
import pyarrow
import pytest
from pyarrow import parquet

import cde
from cde import Index
from cde.corpus.files import Source, counted, read_source
from cde.storage import content_hash


def read_texts(
    path: Path, columns: dict[str, str] | None = None
) -> tuple[dict[str, str], list[str]]:
    """Texts by id, and what was left out."""
    documents, left_out = read_source(Source.of(path, columns))
    return {one.id: one.text for one in documents}, [str(one) for one in left_out]


def hashed(place: str, text: str) -> str:
    """The name of a row without an id."""
    return f"{place}#{content_hash([text], 12)}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "b" / "boats.md").write_text("# Boats\r\n\r\nare red.\n", encoding="utf-8")
    (tmp_path / "a.txt").write_bytes("\ufeffharbours of Norge ø".encode())
    (tmp_path / "B.TXT").write_text("upper case")
    (tmp_path / "rows.jsonl").write_text(
        '{"id": "one", "text": "tides"}\n\n{"_id": "two", "title": "Red", "text": "sails"}\n'
        '{"text": "\u2028 without a name"}\n{"id": 7, "text": "a number"}\n'
    )
    (tmp_path / "more.jsonl.gz").write_bytes(gzip.compress(b'{"id": "zipped", "text": "ropes"}'))
    (tmp_path / ".git" / "notes.txt").write_text("hidden")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    return tmp_path


TEXTS = {
    "B.TXT": "upper case",
    "a.txt": "harbours of Norge ø",
    "b/boats.md": "# Boats\r\n\r\nare red.",
    "zipped": "ropes",
    "one": "tides",
    "two": "Red sails",
    hashed("rows.jsonl", "without a name"): "without a name",
    "7": "a number",
}


def test_every_file_is_read_in_the_order_of_paths(folder: Path) -> None:
    texts, left_out = read_texts(folder)
    assert list(texts.items()) == list(TEXTS.items())
    assert left_out == ["picture.png (files of kind .png are not read)"]
    (folder / "picture.png").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Index.from_folder(str(folder), cde.BM25()).ids == tuple(TEXTS)


def test_what_cannot_be_read_is_listed_and_the_rest_indexed(folder: Path) -> None:
    (folder / "c.txt").write_text(" \n")
    (folder / "d.md").write_bytes("über".encode("latin-1"))
    (folder / "e.jsonl").write_text('{"text": 3}\n["text"]\n{"text": "whole"}\n{"text": " "}\n{')
    (folder / "f.jsonl.gz").write_bytes(b"no gzip")
    with pytest.warns(UserWarning, match="9 documents were read, 8 left out") as caught:
        index = Index.from_folder(folder, cde.BM25())
    assert set(index.ids) == {*TEXTS, hashed("e.jsonl", "whole")}
    said = str(caught[0].message)
    assert caught[0].filename == __file__
    assert "2 × empty" in said
    for name in ("c.txt (empty)", "d.md (not UTF-8 at byte 0)", "e.jsonl:4 (empty)", "f.jsonl.gz"):
        assert name in said
    assert said.count('e.jsonl:1 (expected a JSON object with the string field "text"') == 1


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_texts(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"holds no document .*\.txt, .*: it is empty"):
        read_texts(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ValueError, match=r"holds no document .*: empty.txt \(empty\)"):
        read_texts(tmp_path)
    (tmp_path / "page.pdf").write_bytes(b"%PDF")
    with pytest.raises(ValueError, match="page.pdf cannot be read: accepted are .txt"):
        read_texts(tmp_path / "page.pdf")


def test_an_id_that_occurs_twice_is_refused(folder: Path) -> None:
    (folder / "twice.jsonl").write_text('{"id": "one", "text": "again"}')
    with pytest.raises(ValueError, match="twice.jsonl: the id 'one' occurs in .*rows.jsonl too"):
        Index.from_folder(folder, cde.BM25())
    unnamed = read_texts(folder, {"id": ""})[0]
    assert unnamed[hashed("twice.jsonl", "again")] == "again"
    assert unnamed[hashed("rows.jsonl", "tides")] == "tides"


def test_of_a_beir_folder_the_corpus_alone_is_read(
    tmp_path: Path, write_beir: Callable[..., Path]
) -> None:
    assert read_texts(write_beir(tmp_path)) == ({"d1": "Boats are red", "d2": "no title"}, [])


# --- tables


ROWS = [
    {"id": "one", "title": "Red", "text": "sails, ropes\nand masts"},
    {"id": "zwei", "title": "", "text": "Häfen"},
    {"id": "3", "title": "", "text": 'a "quoted" word'},
]
READ = {"one": "Red sails, ropes\nand masts", "zwei": "Häfen", "3": 'a "quoted" word'}


def written(rows: list[dict[str, str]], place: Path, kind: str) -> Path:
    """The rows as a file of a kind, by pandas."""
    frame, file = pd.DataFrame(rows), place / f"table{kind}"
    if kind == ".parquet":
        frame.to_parquet(file)
    elif kind.startswith(".jsonl"):
        frame.to_json(file, orient="records", lines=True)
    else:
        separator = {".tsv": "\t", ".csv": ","}[kind]
        frame.to_csv(file, index=False, sep=separator)
    return file


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet", ".jsonl", ".jsonl.gz"])
def test_a_table_gives_the_same_documents_in_every_format(kind: str, tmp_path: Path) -> None:
    assert read_texts(written(ROWS, tmp_path, kind)) == (READ, [])
    others = [{"key": row["id"], "head": row["title"], "body": row["text"]} for row in ROWS]
    columns = {"text": "body", "title": "head", "id": "key"}
    assert read_texts(written(others, tmp_path, kind), columns) == (READ, [])
    found = "no column|expected a JSON object"
    with pytest.raises(
        ValueError, match=rf'holds no document .*({found}).*"text"; it has key, head, body'
    ):
        read_texts(tmp_path / f"table{kind}")
    if kind.startswith(".jsonl"):
        return
    with pytest.raises(ValueError, match='no column "number"; it has key, head, body: name one by'):
        read_texts(tmp_path / f"table{kind}", {"text": "body", "id": "number"})


def test_a_spreadsheet_may_separate_by_semicolons(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\ufeffid;text\n1;boats, red\n", encoding="utf-8")
    assert read_texts(tmp_path) == ({"1": "boats, red"}, [])


def test_rows_without_ids_are_named_by_their_content(tmp_path: Path) -> None:
    """So that a row above them changes no name; equal rows are one document."""
    file = written([{"text": "a\nb"}, {"text": "c"}, {"text": "c"}], tmp_path, ".csv")
    texts, left_out = read_texts(tmp_path)
    assert texts == {hashed("table.csv", text): text for text in ("a\nb", "c")}
    assert left_out == ["table.csv (a row that is there already)"]
    file.write_text("text\nnew\nc\n")
    assert hashed("table.csv", "c") in read_texts(tmp_path)[0]


def test_rows_that_share_their_text_alone_are_documents_of_their_own(tmp_path: Path) -> None:
    written([{"text": "c", "year": year} for year in "122"], tmp_path, ".csv")
    documents, left_out = read_source(Source.of(tmp_path))
    assert [one.metadata for one in documents] == [{"year": "1"}, {"year": "2"}]
    assert documents[0].id == hashed("table.csv", "c") and len(left_out) == 1


def test_metadata_are_what_json_can_hold(tmp_path: Path) -> None:
    """So that they are no other the next time, and no document is embedded again."""
    rows = [
        {"text": "a", "when": [date(2020, 1, 1)], "by": {1: "x"}, "share": [float("nan")]},
        {"text": "b", "author": "\ud800"},
    ]
    index = Index.build(rows, tmp_path / "index", encoder=cde.BM25())
    assert [one.metadata for one in index] == [{"by": {"1": "x"}}, {"author": "\ud800"}]
    assert index.sync(rows).kept == 2


def test_lists_and_records_in_a_parquet_file_are_metadata(tmp_path: Path) -> None:
    rows = [{"id": "a", "text": "boats", "tags": ["red", "old"], "by": {"name": "x"}}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    (one,) = Index.from_folder(tmp_path / "a.parquet", encoder=cde.BM25())
    assert (one.id, one.text) == ("a", "boats")
    assert one.metadata == {"tags": ["red", "old"], "by": {"name": "x"}}


def test_a_column_that_is_there_twice_is_not_chosen_from(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,text,,\n1,boats,soup,,\n")
    with pytest.raises(ValueError, match='two columns "text": give one of them another name'):
        read_texts(tmp_path)


@pytest.mark.parametrize("names", [["text", "when"], ["text", "text"]])
def test_a_table_that_python_cannot_hold_costs_itself_alone(
    names: list[str], tmp_path: Path
) -> None:
    when = pyarrow.array([2**53], pyarrow.timestamp("ms"))  # far beyond the year 9999
    table = pyarrow.Table.from_arrays([pyarrow.array(["a"]), when], names=names)
    parquet.write_table(table, tmp_path / "odd.parquet")
    (tmp_path / "note.txt").write_text("boats")
    texts, left_out = read_texts(tmp_path)
    assert texts == {"note.txt": "boats"} and "odd.parquet" in left_out[0]


@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".parquet", ".txt"])
def test_documents_above_the_limit_are_listed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["a" * 50, "b" * 200, "c" * 50]
    if kind == ".txt":
        for place, text in enumerate(texts):
            (tmp_path / f"{place}.txt").write_text(text)
    else:
        written([{"text": text} for text in texts], tmp_path, kind)
    assert len(read_texts(tmp_path)[0]) == 3
    monkeypatch.setattr("cde.corpus.files.LARGEST", 100)
    kept, left_out = read_texts(tmp_path)
    assert [*kept.values()] == ["a" * 50, "c" * 50]
    assert len(left_out) == 1 and "200 bytes, above the limit of 100" in left_out[0]


def test_a_line_far_above_the_limit_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = '{"text": "%s"}\n'
    (tmp_path / "a.jsonl").write_text(row % "a" + row % ("b" * 5_000) + row % "c")
    (tmp_path / "b.csv").write_text("text\nd\n" + "e" * 5_000 + "\nf\n")
    monkeypatch.setattr("cde.corpus.files.LARGEST", 100)
    kept, left_out = read_texts(tmp_path)
    assert [*kept.values()] == ["a", "c", "d", "f"]
    assert len(left_out) == 2 and csv.field_size_limit() > 100


def test_bad_rows_cost_themselves_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text,n\nfür,1\n".encode() + b"\xfc\xfe,2\nx,3,4\n,5\ngut,6\n")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "one"}\n{"text": "\xff"}\n{"text": "two"}\n')
    data = gzip.compress("".join(f'{{"text": "{row}"}}\n' for row in range(5_000)).encode())
    (tmp_path / "c.jsonl.gz").write_bytes(data[: len(data) // 2])
    (tmp_path / "d.parquet").write_bytes(b"PAR1 no parquet")
    (tmp_path / "e.csv").write_bytes(b"")
    for name, text in {"f.tsv": '"id","text"', "g.csv": '"text"x,id', "h.csv": 'text,"id'}.items():
        (tmp_path / name).write_text(f"{text}\na,b\n")
    kept, left_out = read_texts(tmp_path)
    assert [*kept.values()] == ["für", "gut", "one", "two", *map(str, range(len(kept) - 4))]
    assert len(kept) < 4 + 5_000
    expected = [
        "a.csv:3 (not UTF-8)",
        "a.csv:4 (3 columns, expected 2)",
        "a.csv:5 (empty)",
        "b.jsonl:2 (not UTF-8 at byte 10",
        "c.jsonl.gz (cannot be read after",
        "d.parquet (cannot be read",
        "e.csv (empty)",
        *(f"{name} (no header: " for name in ("f.tsv", "g.csv", "h.csv")),
    ]
    assert len(left_out) == len(expected)
    for said, start in zip(left_out, expected, strict=True):
        assert said.startswith(start)


def test_what_may_not_be_opened_is_listed(folder: Path) -> None:
    os.mkfifo(folder / "pipe.txt")
    (folder / "gone.md").symlink_to(folder / "nowhere.md")
    (folder / "locked.txt").write_text("secret")
    (folder / "locked.txt").chmod(0)
    texts, left_out = read_texts(folder)
    assert "pipe.txt (no regular file)" in left_out
    assert any(said.startswith("gone.md (cannot be read: No such file") for said in left_out)
    if os.geteuid():  # root may open everything
        assert any(said.startswith("locked.txt (cannot be read: Permission") for said in left_out)
    assert set(TEXTS) <= set(texts)


def test_every_container_gives_the_documents_that_its_file_does() -> None:
    frame = pd.DataFrame(ROWS).assign(year=[1, 2, 3])
    rows = frame.to_dict(orient="records")
    stored = datasets.Dataset.from_list(rows)
    for table in (
        frame,
        frame.rename(columns={"id": "_id"}),
        rows,
        {row["id"]: {name: row[name] for name in ("title", "text", "year")} for row in rows},
        stored,
        stored.to_iterable_dataset(),
        pyarrow.Table.from_pandas(frame),
        polars.from_pandas(frame),
    ):
        index = Index(table, encoder=cde.BM25())
        assert {one.id: one.text for one in index} == READ
        assert [one.metadata for one in index] == [{"year": 1}, {"year": 2}, {"year": 3}]


def test_rows_without_ids_have_those_of_the_frame_or_the_next_numbers() -> None:
    frame = pd.DataFrame(ROWS)
    index = Index(frame, encoder=cde.BM25())
    other = frame.set_index("id").rename(columns={"text": "body"})
    assert Index(other, encoder=cde.BM25(), columns={"text": "body"}).ids == tuple(READ)
    unnamed = frame[["text"]]
    assert Index(unnamed, encoder=cde.BM25()).ids == ("0", "1", "2")
    assert Index(unnamed[1:], encoder=cde.BM25()).ids == ("1", "2")
    assert Index(unnamed[unnamed["text"] != "Häfen"], encoder=cde.BM25()).ids == ("0", "2")
    assert Index(frame.set_index("id")["text"], encoder=cde.BM25()).ids == tuple(READ)
    assert Index(unnamed, ids=["a", "b", "c"], encoder=cde.BM25()).ids == ("a", "b", "c")
    index.add(unnamed)
    assert index.ids[3:] == ("4", "5", "6")  # "3" is taken


def test_tables_that_are_no_corpus_are_refused() -> None:
    frame = pd.DataFrame(ROWS)
    with pytest.raises(ValueError, match='the table has no column "text"; it has id, body'):
        Index(frame[["id"]].assign(body="a"), encoder=cde.BM25())

    with pytest.raises(TypeError, match='the document 1 has no string in "text".*dropna'):
        Index(frame.assign(text=["a", None, "b"]), encoder=cde.BM25())
    with pytest.raises(ValueError, match="'text' has two"):
        Index(pd.DataFrame([["1", "x", "y"]], columns=["id", "text", "text"]), encoder=cde.BM25())
    several = datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS))
    with pytest.raises(TypeError, match="the document 'train' has no string in \"text\", but Data"):
        Index(several, encoder=cde.BM25())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is told by Linux")
def test_a_small_file_of_large_rows_takes_the_memory_of_one(tmp_path: Path) -> None:
    """Two kilobytes of Parquet hold 100 texts of 30 million letters."""
    column = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 100, pyarrow.int32()), pyarrow.array(["x" * 30_000_000])
    )
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "large.parquet")
    (tmp_path / "a.txt").write_text("a text")
    code = (
        "import sys; from cde.corpus.files import Source, read_source\n"
        "print(len(read_source(Source.of(sys.argv[1]))[1]))\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    left_out, kilobytes = map(int, done.stdout.split())
    assert left_out == 100 and kilobytes < 1_500_000


BIG = 2**63 - 1


@pytest.mark.parametrize("kind", [".parquet", ".jsonl", ".csv"])
def test_ids_are_kept_to_their_last_digit(kind: str, tmp_path: Path) -> None:
    written([{"id": BIG - 1, "text": "a"}, {"id": BIG, "text": "b"}], tmp_path, kind)  # type: ignore[dict-item]
    assert list(read_texts(tmp_path)[0]) == [str(BIG - 1), str(BIG)]


def test_ids_that_would_change_are_refused() -> None:
    day, key = date(2026, 11, 27), UUID(int=7)
    rows = [{"id": one, "text": "a"} for one in (BIG, key, day, 3.0)]
    assert Index(rows, encoder=cde.BM25()).ids == (str(BIG), str(key), "2026-11-27", "3")
    for one in (2.0**60, 1.5, True, b"raw", [1]):
        with pytest.raises(ValueError, match="the id .* is of type"):
            Index([{"id": one, "text": "a"}], encoder=cde.BM25())


def test_what_is_not_read_is_told_by_its_kind(tmp_path: Path) -> None:
    for name in ("a.txt", "b.rst", "page.html", "README", "data.json"):
        (tmp_path / name).write_text("text")
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "out" / "secret.txt").write_text("another's")
    (tmp_path / "in" / "a.txt").write_text("inside")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "file.txt").symlink_to(tmp_path / "out" / "secret.txt")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/in/caf\xe9.txt")).write_text("Latin-1")
    texts, left_out = read_texts(tmp_path / "in")
    assert texts == {"a.txt": "inside"}
    assert sorted(left_out) == [
        "caf?.txt (its name is not UTF-8)",
        "file.txt (a link out of the folder)",
        "folder (a link to a folder)",
    ]
    (tmp_path / "page (1).html").write_text("another")
    documents, others = read_source(Source.of(tmp_path))
    read = {one.id for one in documents}
    assert {"a.txt", "b.rst", "out/secret.txt", "in/a.txt"} <= read
    assert counted(others).startswith("2 × files of kind .html are not read, ")


def test_the_home_folder_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    index = Index.from_folder("~/b", cde.BM25())
    assert Index.load(index.save("~/boats.index")).ids == ("boats.md",)
    assert (folder / "boats.index").is_dir()


def test_a_tab_separates_the_columns_of_a_tsv_file_and_an_unclosed_quote_is_told(
    tmp_path: Path,
) -> None:
    (tmp_path / "one.tsv").write_text("text\nred boats, green boats\nsoup\n")
    assert list(read_texts(tmp_path / "one.tsv")[0].values()) == ["red boats, green boats", "soup"]
    rows = 'id\ttext\n1\tships\n2\t"unclosed quote\n3\tsoup\n4\tred\n'
    (tmp_path / "two.tsv").write_text(rows)
    texts, left_out = read_texts(tmp_path / "two.tsv")
    assert texts == {"1": "ships"} and len(left_out) == 1 and "two.tsv:3" in left_out[0]


def test_whole_numbers_are_ids_though_one_is_missing() -> None:
    """pandas makes floats of such a column: 10 is "10", and not the number of its row."""
    frame = pd.DataFrame({"id": [10, None, 30], "text": ["red boats", "soup", "ships"]})
    assert Index(frame, encoder=cde.BM25()).ids == ("10", "1", "30")
