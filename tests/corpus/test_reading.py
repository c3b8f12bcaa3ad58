"""Folders of one's own: what is a document, what is left out, in which order."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from cde import Index
from cde.corpus.reading import read_texts


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
    "rows.jsonl:4": "without a name",
    "7": "a number",
}


def test_every_file_is_read_in_the_order_of_paths(folder: Path) -> None:
    texts, left_out = read_texts(folder)
    assert list(texts.items()) == list(TEXTS.items())
    assert left_out == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Index.from_folder(str(folder)).ids == tuple(TEXTS)


def test_one_file_is_a_folder_of_one(folder: Path) -> None:
    assert read_texts(folder / "a.txt")[0] == {"a.txt": TEXTS["a.txt"]}
    assert list(read_texts(folder / "rows.jsonl")[0]) == ["one", "two", "rows.jsonl:4", "7"]


def test_what_cannot_be_read_is_listed_and_the_rest_indexed(folder: Path) -> None:
    (folder / "c.txt").write_text(" \n")
    (folder / "d.md").write_bytes("über".encode("latin-1"))
    (folder / "e.jsonl").write_text('{"text": 3}\n["text"]\n{"text": "whole"}\n{"text": " "}\n{')
    (folder / "f.jsonl.gz").write_bytes(b"no gzip")
    with pytest.warns(UserWarning, match="9 documents were read, 7 left out") as caught:
        index = Index.from_folder(folder)
    assert set(index.ids) == {*TEXTS, "e.jsonl:3"}
    said = str(caught[0].message)
    assert caught[0].filename == __file__
    for name in ("c.txt (empty)", "d.md (not UTF-8 at byte 0)", "e.jsonl:4 (empty)", "f.jsonl.gz"):
        assert name in said
    assert said.count('expected a JSON object with the string field "text"') == 3


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_texts(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no document .*: it has no .txt, .md"):
        read_texts(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ValueError, match=r"holds no document .*: empty.txt \(empty\)"):
        read_texts(tmp_path)
    (tmp_path / "page.pdf").write_bytes(b"%PDF")
    with pytest.raises(ValueError, match="page.pdf cannot be read: accepted are .txt"):
        read_texts(tmp_path / "page.pdf")


def test_an_id_that_occurs_twice_is_refused(folder: Path) -> None:
    (folder / "twice.jsonl").write_text('{"id": "one", "text": "again"}')
    with pytest.raises(ValueError, match="twice.jsonl: the id 'one' occurs more than once"):
        Index.from_folder(folder)


def test_of_a_beir_folder_the_corpus_alone_is_read(
    tmp_path: Path, write_beir: Callable[..., Path]
) -> None:
    assert read_texts(write_beir(tmp_path)) == ({"d1": "Boats are red", "d2": "no title"}, [])
