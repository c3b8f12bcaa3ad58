"""An index: what it finds, what changing it leaves alone, what a folder of it holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
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
from cde.models import CorpusEncoder
from cde.storage import write_json

Vectors = NDArray[np.float32]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are compared, and an index is loaded onto a GPU where there is one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


QUERIES = ["ships at sea", "a sailor", "rope"]


class Letters:
    """An encoder of a class of its own: how often each letter occurs. It notes what it embeds."""

    def __init__(self, letters: str = ascii_lowercase) -> None:
        self.letters = letters
        self.documents: list[str] = []

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        counts = [[1e-3, *(text.count(letter) for letter in self.letters)] for text in texts]
        vectors = np.array(counts, np.float32).reshape(len(texts), 1 + len(self.letters))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def encode_documents(self, texts: Sequence[str]) -> Vectors:
        self.documents += texts
        return self.encode_queries(texts)


def bound(attention: str = "cached", seed: int = 0) -> CorpusEncoder:
    return contextual(attention=attention).with_context(CORPUS, size=3, seed=seed)


ENCODERS = {
    "bi-encoder": bi_encoder,
    "full": lambda: bound("full"),
    "cached": bound,
    "null context": lambda: contextual().with_context(None),
    "surrogate": lambda: cde.Surrogate(max_tokens=8, precision="float32"),
}
each_encoder = pytest.mark.parametrize("made", ENCODERS.values(), ids=ENCODERS)


# --- search


@given(st.lists(st.text("abcdef ", max_size=8), min_size=1, max_size=12), st.integers(1, 15))
def test_search_is_brute_force(texts: list[str], depth: int) -> None:
    encoder = Letters()
    index = Index(texts, encoder=encoder)
    scores = encoder.encode_queries(["a bad cafe"])[0] @ encoder.encode_queries(texts).T
    found = index.search("a bad cafe", depth=depth)
    best = np.sort(scores)[::-1][:depth]
    np.testing.assert_allclose(found["score"], best, rtol=1e-5)
    for row in found.itertuples():  # texts may tie, so each is held to its own score
        assert row.text == texts[int(row.id)]
        assert row.score == pytest.approx(scores[int(row.id)], rel=1e-5)


def test_several_queries_are_each_searched_as_if_alone() -> None:
    index = Index(CORPUS, encoder=bi_encoder())
    together = index.search(QUERIES, depth=2)
    assert list(together.columns[:4]) == ["query", "id", "score", "text"]
    assert together["query"].tolist() == [query for query in QUERIES for _ in range(2)]
    alone = [index.search(query, depth=2) for query in QUERIES]
    assert together["id"].tolist() == [name for frame in alone for name in frame["id"]]
    assert list(alone[0].columns) == list(together.columns[1:])


def test_nothing_is_found_in_an_empty_index_and_for_no_query() -> None:
    assert Index([], encoder=Letters()).search("a").empty
    frame = Index(["a"], encoder=Letters()).search([])
    assert frame.empty and list(frame.columns[:4]) == ["query", "id", "score", "text"]


# --- what it takes


def test_a_corpus_is_taken_in_every_form() -> None:
    collection = cde.RetrievalSet(["x", "y"], ["red boats", "tides"], [], [], {})
    forms: list[Any] = [
        collection,
        dict(zip("xy", collection.documents, strict=True)),
        {"x": {"title": "red", "text": "boats"}, "y": {"text": "tides", "title": ""}},
    ]
    indices = [Index(form, encoder=Letters()) for form in forms]
    indices.append(Index((text for text in collection.documents), ["x", "y"], Letters()))
    assert {index.fingerprint for index in indices} == {indices[0].fingerprint}
    assert repr(indices[0]) == "Index(2 documents, 27 dimensions; Letters)"
    assert Index(["a", "b"], encoder=Letters()).ids == ("0", "1")


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"texts": "notes/"}, TypeError, "cde.Index.from_folder"),
        ({"texts": ["a", None]}, TypeError, "item 1 is of type NoneType"),
        ({"texts": ["a", "b"], "ids": ["x"]}, ValueError, "1 ids for 2 texts"),
        (
            {"texts": ["a", "b"], "ids": ["x", "x"]},
            ValueError,
            "ids must be distinct; .* such as x",
        ),
        (
            {"texts": ["a"], "encoder": cde.Hybrid([cde.BM25()])},
            TypeError,
            "cde.Hybrid.*retrieval_set",
        ),
        ({"texts": ["a"], "encoder": "minilm"}, TypeError, "str cannot rank.*cde.Surrogate"),
    ],
)
def test_what_cannot_be_indexed_is_refused(
    arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Index(**{"encoder": Letters(), **arguments})


def test_a_contextual_encoder_is_bound_to_the_texts() -> None:
    index = Index(CORPUS, encoder=contextual())
    by_hand = contextual().with_context(CORPUS, seed=0)
    assert repr(index.encoder) == repr(by_hand)
    assert np.array_equal(index.vectors, by_hand.encode_documents(CORPUS))
    index.add(TEXTS)
    np.testing.assert_allclose(
        index.vectors[len(CORPUS) :], by_hand.encode_documents(TEXTS), atol=1e-6
    )


# --- adding and removing


@each_encoder
def test_an_index_built_in_parts_is_the_one_built_at_once(made: Any) -> None:
    at_once = Index(CORPUS, encoder=made())
    parts = Index(CORPUS[:3], encoder=made())
    assert parts.add(CORPUS[3:]) == ["3", "4", "5", "6"]
    assert (parts.ids, parts.texts) == (at_once.ids, at_once.texts)
    np.testing.assert_allclose(parts.vectors, at_once.vectors, atol=2e-6)


@each_encoder
def test_adding_and_removing_again_leaves_the_index_as_it_was(made: Any) -> None:
    index = Index(CORPUS, encoder=made())
    before = index.fingerprint
    index.remove(index.add(TEXTS))
    assert index.fingerprint == before
    index.add({"new": "ropes"})
    assert index.fingerprint != before
    index.remove("new")
    assert index.fingerprint == before and "new" not in index


def test_only_what_is_new_is_embedded() -> None:
    index = Index(CORPUS, encoder=Letters())
    index.add(["a new one"])
    index.remove("0")
    index.search("sea")
    collection = index.retrieval_set({"q": "sea"}, {"q": {"1": 1}})
    cde.evaluate(index, collection)
    assert index.encoder.documents == [*CORPUS, "a new one"]
    assert len(index) == len(CORPUS)


def test_ids_go_on_after_the_largest_number() -> None:
    index = Index(["a", "b"], ids=["7", "x"], encoder=Letters())
    assert index.add(["c"]) == ["8"]
    index.remove(["7", "x"])
    assert index.add(["d"]) == ["9"]


def test_what_is_refused_changes_nothing() -> None:
    index = Index(CORPUS, encoder=Letters())
    before = index.fingerprint
    with pytest.raises(ValueError, match="already, such as 3: remove them first"):
        index.add(["a", "b"], ids=["new", "3"])
    with pytest.raises(ValueError, match=r"not among index\.ids: 1, such as 99"):
        index.remove(["1", "99"])
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        index.vectors[0] = 0
    with pytest.raises(AttributeError):  # another encoder's queries would find nothing
        index.encoder = cde.BM25()  # type: ignore[misc]
    assert index.fingerprint == before


def test_an_encoder_that_was_trained_meanwhile_is_refused(tmp_path: Path) -> None:
    encoder = bi_encoder()
    index = Index(CORPUS, encoder=encoder)
    with torch.no_grad():
        next(encoder.parameters()).add_(0.01)
    for step in (lambda: index.add(["a"]), lambda: index.save(tmp_path / "index")):
        with pytest.raises(ValueError, match="has changed since the documents were embedded"):
            step()


# --- saving and loading


@each_encoder
def test_a_loaded_index_gives_the_same_bytes(made: Any, tmp_path: Path) -> None:
    index = Index(CORPUS, encoder=made())
    loaded = Index.load(index.save(tmp_path / "index"))
    assert loaded.fingerprint == index.fingerprint and repr(loaded) == repr(index)
    assert loaded.vectors.tobytes() == index.vectors.tobytes()
    found, expected = (one.search(QUERIES) for one in (loaded, index))
    assert found.equals(expected)
    assert found["score"].to_numpy().tobytes() == expected["score"].to_numpy().tobytes()
    given_one = Index.load(tmp_path / "index", encoder=made())
    assert given_one.search(QUERIES).equals(expected)
    assert Index.load(loaded.save(tmp_path / "again")).fingerprint == index.fingerprint


@settings(max_examples=20)
@given(st.dictionaries(st.text(min_size=1), st.text(st.characters()), min_size=1, max_size=5))
def test_texts_of_any_kind_come_back(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]
) -> None:
    index = Index({**texts, "lines": "a\u2028b\r\nc"}, encoder=Letters())
    folder = index.save(tmp_path_factory.mktemp("index"))
    loaded = Index.load(folder, encoder=Letters())
    assert (loaded.ids, loaded.texts) == (index.ids, index.texts)


def test_an_empty_index_is_saved_and_grows(tmp_path: Path) -> None:
    loaded = Index.load(Index([], encoder=bi_encoder()).save(tmp_path / "index"))
    loaded.add(CORPUS)
    at_once = Index(CORPUS, encoder=bi_encoder())
    np.testing.assert_allclose(loaded.vectors, at_once.vectors, atol=1e-6)


def saved(folder: Path) -> Path:
    return Index(CORPUS, encoder=bi_encoder()).save(folder / "index")


def test_no_damaged_byte_is_believed(tmp_path: Path) -> None:
    """A file that matters is refused by name; what is left of earlier versions may be anything."""
    folder = saved(tmp_path)
    index = Index.load(folder)
    mark, vectors = index.fingerprint, index.vectors.tobytes()
    refused = set()
    for path in (path for path in sorted(folder.rglob("*")) if path.is_file()):
        whole = path.read_bytes()
        places = {len(whole) * part // 7 for part in range(7)} | {len(whole) - 2}
        damaged = [whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :] for k in sorted(places)]
        for data in (*damaged, whole[: len(whole) // 2]):
            path.write_bytes(data)
            try:
                loaded = Index.load(folder)
                assert (loaded.fingerprint, loaded.vectors.tobytes()) == (mark, vectors), path
            except ValueError as error:
                refused.add(path.parent.name.partition("-")[0])
                assert str(folder) in str(error)
        path.write_bytes(whole)
    assert refused == {"index", "encoder", "data", "_versions"}
    assert Index.load(folder).texts == tuple(CORPUS)


def test_folders_without_an_index_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: Index.build"):
        Index.load(tmp_path / "nowhere")
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="holds no index: Index.build"):
        Index.load(tmp_path)
    (tmp_path / "index.json").write_text('{"version": 2}')
    with pytest.raises(ValueError, match="was not written by cde.Index"):
        Index.load(tmp_path)
    folder = saved(tmp_path)
    settings = json.loads((folder / "index.json").read_text())
    write_json(folder / "index.json", {**settings, "version": 4})
    with pytest.raises(ValueError, match="version 4, and this cde reads version 3: use the cde"):
        Index.load(folder)
    write_json(folder / "index.json", settings)
    shutil.rmtree(next(folder.glob("rows-*")))
    with pytest.raises(ValueError, match="rows-.*lance is missing"):
        Index.load(folder)


def test_nothing_that_is_not_an_index_is_written_into(tmp_path: Path) -> None:
    index = Index(CORPUS, encoder=Letters())
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(FileExistsError, match="holds other files \\(letter.txt\\) and no index"):
        index.save(tmp_path)
    with pytest.raises(FileExistsError, match="letter.txt is a file"):
        index.save(tmp_path / "letter.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_an_index_is_replaced_when_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path)
    (folder / "notes.txt").write_text("mine")
    old, other = Index.load(folder).fingerprint, Index(CORPUS, encoder=bi_encoder(seed=1))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cde.corpus.table.write_json", stop)
        with pytest.raises(KeyboardInterrupt):
            other.save(folder)
    assert Index.load(folder).fingerprint == old
    assert Index.load(other.save(folder)).fingerprint == other.fingerprint
    names = {path.name.partition("-")[0] for path in folder.iterdir()}
    assert names == {"index.json", "rows", "encoder", "notes.txt"}
    assert len(list(folder.iterdir())) == 4  # what was left over is gone


OTHERS = {
    "other weights": (bi_encoder, lambda: bi_encoder(seed=1)),
    "other prefixes": (bi_encoder, lambda: bi_encoder(document_prefix="text: ")),
    "other context": (bound, lambda: bound(seed=1)),
    "other attention": (bound, lambda: bound("full")),
    "other limit": (lambda: cde.Surrogate(max_tokens=8), lambda: cde.Surrogate(max_tokens=9)),
    "other kind": (bi_encoder, Letters),
    "other letters": (Letters, lambda: Letters(ascii_lowercase[::-1])),
    "fewer letters": (Letters, lambda: Letters("aeiou")),
    "not bound": (bound, contextual),
}


@pytest.mark.parametrize(("made", "other"), OTHERS.values(), ids=OTHERS)
def test_an_encoder_that_did_not_make_the_vectors_is_refused(
    made: Any, other: Any, tmp_path: Path
) -> None:
    folder = Index(CORPUS, encoder=made()).save(tmp_path / "index")
    Index.load(folder, encoder=made())
    with pytest.raises(ValueError, match="index cannot be loaded: .*(another encoder|no corpus)"):
        Index.load(folder, encoder=other())


def test_precision_does_not_make_another_encoder(tmp_path: Path) -> None:
    precise, half = (cde.Surrogate(max_tokens=8, precision=p) for p in ("float32", "bfloat16"))
    folder = Index(CORPUS, encoder=precise).save(tmp_path / "index")
    assert Index.load(folder, encoder=half).encoder is half
    assert Index.load(folder).encoder.precision == "float32"


def test_a_surrogate_whose_model_moved_or_changed_is_refused(tmp_path: Path) -> None:
    from cde.surrogate import minilm_folder

    model = tmp_path / "model"
    model.mkdir()
    for path in minilm_folder().rglob("*"):
        target = model / path.relative_to(minilm_folder())
        target.mkdir() if path.is_dir() else target.symlink_to(path)
    surrogate = cde.Surrogate(model, max_tokens=8)
    folder = Index(["red boats"], encoder=surrogate).save(tmp_path / "index")
    assert Index.load(folder).search("ships")["id"].tolist() == ["0"]
    (model / "more.txt").write_text("another model now")
    with pytest.raises(ValueError, match="is another now.*pass the encoder"):
        Index.load(folder)
    model.rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="cannot be had .*: pass the encoder"):
        Index.load(folder)
    (tmp_path / "elsewhere" / "more.txt").unlink()
    Index.load(folder, encoder=cde.Surrogate(tmp_path / "elsewhere", max_tokens=8))


# --- scoring


def test_scores_are_those_of_the_encoder() -> None:
    corpus = cde.load_retrieval("pydocs/rich").shrink(documents=40, queries=10)
    encoder = cde.Surrogate(max_tokens=32)
    index = Index(corpus, encoder=encoder, on_long="truncate")
    queries = dict(zip(corpus.query_ids, corpus.queries, strict=True))
    metrics = ("ndcg@10", "mrr@10", "recall@5")
    assert index.evaluate(queries, corpus.qrels, metrics) == cde.evaluate(encoder, corpus, metrics)
    collection = index.retrieval_set(queries, corpus.qrels)
    fused = cde.Hybrid([index, cde.BM25()])
    assert cde.evaluate(fused, collection) == cde.evaluate(
        cde.Hybrid([encoder, cde.BM25()]), corpus
    )
    assert cde.compare(index, encoder, collection).difference.estimate == 0


def test_only_judged_queries_count_and_own_ids_are_no_reason_to_drop() -> None:
    index = Index(["aaa", "aab", "zzz"], encoder=Letters())
    queries = {"0": "aaa", "unasked": "b"}
    assert index.evaluate(queries, {"0": {"1": 1}, "unasked": {}}, "mrr@10") == {"mrr@10": 0.5}
    assert index.evaluate(queries, {"0": {"1": 1}}, "mrr@10", drop_own=True) == {"mrr@10": 1.0}
    assert len(index.retrieval_set(queries).queries) == 2


def test_judgements_and_corpora_that_are_not_its_own_are_refused() -> None:
    index = Index(["a", "b"], encoder=Letters())
    with pytest.raises(ValueError, match="2 judgements .*not there, such as q → 7, r → 0"):
        index.evaluate({"q": "a"}, {"q": {"7": 1}, "r": {"0": 1}})
    with pytest.raises(TypeError, match=r"queries must be a mapping of ids → texts; they are \['a"):
        index.retrieval_set(["a"])
    with pytest.raises(ValueError, match=r"has another corpus than Index\(3 documents"):
        kept = index.retrieval_set({"q": "a"}, {"q": {"0": 1}})
        index.add(["c"])
        index.rank(kept)
