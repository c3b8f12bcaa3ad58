"""An index in a folder: kept in step with its source, by several at once, whatever is killed."""

from __future__ import annotations

import gzip
import json
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_encoders import CORPUS, TEXTS, bi_encoder, contextual

import cde
from cde import Index
from cde.corpus import index as module
from cde.corpus.table import Table

Vectors = NDArray[np.float32]

ALL = [*CORPUS, *TEXTS]


@pytest.fixture(autouse=True)
def on_the_cpu_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are compared."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(module, "PART", 2)


class Lengths:
    """An encoder of a class of its own, which has no fingerprint. It notes what it embeds."""

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        numbers = [[1, len(text), *text.encode()[:2].ljust(2)] for text in texts]
        return np.array(numbers, np.float32).reshape(len(texts), 4)

    def encode_documents(self, texts: Sequence[str]) -> Vectors:
        self.embedded += texts
        return self.encode_queries(texts)


# --- in step with a source

CORPORA = st.dictionaries(
    st.sampled_from(["a", "b", "it's", "\0"]),
    st.sampled_from(["", "red", "ropes", "sea"]),
    max_size=4,
)


@settings(max_examples=25)
@given(st.lists(CORPORA, min_size=1, max_size=5), st.booleans())
def test_sync_makes_the_index_that_is_made_of_the_source(
    tmp_path_factory: pytest.TempPathFactory, corpora: list[dict[str, str]], kept: bool
) -> None:
    index = Index(corpora[0], encoder=Lengths())
    if kept:
        index = Index.load(index.save(tmp_path_factory.mktemp("index")), encoder=Lengths())
    have = corpora[0]
    for corpus in corpora[1:]:
        done = index.sync(corpus)
        assert index.fingerprint != Index({}, encoder=Lengths()).fingerprint or not corpus
        fresh = Index(corpus, encoder=Lengths())
        assert {one.id: one.text for one in index} == corpus
        assert sorted(map(str, index.vectors)) == sorted(map(str, fresh.vectors))
        new = {name for name in corpus if name not in have}
        assert {*done.added, *done.moved} == new
        assert set(done.changed) == {n for n in corpus if n in have and have[n] != corpus[n]}
        assert len(done.removed) + len(done.moved) == len(set(have) - set(corpus))
        have = corpus


def test_what_moved_is_not_embedded_again_and_metadata_follow() -> None:
    encoder = Lengths()
    index = Index({"a": {"text": "red", "year": 1}, "b": "sea", "c": "ropes"}, encoder=encoder)
    done = index.sync(
        {"z": {"text": "red", "year": 2}, "b": {"text": "sea", "year": 3}, "c": "rope"}
    )
    assert (done.moved, done.changed, done.removed) == (["z"], ["b", "c"], [])
    assert encoder.embedded == ["red", "sea", "ropes", "sea", "rope"]
    assert index["z"].metadata == {"year": 2} and index["b"].metadata == {"year": 3}
    assert index.search("red", where={"year": 3})["id"].tolist() == ["b"]
    assert index.search("red", where=lambda one: one.id > "b")["id"].tolist() in (
        ["z", "c"],
        ["c", "z"],
    )
    with pytest.warns(UserWarning, match=r"have \['yeer'\]; they have \['year'\]"):
        assert index.search("red", where={"yeer": 3}).empty


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "notes"
    (place / "sub").mkdir(parents=True)
    for name, text in {"a.txt": "boats", "b.txt": "trains", "sub/n.md": "beta"}.items():
        (place / name).write_text(text)
    return place


def test_a_folder_is_kept_in_step_for_as_long_as_it_changes(source: Path, tmp_path: Path) -> None:
    """Its index may lie within it; ids are paths below it, whichever part is read again."""
    index = Index.build(source, source / "my.index", encoder=cde.BM25())
    assert set(index.ids) == {"a.txt", "b.txt", "sub/n.md"}
    (source / "b.txt").unlink()
    (source / "a.txt").rename(source / "sub" / "a.txt")
    (source / "sub" / "n.md").write_text("beta changed")
    loaded = Index.load(source / "my.index")
    done = loaded.add_from(source / "sub" / "n.md")
    assert (done.added, done.changed) == ([], ["sub/n.md"])
    done = loaded.sync()
    assert (done.moved, done.removed, done.changed) == (["sub/a.txt"], ["b.txt"], [])
    assert [str(one) for one in done.left_out] == ["my.index (an index)"]
    assert {one.id: one.text for one in index} == {"sub/a.txt": "boats", "sub/n.md": "beta changed"}
    other = tmp_path / "two"
    other.mkdir()
    (other / "a.md").write_text("more")
    assert loaded.add_from(other).added == ["a.md"]
    loaded.remove([])
    assert loaded.add([]) == [] and len(loaded) == 3
    (other / "sub").mkdir()
    (other / "sub" / "a.txt").write_text("of another folder")
    with pytest.raises(ValueError, match="1 ids of .*two are those of other documents"):
        loaded.add_from(other)
    with pytest.raises(FileNotFoundError, match="no folder or file"):
        loaded.sync(tmp_path / "gone")
    assert Index.load(source / "my.index").ids == loaded.ids


def test_an_index_of_one_file_has_that_file_once_and_its_columns(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("key,body\nk1,boats\nk2,trains\n")
    columns = {"text": "body", "id": "key"}
    index = Index.build(tmp_path / "rows.csv", tmp_path / "index", None, cde.BM25(), columns)
    for done in (index.add_from(tmp_path / "rows.csv"), index.sync(tmp_path / "rows.csv")):
        assert (done.added, done.changed, done.removed) == ([], [], [])
    (tmp_path / "rows.csv").write_text("key,text\nk1,boats\n")
    assert index.sync(columns={"text": "text"}).removed == ["k2"]
    (tmp_path / "n.txt").write_text("a note")
    note = Index.from_folder(tmp_path / "n.txt", cde.BM25())
    assert note.add_from(tmp_path / "n.txt").added == [] and note.ids == ("n.txt",)


def test_what_cannot_be_read_is_not_taken_for_gone(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"id": str(row), "text": f"text {row}"}) + "\n" for row in range(500)
    )
    whole = gzip.compress(lines.encode())
    (tmp_path / "rows.jsonl.gz").write_bytes(whole)
    index = Index.from_folder(tmp_path, cde.BM25())
    (tmp_path / "rows.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.warns(UserWarning, match="nothing is removed, as 1 of the source cannot be read"):
        assert index.sync().removed == []
    assert len(index) == 500


# --- a build in parts


class Killed(BaseException):
    """What no `except Exception` catches, as a kill."""


ENCODERS: dict[str, Callable[[], Any]] = {
    "bi-encoder": bi_encoder,
    "contextual": contextual,
    "bm25": cde.BM25,
    "own class": Lengths,
}


@pytest.mark.parametrize("made", ENCODERS.values(), ids=ENCODERS)
@pytest.mark.parametrize("after", [False, True])
def test_a_killed_build_goes_on_and_embeds_no_part_twice(
    made: Any, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before or after each write of rows, and before the last step of all."""
    embed, put, finish = module.embedded, Table.put, Table.finish
    state, parts = {"writes": 0}, []

    def noted(encoder: Any, texts: Sequence[str], *more: Any) -> Vectors:
        vectors = embed(encoder, texts, *more)
        parts.extend([list(texts)] * (0 < len(texts) <= 2))
        return vectors

    def put_or_die(self: Table, rows: Any, gone: set[str]) -> None:
        state["writes"] += 1
        if not after:
            put(self, rows, gone)
        if state["writes"] % 2:
            raise Killed
        if after:
            put(self, rows, gone)

    def finish_or_die(self: Table, values: Any) -> None:
        if state["writes"] < 100:
            state["writes"] = 100
            raise Killed
        finish(self, values)

    monkeypatch.setattr(module, "embedded", noted)
    monkeypatch.setattr(Table, "put", put_or_die)
    monkeypatch.setattr(Table, "finish", finish_or_die)
    kills = 0
    while True:
        try:
            index = Index.build(ALL, tmp_path / "index", encoder=made())
            break
        except Killed:
            kills += 1
            with pytest.raises(ValueError, match="a build was interrupted, and the same one goes"):
                Index.load(tmp_path / "index")
    assert kills >= len(ALL) // 4
    once = Index(ALL, encoder=made(), on_long=index._on_long)
    assert index.ids == once.ids and index.texts == once.texts
    np.testing.assert_allclose(index.vectors, once.vectors, atol=2e-6)
    if not after and made is not Lengths:  # that one's rows are embedded again to be recognised
        assert len(parts) == -(-len(ALL) // 2), "each part once"


def test_another_index_is_replaced_only_when_told(tmp_path: Path, source: Path) -> None:
    place = tmp_path / "index"
    first = Index.build(["a", "b"], place, encoder=bi_encoder())
    assert Index.build(["a", "b"], place, encoder=bi_encoder()).fingerprint == first.fingerprint
    for texts, encoder in ((["a", "c"], bi_encoder()), (["a", "b"], bi_encoder(seed=1))):
        with pytest.raises(FileExistsError, match="holds another index"):
            Index.build(texts, place, encoder=encoder)
    assert Index.load(place).fingerprint == first.fingerprint
    for texts, encoder in ((["a", "c"], bi_encoder()), (["a", "b"], bi_encoder(seed=1))):
        new = Index.build(texts, place, encoder=encoder, replace=True)
        assert Index.load(place).texts == tuple(texts) == new.texts
    with pytest.raises(FileExistsError, match="holds other files"):
        Index.build(["a"], source, encoder=bi_encoder())


def test_a_build_that_replaces_an_index_makes_what_a_first_one_makes(tmp_path: Path) -> None:
    long = " ".join(f"word {number}" for number in range(200))
    place = tmp_path / "index"
    index = Index.build(["a", long], place, encoder=bi_encoder())
    passages = len(index.vectors)
    index.add(["b"])
    again = Index.build(["a", long, "b"], place, encoder=bi_encoder(), replace=True)
    assert len(again.vectors) == passages + 1
    assert (again.status().drift.newer, again.status().drift.gone) == (0, 0)
    whole = Index.build(["a", long, "b"], place, None, bi_encoder(), None, "truncate", replace=True)
    assert len(whole.vectors) == len(Index.load(place).vectors) == 3
    with pytest.raises(FileExistsError, match="holds another index"):
        Index.build(["a", long, "b"], place, encoder=bi_encoder())


# --- several at once


def test_what_another_process_changes_is_seen_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = Index({"a": "red boats"}, encoder=cde.BM25()).save(tmp_path / "index")
    mine, other = Index.load(folder), Index.load(folder)
    other.add({"b": "added on the shell"})
    mine.add({"c": "added by the service"})
    for index in (mine, other, Index.load(folder)):
        assert set(index.ids) == {"a", "b", "c"}
    with pytest.raises(ValueError, match="already, such as b"):
        mine.add({"b": "again"})
    other.remove("a")
    assert "a" not in mine and mine.search("boats").empty


def test_a_search_beside_changes_answers_of_one_state() -> None:
    class OneHot:
        def encode_documents(self, texts: Sequence[str]) -> Vectors:
            vectors = np.zeros((len(texts), 300), np.float32)
            vectors[range(len(texts)), [int(text) for text in texts]] = 1
            return vectors

        encode_queries = encode_documents

    index = Index({f"d{k}": str(k) for k in range(300)}, encoder=OneHot())
    stop, seen, before = threading.Event(), [], sys.getswitchinterval()

    def change() -> None:
        for _ in range(60):
            index.remove("d0")
            index.add({"d0": "0"})
        stop.set()

    sys.setswitchinterval(1e-5)
    try:
        thread = threading.Thread(target=change)
        thread.start()
        while not stop.is_set():
            seen.append(index.search("150", depth=1)["id"][0])
        thread.join()
    finally:
        sys.setswitchinterval(before)
    assert seen and set(seen) == {"d150"}


# --- what is kept with it


def test_an_adapted_encoder_comes_back_with_its_shift(tmp_path: Path) -> None:
    encoder = cde.Surrogate(max_tokens=16)
    index = Index(CORPUS, encoder=encoder, sample_queries=["a ship", "a sailor's rope"])
    plain = Index(CORPUS, encoder=encoder)
    assert abs(index.vectors - plain.vectors).max() > 0.01
    loaded = Index.load(index.save(tmp_path / "index"))
    assert loaded.fingerprint == index.fingerprint
    assert loaded.search("rope").equals(index.search("rope"))
    assert loaded.status().adapted.startswith("no gain was seen on such corpora")
    assert not plain.status().adapted
    by_hand = cde.adapted(encoder, CORPUS, ["a ship", "a sailor's rope"])
    np.testing.assert_allclose(index.vectors, by_hand.encode_documents(CORPUS), atol=1e-6)
    with pytest.raises(ValueError, match="BM25 has no vectors"):
        Index(CORPUS, encoder=cde.BM25(), sample_queries=["a"])
