"""A model of sentence-transformers is scored as that library's own evaluator scores it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

import cde
from cde.data import RetrievalSet
from cde.retrieval import as_encoder, rank
from cde.surrogate import minilm_folder

PROMPTS = {"query": "a question about text in a terminal: ", "document": "help: "}


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    model = SentenceTransformer(str(minilm_folder()), device="cpu", prompts=dict(PROMPTS))
    model.max_seq_length = 64
    return model


@pytest.fixture(scope="module")
def several() -> RetrievalSet:
    """Docstrings, of which each query has one to three right ones; no two of them are equal."""
    pairs = cde.load_pairs("pydocs/rich").sample(36)
    assert len(set(pairs.documents)) == 36
    names = [f"d{row:02d}" for row in range(36)]
    judged = {
        f"q{row:02d}": {names[(row + 7 * other) % 36]: 1 for other in range(1 + row % 3)}
        for row in range(36)
    }
    return RetrievalSet(names, pairs.documents, list(judged), pairs.queries, judged)


def evaluator_of(several: RetrievalSet, **options: Any) -> InformationRetrievalEvaluator:
    return InformationRetrievalEvaluator(
        dict(zip(several.query_ids, several.queries, strict=True)),
        dict(zip(several.document_ids, several.documents, strict=True)),
        {query: set(judged) for query, judged in several.qrels.items()},
        write_csv=False,
        **options,
    )


def test_scores_are_those_of_the_evaluator_of_sentence_transformers(
    model: SentenceTransformer, several: RetrievalSet
) -> None:
    """Nothing ties here, no query has more than 100 right documents (MAP would divide by another
    number), no id is both a query's and a document's.
    """
    theirs = evaluator_of(several, precision_recall_at_k=[5, 10])(model)
    names = ["ndcg@10", "map@100", "mrr@10", "recall@5", "recall@10", "p@10"]
    ours = cde.evaluate(model, several, names)
    scores = [list(one.values()) for one in rank(model, several).values()]
    assert all(len(set(np.float32(one))) == len(one) for one in scores)
    assert ours == pytest.approx(
        {name: theirs[f"cosine_{name}".replace("_p@", "_precision@")] for name in names}, abs=1e-6
    )
    assert 0.1 < ours["ndcg@10"] < 0.9


def test_its_evaluator_takes_our_encoders(several: RetrievalSet) -> None:
    encoder = cde.Surrogate()
    theirs = evaluator_of(several)(encoder)["cosine_ndcg@10"]
    assert theirs == pytest.approx(cde.evaluate(encoder, several)["ndcg@10"], abs=1e-6)


def test_its_prompts_stand_before_queries_and_documents(model: SentenceTransformer) -> None:
    encoder = as_encoder(model)
    texts = ["red boats", "scarlet ships, and more"]
    for role in ("query", "document"):
        encode = encoder.encode_queries if role == "query" else encoder.encode_documents
        spelt_out = model.encode([PROMPTS[role] + text for text in texts])
        np.testing.assert_allclose(encode(texts), spelt_out, atol=1e-6)
        assert encode([]).shape == (0, 384)


def test_it_is_compared_fused_and_indexed_as_other_systems_are(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    pairs = cde.load_pairs("pydocs/rich").sample(8)
    judged = {name: {name: 1} for name in pairs.ids}
    few = RetrievalSet(pairs.ids, pairs.documents, pairs.ids, pairs.queries, judged)
    alone = cde.evaluate(model, few)
    same = cde.compare(model, as_encoder(model), few)
    assert same.queries["first"].mean() == pytest.approx(alone["ndcg@10"])
    assert (same.queries["difference"] == 0).all()
    assert len(cde.Hybrid([model, cde.BM25()]).rank(few, 5)) == 8
    index = cde.Index(few, encoder=model, on_long="truncate")
    assert repr(index) == "Index(8 documents, 384 dimensions; SentenceTransformer)"
    assert cde.evaluate(index, few) == pytest.approx(alone, abs=1e-9)
    index.save(tmp_path / "index")
    again = cde.Index.load(tmp_path / "index", encoder=model)
    assert again.search("colours", depth=3).equals(index.search("colours", depth=3))
    with pytest.raises(ValueError, match="another encoder"):
        cde.Index.load(tmp_path / "index", encoder=SentenceTransformer(str(minilm_folder())))


class Counts:
    """Vectors of two counts, under whatever methods a test gives it."""

    def __init__(self, measure: str | None = None, methods: tuple[str, ...] = ("encode",)) -> None:
        self.similarity_fn_name = measure
        self.asked: list[str] = []
        for name in methods:
            setattr(self, name, lambda texts, name=name: self._count(texts, name))

    def _count(self, texts: list[str], name: str) -> NDArray[np.float64]:
        self.asked.append(name)
        return np.array([[text.count("a"), text.count("b")] for text in texts], float)


def test_the_model_s_similarity_says_whether_lengths_count() -> None:
    assert as_encoder(Counts()).encode_queries(["aab", "b"])[1].tolist() == [0, 1]
    cosine, dot = (
        as_encoder(Counts(name)).encode_documents(["aabbb"]) for name in ("cosine", "dot")
    )
    assert dot.tolist() == [[2, 3]]
    np.testing.assert_allclose(cosine, [[2 / 13**0.5, 3 / 13**0.5]], rtol=1e-6)
    with pytest.raises(ValueError, match="Counts.similarity_fn_name must be .*'euclidean'"):
        as_encoder(Counts("euclidean"))


def test_methods_of_their_own_for_queries_and_documents_are_used_where_there_are() -> None:
    model = Counts(methods=("encode", "encode_query", "encode_document"))
    as_encoder(model).encode_queries(["a"])
    as_encoder(model).encode_documents(["a"])
    assert model.asked == ["encode_query", "encode_document"]
    plain = Counts()
    as_encoder(plain).encode_documents(["a"])
    assert plain.asked == ["encode"]


def test_what_gives_no_dense_vectors_is_refused() -> None:
    def giving(result: Any) -> Any:
        return as_encoder(SimpleNamespace(encode=lambda texts: result))

    for result in ([[1.0]], [[[1.0]], [[1.0], [2.0]]], [{"a": 1.0}] * 2, np.ones((2, 3), np.int8)):
        with pytest.raises(
            TypeError, match="expected one dense vector of floats for each of 2 texts"
        ):
            giving(result).encode_queries(["a", "b"])


def test_an_encoder_without_its_corpus_says_how_it_is_bound() -> None:
    with pytest.raises(TypeError, match=r"is bound to no corpus: model.with_context\(documents\)"):
        as_encoder(SimpleNamespace(reads_context=True))
