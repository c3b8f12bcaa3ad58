"""mteb's evaluation of our encoders: the scores of `cde.evaluate`, contexts from the right texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb._evaluators.retrieval_metrics import calculate_retrieval_scores
from mteb.models import SearchEncoderWrapper
from mteb.types import PromptType
from sentence_transformers import SentenceTransformer

import cde
from cde.benchmark import BenchmarkEncoder, BenchmarkRanker, draw, task_texts
from cde.models import TASK_PREFIXES
from cde.retrieval import rank, rerank, score_queries
from cde.surrogate import minilm_folder
from cde_studies.benchmark.evaluation import (
    WRAPPER,
    Protocol,
    StudiedEncoder,
    benchmark_model,
    evaluate_tasks,
)
from cde_studies.benchmark.offline import offline_tasks
from cde_studies.sweeps import random_texts
from tests.tiny_encoders import bi_encoder, contextual

SMALL = {"share": 0.06}


def task(name: str) -> Any:
    found = offline_tasks([name], **SMALL)[0]
    found.load_data()
    return found


def as_set(of: Any, subset: str) -> cde.RetrievalSet:
    rows = of.dataset[subset]["test"]
    corpus, queries = rows["corpus"], rows["queries"]
    return cde.RetrievalSet(
        list(corpus["id"]),
        list(corpus["text"]),
        list(queries["id"]),
        list(queries["text"]),
        rows["relevant_docs"],
        name=subset,
    )


def where(of: Any) -> dict[str, Any]:
    """The split that a task's texts are of, as mteb gives it."""
    return {"task_metadata": of.metadata, "hf_split": "test", "hf_subset": "default"}


def searched(model: Any, of: Any, subset: str, ranked: Any = None) -> dict[str, dict[str, float]]:
    options = {**where(of), "hf_subset": subset, "encode_kwargs": {}, "num_proc": None}
    rows = of.dataset[subset]["test"]
    model.index(rows["corpus"], **options)
    found: dict[str, dict[str, float]] = model.search(
        rows["queries"], top_k=1000, top_ranked=ranked, **options
    )
    return found


def short_minilm() -> SentenceTransformer:
    model = SentenceTransformer(str(minilm_folder()), device="cpu")
    model.max_seq_length = 16
    return model


SYSTEMS = {
    "bi-encoder": (bi_encoder, None),
    "contextual": (contextual, "own"),
    "null context": (lambda: contextual(sequence_dropout=0.1), "null"),
    "BM25": (cde.BM25, None),
}


@pytest.mark.parametrize("named", SYSTEMS)
def test_mteb_gives_each_query_the_score_that_cde_gives(named: str) -> None:
    of, (make, context) = task("DocstringRetrieval"), SYSTEMS[named]
    system: Any = make()
    model = benchmark_model(system, "tiny", context=context, tasks=[of])
    for subset in of.hf_subsets:
        collection = as_set(of, subset)
        theirs = calculate_retrieval_scores(
            searched(model, of, subset), collection.qrels, [10]
        ).all_scores
        bound = system
        if context == "own":
            bound = system.with_context(system.embed_context(draw(collection.documents, 4, 0)))
        elif context == "null":
            bound = system.with_context(None)
        ours = score_queries(rank(bound, collection), collection)["ndcg@10"]
        assert {q: one["ndcg_cut_10"] for q, one in theirs.items()} == pytest.approx(
            ours.to_dict(), abs=1e-9
        )


@pytest.mark.parametrize("make", [bi_encoder, short_minilm])
def test_the_mean_that_mteb_reports_is_that_of_evaluate(make: Any, tmp_path: Path) -> None:
    """Of our encoders, and of a model of sentence-transformers as it is."""
    of, encoder = task("DocstringRetrieval"), make()
    rows = evaluate_tasks(encoder, "tiny", [of], folder=tmp_path).set_index("subset")["score"]
    for subset in of.hf_subsets:
        expected = cde.evaluate(encoder, as_set(of, subset))["ndcg@10"]
        assert rows[subset] == pytest.approx(expected, abs=5.1e-6)  # mteb rounds to five decimals


def test_mtebs_own_search_over_the_same_vectors_gives_the_same_scores() -> None:
    of = task("DocstringRetrieval")
    model = BenchmarkEncoder(contextual(), "tiny", tasks=[of])
    ours = searched(model, of, "polars")
    theirs = searched(SearchEncoderWrapper(model), of, "polars")
    for query, scores in ours.items():
        assert scores == pytest.approx(theirs[query], abs=1e-5)


def test_the_seed_decides_the_draw_and_with_it_the_scores() -> None:
    of = task("DocstringRetrieval")
    rows = evaluate_tasks(contextual(), "tiny", [of], ["own"], draws=3)
    again = evaluate_tasks(contextual(), "tiny", [of], ["own"], draws=3)
    assert rows["score"].tolist() == again["score"].tolist()
    models = [BenchmarkEncoder(contextual(), "tiny", seed=seed) for seed in (0, 1)]
    searches = [searched(model, of, "sympy") for model in models]
    assert models[0].drawn != models[1].drawn
    assert searches[0] != searches[1]


def test_reranking_scores_the_candidates_and_nothing_else() -> None:
    of = task("DocstringReranking")
    rows, encoder = of.dataset["default"]["test"], bi_encoder()
    model = BenchmarkEncoder(encoder, "tiny")
    found = searched(model, of, "default", rows["top_ranked"])
    assert {query: set(scores) for query, scores in found.items()} == {
        query: set(names) for query, names in rows["top_ranked"].items()
    }
    candidates = {q: dict.fromkeys(names, 0.0) for q, names in rows["top_ranked"].items()}
    expected = rerank(encoder, as_set(of, "default"), candidates)
    assert found == {query: pytest.approx(dict(scores)) for query, scores in expected.items()}
    nothing: dict[str, list[str]] = {query: [] for query in rows["queries"]["id"]}
    assert searched(model, of, "default", nothing) == {query: {} for query in nothing}


@pytest.mark.parametrize(
    ("protocol", "column"), [(Protocol(), None), (WRAPPER, "sentence1")], ids=["all", "first call"]
)
def test_where_texts_come_in_pairs_the_protocol_says_whether_both_are_drawn_from(
    protocol: Protocol, column: str | None
) -> None:
    of = task("DocstringSTS")
    rows = of.dataset["test"]
    allowed = set(rows["sentence1"]) | (set() if column else set(rows["sentence2"]))
    model = StudiedEncoder(contextual(context_size=12), "tiny", tasks=[of], protocol=protocol)
    mteb.evaluate(model, of, cache=None, co2_tracker=False, show_progress_bar=False)
    ((_, drawn),) = model.drawn.items()
    assert set(drawn) <= allowed
    assert column or not set(drawn) <= set(rows["sentence1"])


@pytest.mark.parametrize(("protocol", "split"), [(Protocol(), "test"), (WRAPPER, "train")])
def test_texts_to_train_and_to_test_a_classifier_on_share_one_context(
    protocol: Protocol, split: str
) -> None:
    of = offline_tasks(["DocstringPackageClassification"], share=0.1)[0]
    model = StudiedEncoder(contextual(), "tiny", tasks=[of], protocol=protocol)
    mteb.evaluate(model, of, cache=None, co2_tracker=False, show_progress_bar=False)
    assert list(model.drawn) == [("DocstringPackageClassification", "test", "default")]
    assert set(*model.drawn.values()) <= set(task_texts(of, split))
    other = "test" if split == "train" else "train"
    assert not set(*model.drawn.values()) & set(task_texts(of, other))


class Listener:
    """An encoder that keeps what it is asked to embed."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str | None]] = []

    def _embed(self, role: str, texts: Sequence[str], prefix: str | None) -> Any:
        self.heard.append((role, prefix))
        return np.eye(8, dtype=np.float32)[np.arange(len(texts)) % 8]

    def encode_queries(self, texts: Sequence[str], prefix: str | None = None) -> Any:
        return self._embed("queries", texts, prefix)

    def encode_documents(self, texts: Sequence[str], prefix: str | None = None) -> Any:
        return self._embed("documents", texts, prefix)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("DocstringRetrieval", {("queries", "search_query: "), ("documents", "search_document: ")}),
        (
            "DocstringReranking",
            {("queries", "classification: "), ("documents", "classification: ")},
        ),
        ("DocstringPackageClustering", {("documents", "clustering: ")}),
        ("DocstringSTS", {("documents", "classification: ")}),
    ],
)
def test_an_encoder_made_with_prefixes_gets_those_of_the_task(name: str, expected: Any) -> None:
    listener, of = Listener(), task(name)
    model = BenchmarkEncoder(listener, "listener", prefixes=True)
    if hasattr(of, "k_values"):
        searched(model, of, of.hf_subsets[0])
    else:
        texts = Dataset.from_dict({"text": ["one", "two"]})
        model.encode([texts[:]], **where(of))
    assert set(listener.heard) == expected


@pytest.mark.parametrize(
    ("kind", "prefix"), [("task", "clustering: "), ("document", "search_document: ")]
)
def test_the_context_has_the_prefix_of_the_task_or_of_documents(
    monkeypatch: pytest.MonkeyPatch, kind: Any, prefix: str
) -> None:
    of = task("DocstringPackageClustering")
    encoder = contextual(**TASK_PREFIXES["retrieval"])
    heard: list[str | None] = []
    embed = encoder.embed_context
    monkeypatch.setattr(
        encoder, "embed_context", lambda texts, prefix=None: (heard.append(prefix), embed(texts))[1]
    )
    model = StudiedEncoder(encoder, "tiny", tasks=[of], protocol=Protocol(prefix=kind))
    model.encode([{"text": ["one"]}], **where(of))
    assert heard == [prefix]


def test_queries_are_told_from_documents() -> None:
    encoder, of = contextual(query_prefix="q: "), task("DocstringSTS")
    model = StudiedEncoder(encoder, "tiny", context="random", tasks=[of])
    asked = model.encode([{"text": ["boat"]}], prompt_type=PromptType.query, **where(of))
    told = model.encode([{"text": ["boat"]}], **where(of))
    bound = encoder.with_context(encoder.embed_context(random_texts(4, 0)))
    np.testing.assert_allclose(asked, bound.encode_queries(["boat"]), atol=1e-6)
    np.testing.assert_allclose(told, bound.encode_documents(["boat"]), atol=1e-6)


def test_the_other_context_is_the_next_tasks() -> None:
    tasks = [task("DocstringSTS"), task("DocstringReranking")]
    model = StudiedEncoder(contextual(), "tiny", context="other", tasks=tasks)
    model.encode([{"text": ["boat"]}], **where(tasks[0]))
    assert set(*model.drawn.values()) <= set(task_texts(tasks[1], "test"))


def test_results_are_read_back_for_the_same_weights_and_data_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    encode = BenchmarkEncoder._bind
    monkeypatch.setattr(
        BenchmarkEncoder, "_bind", lambda self, *a: (calls.append(1), encode(self, *a))[1]
    )

    def run(seed: int = 0, share: float = 0.08) -> tuple[list[float], bool]:
        calls.clear()
        tasks = offline_tasks(["DocstringSTS"], share=share)
        rows = evaluate_tasks(contextual(seed=seed), "tiny", tasks, ["own"], 2, folder=tmp_path)
        return rows["score"].tolist(), bool(calls)

    first, computed = run()
    assert computed
    assert run() == (first, False)
    other_weights, computed = run(seed=1)
    assert computed and other_weights != first
    other_data, computed = run(share=0.1)
    assert computed and other_data != first


class Mine:
    """An encoder of a user's, who trains it on: other vectors, and nothing that tells them apart."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def encode_documents(self, texts: Sequence[str]) -> Any:
        generator = np.random.default_rng([self.seed, len(texts)])
        return generator.normal(size=(len(texts), 8)).astype(np.float32)

    encode_queries = encode_documents


def test_results_of_an_encoder_without_a_fingerprint_are_never_read_back(tmp_path: Path) -> None:
    tasks = offline_tasks(["DocstringRetrieval"], share=0.05)
    kept, truth = (
        [evaluate_tasks(Mine(seed), "mine", tasks, folder=at)["score"].tolist() for seed in (0, 1)]
        for at in (tmp_path, None)
    )
    assert kept == truth and truth[0] != truth[1]


@pytest.mark.parametrize("error", [KeyError("mine"), FileNotFoundError("mine"), ValueError("mine")])
def test_an_error_of_a_task_s_own_code_is_shown_as_it_is(error: Exception) -> None:
    known = offline_tasks(["DocstringRetrieval"], share=0.05)[0]

    class Own(type(known)):  # type: ignore[misc]
        metadata = known.metadata.model_copy(
            update={"dataset": {"path": "own/data", "revision": "1"}}
        )
        data_loaded = False

        def load_data(self, **_: Any) -> None:
            raise error

    with pytest.raises(type(error), match="mine"):
        evaluate_tasks(cde.BM25(), "bm25", [Own()])


def test_draws_are_repeated_where_something_is_drawn_and_nowhere_else() -> None:
    of = [task("DocstringSTS")]

    def evaluations(encoder: Any, contexts: list[str | None]) -> list[tuple[str, int]]:
        rows = evaluate_tasks(encoder, "tiny", of, contexts, draws=2)
        return list(zip(rows["context"], rows["draw"], strict=True))

    assert evaluations(contextual(), [None]) == [("own", 0), ("own", 1)]
    assert evaluations(contextual(sequence_dropout=0.1), ["null"]) == [("null", 0)]
    assert evaluations(bi_encoder(), [None]) == evaluations(bi_encoder(), ["none"]) == [("none", 0)]
    with pytest.raises(ValueError, match="takes own, other, random, null"):
        evaluations(contextual(), ["none"])


def test_a_ranker_is_evaluated_where_there_is_something_to_rank() -> None:
    tasks = [task("DocstringSTS"), task("DocstringReranking")]
    assert evaluate_tasks(cde.BM25(), "bm25", tasks)["task"].tolist() == ["DocstringReranking"]
    assert not isinstance(BenchmarkRanker(cde.BM25(), "bm25"), mteb.models.EncoderProtocol)
