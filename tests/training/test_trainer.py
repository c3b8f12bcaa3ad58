"""Training: resuming, several processes, hard negatives, the filter, and failure in words."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_encoders import backbone_folder, static_embeddings
from torch import Tensor

import cde
from cde.batching.clustering import cluster_pairs, cluster_vectors
from cde.batching.negatives import mine_hard_negatives
from cde.data import Pairs
from cde.training import Preparation, TrainConfig, Trainer, build_model
from cde.training import trainer as trainer_module
from cde.training.loss import ContrastiveLoss, contrastive_loss
from cde.training.preparation import fixed_context
from cde.training.processes import Processes
from cde.training.runs import run_key, train
from cde_studies.collections import pydocs

SMALL: dict[str, Any] = {
    "layers": 1, "batch_size": 8, "context_size": 5, "steps": 6, "warmup_steps": 2,
    "learning_rate": 1e-3, "query_tokens": 8, "document_tokens": 12, "context_tokens": 8,
    "cluster_size": 16, "surrogate_tokens": 8, "precision": "float32", "chunk_tokens": 60,
    "uncached_tokens": 0, "checkpoint_every": 2,
}  # fmt: skip
#: without vectors of a surrogate
RANDOM: dict[str, Any] = {**SMALL, "batches": "random", "filter_epsilon": None}
BI: dict[str, Any] = {**RANDOM, "architecture": "bi-encoder"}


@pytest.fixture(scope="module", autouse=True)
def all_start_small(small_start: str) -> Iterator[None]:
    """The laws of training are those of any encoder."""
    with pytest.MonkeyPatch.context() as patch:
        for settings in (SMALL, RANDOM, BI):
            patch.setitem(settings, "start", small_start)
        yield


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    return cde.load_pairs("pydocs/rich").sample(64)


def prepare(config: TrainConfig, pairs: Pairs, **options: Any) -> Preparation:
    return Preparation(config, pairs, build_model(config).tokenizer, ("", ""), **options)


def without_times(metrics: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in metrics]


def test_a_fixed_context_is_the_same_in_every_batch_whatever_the_batch_holds(pairs: Pairs) -> None:
    config = TrainConfig(context_from="fixed", **SMALL)
    prepared = prepare(config, pairs)
    first, second = (prepared.batch(np.arange(start, start + 8)) for start in (0, 40))
    rows = fixed_context(config, len(pairs))
    expected = [prepared._document(row, config.context_tokens).tolist() for row in rows]
    for batch in (first, second):
        assert [ids.tolist() for ids in batch.texts.context] == expected
    drawn = {
        tuple(fixed_context(dataclasses.replace(config, seed=seed), 64)) for seed in (0, 0, 1, 2)
    }
    assert len(drawn) == 3, "another seed has another context"


def test_arms_of_one_seed_share_their_clusters_and_nothing_else_does(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clustering is the slow part of a short run on a GPU; labels of other inputs would be wrong."""
    monkeypatch.setenv("CDE_CACHE", str(tmp_path))
    clustered: list[int] = []

    def counted(*arguments: Any, **settings: Any) -> Any:
        clustered.append(settings["seed"])
        return cluster_pairs(*arguments, **settings)

    monkeypatch.setattr("cde.training.preparation.cluster_pairs", counted)

    few = pairs.select(np.arange(32))

    def labels(some: Pairs = few, **changes: Any) -> list[int]:
        config = TrainConfig(batches="cluster", **{**SMALL, **changes})
        return prepare(config, some).clusters.tolist()

    first = labels()
    assert labels(architecture="bi-encoder", learning_rate=1e-4) == first and len(clustered) == 1
    elsewhere = dataclasses.replace(few, domains=[*["other"] * 16, *few.domains[16:]])
    for number, other in enumerate(
        ({"seed": 1}, {"cluster_size": 8}, {"surrogate_tokens": 6}, {"some": elsewhere}), start=2
    ):
        labels(**other)
        assert len(clustered) == number, other


@pytest.mark.parametrize("batches", ["random", "domain", "cluster"])
def test_a_context_apart_has_no_document_of_the_batch_and_none_of_another_source(
    batches: str,
) -> None:
    some = pydocs.load_pairs(["rich", "tornado"])
    # some documents stand under two queries: the text counts, not the pair
    twice = dataclasses.replace(some, documents=[*some.documents[:-3], *some.documents[:3]])
    config = TrainConfig(context_from="apart", batches=batches, filter_epsilon=None, **SMALL)
    prepared = prepare(config, twice)
    domains, documents = np.asarray(twice.domains), np.asarray(twice.documents, dtype=object)
    for _ in range(60):
        rows = next(prepared.sampler)
        drawn = prepared._context(rows)
        assert len(set(drawn)) == config.context_size
        assert not set(documents[rows]) & set(documents[drawn])
        if batches != "random":
            assert set(domains[drawn]) <= set(domains[rows])


def test_a_context_apart_prefers_the_batch_s_own_clusters(pairs: Pairs) -> None:
    config = TrainConfig(context_from="apart", **{**SMALL, "cluster_size": 32})
    prepared = prepare(config, pairs)
    drawn = [(rows, prepared._context(rows)) for rows in (next(prepared.sampler) for _ in range(8))]
    labels = prepared.clusters
    enough = [
        (rows, found)
        for rows, found in drawn
        if (np.isin(labels, labels[rows]).sum() - len(rows)) >= 2 * config.context_size
    ]
    assert enough, "a cluster is larger than batch and context"
    assert all(set(labels[found]) <= set(labels[rows]) for rows, found in enough)


def test_a_source_that_is_one_batch_leaves_no_context_apart(pairs: Pairs) -> None:
    few = pairs.select(np.arange(8))
    config = TrainConfig(context_from="apart", batches="domain", filter_epsilon=None, **SMALL)
    with pytest.raises(ValueError, match="a batch of 8 holds all documents of 'rich'"):
        prepare(config, few)
    prepared = prepare(dataclasses.replace(config, batches="random"), few)
    with pytest.raises(ValueError, match="all documents of 'rich' stand in one batch of 8"):
        next(prepared.batches())


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_of_the_batches_has_no_context(share: float, pairs: Pairs) -> None:
    config = TrainConfig(null_share=share, **RANDOM)
    prepared = prepare(config, pairs)
    generator = np.random.default_rng(0)
    drawn = [generator.choice(len(pairs), 8, replace=False) for _ in range(300)]
    without = np.mean([not prepared.batch(rows).texts.context for rows in drawn])
    assert without == pytest.approx(share, abs=0.08 if 0 < share < 1 else 0)


@pytest.mark.parametrize("uncached_tokens", [0, 10**6])
@pytest.mark.slow
def test_training_the_reader_alone_leaves_the_encoder_without_context_as_it_was(
    uncached_tokens: int, pairs: Pairs
) -> None:
    settings = {**SMALL, "first_stage_layers": 0, "uncached_tokens": uncached_tokens}
    model = {"tie_token_embeddings": True, "sequence_dropout": 0.0}
    config = TrainConfig(attention="gated", trains="reader", model=model, **settings)
    before = build_model(config).eval()
    model, _ = Trainer(config, pairs).run()
    changed = {
        name
        for (name, one), other in zip(model.named_parameters(), before.parameters(), strict=True)
        if not torch.equal(one, other)
    }
    assert changed and all(name.startswith("second_stage.reader.") for name in changed)
    texts = list(pairs.documents[:5])
    null, untrained = (one.with_context(None).encode_documents(texts) for one in (model, before))
    np.testing.assert_array_equal(null, untrained)
    assert abs(model.with_context(texts).encode_documents(texts) - null).max() > 1e-4


def interrupt(trainer: Trainer, after: int) -> None:
    """Run, and be interrupted after so many steps."""
    take, taken = trainer._take_step, iter(range(after))

    def fail(batch: Any, step: int) -> dict[str, float]:
        if next(taken, None) is None:
            raise KeyboardInterrupt
        return take(batch, step)

    trainer._take_step = fail  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        trainer.run()


def assert_same_weights(model: Any, expected: Any) -> None:
    for name, tensor in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.parametrize("architecture", ["bi-encoder", "contextual"])
@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_numbers_of_an_uninterrupted_one(
    architecture: str, pairs: Pairs, tmp_path: Path
) -> None:
    config = TrainConfig(
        architecture=architecture, hard_negatives=1, model={"dropout": 0.1}, **SMALL
    )
    model, expected = Trainer(config, pairs).run()
    interrupt(Trainer(config, pairs, tmp_path), after=5)
    resumed = Trainer(config, pairs, tmp_path)
    assert len(resumed.loop.metrics) == 4
    again, metrics = resumed.run()
    assert without_times(metrics) == without_times(expected)
    assert_same_weights(again, model)


def test_a_folder_with_another_run_is_refused(pairs: Pairs, tmp_path: Path) -> None:
    config = TrainConfig(**BI)
    Trainer(config, pairs, tmp_path).run()
    with pytest.raises(ValueError, match="other settings"):
        Trainer(dataclasses.replace(config, seed=1), pairs, tmp_path)
    others = cde.load_pairs("pydocs/scipy").sample(64)
    with pytest.raises(ValueError, match="other settings"):
        Trainer(config, others, tmp_path)


def test_gradient_lengths_are_those_of_the_weights_and_the_first_stage_has_its_part(
    pairs: Pairs,
) -> None:
    config = TrainConfig(**SMALL)
    trainer = Trainer(config, pairs)
    row = trainer._take_step(next(trainer.prepared.batches()), 0)
    squares = {
        name: float((weight.grad.double() ** 2).sum())
        for name, weight in trainer.model.named_parameters()
        if weight.grad is not None
    }
    first = sum(value for name, value in squares.items() if name.startswith("first_stage"))
    assert row["gradient_norm"] == pytest.approx(sum(squares.values()) ** 0.5, rel=1e-4)
    assert row["first_stage_gradient_norm"] == pytest.approx(first**0.5, rel=1e-4)
    # what no batch reads has no gradient, and a bi-encoder no first stage
    unread = Trainer(dataclasses.replace(config, null_share=1.0), pairs)
    row = unread._take_step(next(unread.prepared.batches()), 0)
    assert row["first_stage_gradient_norm"] == 0 < row["gradient_norm"]
    plain = Trainer(dataclasses.replace(config, architecture="bi-encoder"), pairs)
    assert "first_stage_gradient_norm" not in plain._take_step(next(plain.prepared.batches()), 0)


def test_a_loss_that_is_no_number_stops_the_run_and_says_where(
    pairs: Pairs, tmp_path: Path
) -> None:
    config = TrainConfig(**BI)
    model = build_model(config)
    running = Trainer(config, pairs, tmp_path, model=model)
    with torch.no_grad():
        next(model.parameters())[:] = float("nan")
    with pytest.raises(
        FloatingPointError, match=r"step 1: the loss is nan, at learning rate 0.00e\+00. Lower"
    ):
        running.run()


def rooted(queries: Any, documents: Any, temperature: float, **others: Any) -> ContrastiveLoss:
    """A loss whose gradient is not finite where it is."""
    found = contrastive_loss(queries, documents, temperature, **others)
    return ContrastiveLoss(
        found.loss + (0 * queries).pow(2).sum().sqrt(), found.accuracy, found.masked
    )


def test_a_gradient_that_is_no_number_changes_no_weight(pairs: Pairs) -> None:
    running = Trainer(TrainConfig(**BI), pairs, loss=rooted)
    before = copy.deepcopy(running.model)
    with pytest.raises(FloatingPointError, match="step 1: the loss is finite and its gradient is"):
        running.run()
    assert_same_weights(running.model, before)


def product(queries: Any, documents: Any, temperature: float, **others: Any) -> Any:
    """A loss that is a number alone."""
    return (queries @ documents.T).mean() / temperature


def test_what_cannot_be_trained_with_is_told(pairs: Pairs, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="what the loss gives must be a ContrastiveLoss"):
        Trainer(TrainConfig(**BI), pairs, str(tmp_path), loss=product).run()
    tested = TrainConfig(**{**BI, "evaluate_every": 1})
    with pytest.raises(ValueError, match="a test on the way gives loss, as training does"):
        Trainer(tested, pairs, evaluate=lambda _: {"loss": 1.0}).run()
    one = dataclasses.replace(pairs, documents=["the same"] * len(pairs))
    with pytest.raises(ValueError, match="pairs have one document, 'the same'"):
        Trainer(TrainConfig(**BI), one)


class Alike(Processes):
    """Processes that agree without a word."""

    def agreed(self, own: Any) -> Any:
        return own

    of_first = agreed


def test_the_context_is_of_the_batch_and_the_same_in_every_process(pairs: Pairs) -> None:
    config = TrainConfig(**SMALL)
    prepared = [prepare(config, pairs, processes=Alike(rank, 2)) for rank in (0, 1)]
    first, second = (next(one.batches()) for one in prepared)
    assert first.rows.tolist() == second.rows.tolist()
    assert [ids.tolist() for ids in first.texts.context] == [
        ids.tolist() for ids in second.texts.context
    ]
    documents = [prepared[0]._document(row, config.context_tokens).tolist() for row in first.rows]
    assert all(ids.tolist() in documents for ids in first.texts.context)
    whole = next(prepare(config, pairs).batches())
    halves = [ids.tolist() for part in (first, second) for ids in part.texts.texts[:4]]
    assert halves == [ids.tolist() for ids in whole.texts.texts[:8]]


def test_texts_are_cut_where_the_config_says_and_end_with_their_mark(pairs: Pairs) -> None:
    config = TrainConfig(**RANDOM)
    tokenizer = build_model(config).tokenizer
    batch = next(prepare(config, pairs).batches())
    queries, documents = batch.texts.texts[:8], batch.texts.texts[8:]
    assert max(map(len, queries)) <= 8 < max(map(len, documents)) <= 12
    assert max(map(len, batch.texts.context)) <= 8
    for ids in (*batch.texts.texts, *batch.texts.context):
        assert ids[0] == tokenizer.cls_token_id and ids[-1] == tokenizer.sep_token_id


def test_equal_documents_are_no_negatives_of_each_other() -> None:
    texts = Pairs(["a", "b", "c", "d"], ["same", "same", "other", "last"], ["x"] * 4, list("1234"))
    config = TrainConfig(**{**RANDOM, "batch_size": 4, "context_size": 2})
    prepared = prepare(config, texts)
    assert np.argwhere(prepared.left_out(np.arange(4))).tolist() == [[0, 1], [1, 0]]
    prepared = prepare(config, texts, hard_negatives=np.array([[1], [2], [0], [2]]))
    # a column for each hard negative follows: two of them are the document of rows 0 and 1
    expected = [[0, 1], [0, 4], [0, 6], [1, 0], [1, 4], [1, 6], [2, 5], [2, 7]]
    assert np.argwhere(prepared.left_out(np.arange(4))).tolist() == expected
    # columns are those of the batch, whatever its rows
    assert np.argwhere(prepared.left_out(np.array([2, 0]))).tolist() == [[1, 2], [1, 3]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batches": "clusters"}, "batches must be one of random, domain, cluster"),
        ({"batch_size": 4, "context_size": 5}, "context_size 5 is more than batch_size 4"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"filter_epsilon": 0.0, "filter_threshold": 0.5}, "set one"),
        ({"contextsize": 3}, r"there is no setting contextsize \(context_size\?\)"),
        ({"model": {"contxt": 3}}, r"model: there is no setting contxt \(context_size\?\)"),
        ({"model": {"attention": "full"}}, "set attention beside model, not in it"),
        ({"trains": "reader"}, "trains='reader' needs a contextual encoder with attention='gated'"),
        (
            {"trains": "reader", "attention": "gated", "null_share": 0.1},
            "null_share must be 0; it is 0.1",
        ),
        (
            {"null_share": 0.1, "model": {"null_token": False, "sequence_dropout": 0.0}},
            "null_share 0.1 needs the null token",
        ),
        ({"symmetric": "false"}, "symmetric must be true or false; it is 'false'"),
        ({"query_tokens": 1}, "query_tokens must be 2 or more"),  # the tokenizer then cuts nothing
        ({"filter_epsilon": float("nan")}, "filter_epsilon must be a finite number; it is nan"),
        ({"model": {"first_stage_mlp": "false"}}, "model: first_stage_mlp must be true or false"),
    ],
)
def test_settings_are_checked_when_they_are_written_down(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(**{**SMALL, **changes})


def test_what_an_encoder_cannot_read_is_refused_before_the_first_step(
    pairs: Pairs, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="positions: .* can be that many; the largest is 9000"):
        Trainer(TrainConfig(**{**RANDOM, "context_tokens": 9000}), pairs)
    build_model(TrainConfig(**SMALL)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has a context of 5 documents: context_size can be 5 or"):
        build_model(TrainConfig(**{**SMALL, "start": str(tmp_path), "context_size": 6}))
    build_model(TrainConfig(**{**SMALL, "start": str(tmp_path), "context_size": 3}))


def test_settings_come_back_from_json_and_later_ones_leave_older_runs_their_address() -> None:
    told = TrainConfig().to_dict()
    assert "null_share" not in told and "context_from" not in told
    for config in (TrainConfig(**SMALL), TrainConfig(null_share=0.1, context_from="fixed")):
        assert TrainConfig(**json.loads(json.dumps(config.to_dict()))) == config


def test_the_hard_negatives_of_a_run_are_documents_near_to_its_queries(pairs: Pairs) -> None:
    config = TrainConfig(hard_negatives=1, **RANDOM)
    prepared = prepare(config, pairs)
    assert prepared.hard is not None
    rows, found = np.arange(len(pairs)), prepared.hard[:, 0]
    queries, documents = prepared.vectors

    def share_of_nearest(scores: np.ndarray) -> float:
        # what scores as high as the labelled document may answer as well
        true = np.where(scores < np.diag(scores)[:, None] - 1e-6, scores, -2)
        some = true.max(axis=1) > -2
        return float((true[rows, found] > true.max(axis=1) - 1e-6)[some].mean())

    assert share_of_nearest(queries @ documents.T) > 0.95
    assert share_of_nearest(documents @ queries.T) < 0.8, "the test can tell them apart"


def test_dropout_falls_otherwise_in_every_step_process_and_seed(pairs: Pairs) -> None:
    """Weights that stay and one batch: losses differ by what falls out alone."""
    settings = {**BI, "learning_rate": 1e-30, "uncached_tokens": 10_000}
    config = TrainConfig(model={"dropout": 0.3}, **settings)
    model = build_model(config)
    batch = next(prepare(config, pairs).batches())

    def loss(step: int, rank: int = 0, seed: int = 0) -> float:
        one = Trainer(dataclasses.replace(config, seed=seed), pairs, model=model)
        one.processes = Processes(rank)
        return one._take_step(batch, step)["loss"]

    drawn = [loss(0), loss(1), loss(2), loss(0, rank=1), loss(1, rank=1), loss(0, seed=1)]
    assert len({round(one, 5) for one in drawn}) == len(drawn)
    assert loss(1) == pytest.approx(drawn[1], abs=1e-6)


def test_the_loss_of_a_step_is_that_of_its_settings(pairs: Pairs) -> None:
    options = {"temperature": 0.1, "symmetric": True, "hardness": 3.0}
    config = TrainConfig(hard_negatives=1, **{**BI, **options, "filter_epsilon": 0.0})
    trainer = Trainer(config, pairs)
    batch = next(trainer.prepared.batches())
    rows = [torch.from_numpy(ids).long()[None] for ids in batch.texts.texts]
    with torch.no_grad():
        vectors = torch.cat([trainer.model(row) for row in rows])
    assert batch.left_out.any() and len(vectors) == 24
    queries, documents, hard = vectors.split(8)
    masked = torch.from_numpy(batch.left_out)
    expected = contrastive_loss(queries, torch.cat([documents, hard]), masked=masked, **options)
    row = trainer._take_step(batch, 0)
    assert row["loss"] == pytest.approx(float(expected.loss), rel=1e-4)
    assert row["accuracy"] == expected.accuracy and row["masked"] == expected.masked
    # every setting counts
    for name, other in (("temperature", 0.02), ("symmetric", False), ("hardness", 0.0)):
        changed = contrastive_loss(
            queries, torch.cat([documents, hard]), masked=masked, **{**options, name: other}
        )
        assert abs(float(changed.loss - expected.loss)) > 0.01, name


def test_a_step_follows_the_gradient_of_its_own_batch(pairs: Pairs) -> None:
    """What a step before has left behind does not count."""
    config = TrainConfig(**{**BI, "learning_rate": 1e-30})
    model = build_model(config)
    second = Trainer(config, pairs, model=model)
    batches = second.prepared.batches()
    first, then = next(batches), next(batches)
    alone = Trainer(config, pairs, model=model)._take_step(then, 1)
    before = second._take_step(first, 0)
    after = second._take_step(then, 1)
    assert after["gradient_norm"] == pytest.approx(alone["gradient_norm"], rel=1e-5)
    assert before["gradient_norm"] != pytest.approx(alone["gradient_norm"], rel=1e-3)


def test_weights_decay_at_their_rate(pairs: Pairs) -> None:
    """Decoupled from the gradient: a share of the rate and of the weight (AdamW)."""
    settings = {**BI, "learning_rate": 0.01, "warmup_steps": 0, "steps": 2}
    ended = {}
    for decay in (0.0, 0.1):
        config = TrainConfig(weight_decay=decay, **settings)
        trainer = Trainer(config, pairs)
        before = {name: one.detach().clone() for name, one in trainer.model.named_parameters()}
        trainer._take_step(next(trainer.prepared.batches()), 0)
        ended[decay] = {name: one.detach() for name, one in trainer.model.named_parameters()}
    trained = [name for name, one in before.items() if not torch.equal(ended[0.0][name], one)]
    assert len(trained) > 5
    for name in trained:
        expected = ended[0.0][name] - 0.01 * 0.1 * before[name]
        torch.testing.assert_close(ended[0.1][name], expected, rtol=0, atol=1e-6)


def test_the_margin_of_the_filter_holds_for_hard_negatives_and_batches(pairs: Pairs) -> None:
    config = TrainConfig(batches="random", filter_epsilon=-0.15, hard_negatives=1, **SMALL)
    prepared = prepare(config, pairs)
    queries, documents = prepared.vectors
    assert prepared.hard is not None
    expected, without = (
        mine_hard_negatives(queries, documents, 1, pairs.domains, epsilon)
        for epsilon in (-0.15, 0.0)
    )
    assert prepared.hard.tolist() == expected.tolist() != without.tolist()
    rows = np.arange(0, 64, 2)
    columns = np.concatenate([rows, prepared.hard[rows, 0]])
    same = prepared.groups[rows][:, None] == prepared.groups[columns]
    np.fill_diagonal(same, False)
    filtered, looser = (
        cde.false_negatives(queries[rows], documents[columns], epsilon) | same
        for epsilon in (-0.15, 0.0)
    )
    np.testing.assert_array_equal(prepared.left_out(rows), filtered)
    assert filtered.sum() > looser.sum()


def test_a_second_surrogate_judges_and_the_first_still_clusters_and_mines(
    pairs: Pairs, tmp_path: Path
) -> None:
    """As in the paper, whose clusters are by GTR and whose filter is by nomic-embed."""
    folder = static_embeddings(tmp_path / "static")
    config = TrainConfig(batches="cluster", hard_negatives=1, **SMALL)
    one, two, other = (
        prepare(dataclasses.replace(config, **changes), pairs)
        for changes in ({}, {"filter_surrogate": folder}, {"surrogate": folder})
    )
    assert one.hard is not None and two.hard is not None and other.hard is not None
    np.testing.assert_array_equal(two.clusters, one.clusters)
    np.testing.assert_array_equal(two.hard, one.hard)
    assert (other.clusters != one.clusters).any() and (other.hard != one.hard).any()
    rows = np.arange(0, 64, 2)
    columns = np.concatenate([rows, two.hard[rows, 0]])
    judge = cde.Surrogate(folder, max_tokens=config.surrogate_tokens)
    queries = judge.encode_queries(pairs.queries)
    documents = judge.encode_documents(pairs.documents)
    same = two.groups[rows][:, None] == two.groups[columns]
    np.fill_diagonal(same, False)
    expected = cde.false_negatives(queries[rows], documents[columns]) | same
    np.testing.assert_array_equal(two.left_out(rows), expected)
    assert (one.left_out(rows) != expected).any()


def test_hard_negatives_of_a_run_are_of_the_query_s_own_domain(pairs: Pairs) -> None:
    two = dataclasses.replace(pairs, domains=[("a", "b")[row % 2] for row in range(len(pairs))])
    config = TrainConfig(hard_negatives=2, **RANDOM)
    prepared = prepare(config, two)
    assert prepared.hard is not None
    assert (prepared.hard % 2 == np.arange(len(pairs))[:, None] % 2).all()


@pytest.mark.parametrize("batches", ["random", "cluster"])
def test_another_seed_trains_on_other_batches(batches: str, pairs: Pairs) -> None:
    """And the same rows have another context."""
    drawn, contexts = [], []
    for seed in (0, 0, 1):
        config = TrainConfig(batches=batches, filter_epsilon=None, seed=seed, **SMALL)
        prepared = prepare(config, pairs)
        contexts.append(prepared._context(np.arange(8)).tolist())
        batches_of_seed = prepared.batches()
        drawn.append([next(batches_of_seed).rows.tolist() for _ in range(3)])
    for of_seeds in (drawn, contexts):
        assert of_seeds[0] == of_seeds[1] != of_seeds[2]


# --- the store


def test_a_run_is_done_once_and_read_back(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig(**{**BI, "seed": 11})
    first = train(config, pairs)
    monkeypatch.setattr(trainer_module.Trainer, "run", lambda self: pytest.fail("trained again"))
    second = train(config, pairs)
    assert second.key == first.key and second.metrics.equals(first.metrics)
    assert second.provenance == first.provenance and first.provenance["seed"] == 11
    assert not (first.folder / "checkpoint.pt").exists()
    np.testing.assert_array_equal(
        first.model().encode_documents(["red boats"]),
        second.model().encode_documents(["red boats"]),
    )


def test_what_changes_a_run_changes_its_key(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(**SMALL)
    keys = [
        run_key(config, pairs),
        run_key(config, pairs.sample(32)),
        run_key(config, pairs, np.zeros((64, 1), np.int64)),
        run_key(config, pairs, plan=np.zeros((1, 8), np.int64)),
        run_key(config, pairs, plan=np.ones((1, 8), np.int64)),
    ]
    tested = dataclasses.replace(config, evaluate_every=2)
    toys = [cde.RetrievalSet.from_pairs(pairs, count) for count in (3, 4)]
    keys += [run_key(tested, pairs, tests=tests) for tests in ((), toys[:1], toys)]
    monkeypatch.setattr("cde.training.runs.PROCEDURE", 0)
    keys.append(run_key(config, pairs))
    for precision in ("float32", "bfloat16"):
        monkeypatch.setenv("CDE_PRECISION", precision)
        keys.append(run_key(dataclasses.replace(config, precision="auto"), pairs))
    assert len(set(keys)) == len(keys)


#: another value of each setting that can change alone
CHANGED: dict[str, Any] = {
    "data": "pydocs/rich", "pairs": 10_000, "architecture": "bi-encoder", "start": "elsewhere/model",
    "layers": 2, "first_stage_layers": 2, "model": {"dropout": 0.1}, "attention": "gated",
    "context_size": 2, "context_from": "fixed", "vectors_per_document": 2, "null_share": 0.5,
    "batches": "random", "cluster_size": 9, "cluster_by": "documents", "order": "random",
    "surrogate": "another", "surrogate_tokens": 9, "filter_surrogate": "another",
    "filter_epsilon": 0.1, "hard_negatives": 1, "batch_size": 6, "chunk_tokens": 50,
    "uncached_tokens": 50, "share_negatives": False, "temperature": 0.5, "symmetric": True,
    "hardness": 1.0, "learning_rate": 0.5, "warmup_steps": 3, "final_rate": 0.5,
    "clip_gradients": 0.5, "weight_decay": 0.5, "steps": 50, "query_tokens": 9,
    "document_tokens": 11, "context_tokens": 9, "precision": "bfloat16", "checkpoint_every": 3,
    "evaluate_every": 3, "seed": 5,
}  # fmt: skip
#: and of those that need another one beside them
CHANGED_TOGETHER: dict[str, dict[str, Any]] = {
    "trains": {"trains": "reader", "attention": "gated"},
    "filter_threshold": {"filter_threshold": 0.1, "filter_epsilon": None},
}


def test_each_setting_moves_the_key_of_a_run(pairs: Pairs) -> None:
    config = TrainConfig(**SMALL)
    changed = {name: {name: value} for name, value in CHANGED.items()} | CHANGED_TOGETHER
    assert set(changed) == {field.name for field in dataclasses.fields(TrainConfig)}
    keys = {run_key(dataclasses.replace(config, **changes), pairs) for changes in changed.values()}
    assert len(keys | {run_key(config, pairs)}) == len(changed) + 1


@pytest.mark.parametrize(
    ("setting", "sharded"),
    [("start", False), ("start", True), ("surrogate", False), ("filter_surrogate", False)],
)
def test_each_file_of_the_folder_of_a_model_that_a_run_uses_moves_its_key(
    setting: str, sharded: bool, pairs: Pairs, tmp_path: Path
) -> None:
    folder = backbone_folder(tmp_path, "bert")
    if sharded:
        (folder / "model.safetensors").rename(folder / "part-1.safetensors")
        weight_map = {"embeddings.word_embeddings.weight": "part-1.safetensors"}
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": weight_map}))
    config = TrainConfig(**{**SMALL, setting: str(folder)})
    keys, files = {run_key(config, pairs)}, sorted(folder.iterdir())
    for path in files:
        path.write_bytes(path.read_bytes() + b" ")
        keys.add(run_key(config, pairs))
    assert len(keys) == len(files) + 1 and len(files) >= 4
    (folder / "vocab.txt").write_text("a tokenizer of another kind")
    assert run_key(config, pairs) not in keys


def test_tables_of_positions_are_in_the_key_by_their_numbers(pairs: Pairs) -> None:
    """Whatever they are kept in: the bytes of one table of int64 are those of two of int32."""
    config = TrainConfig(**SMALL)
    for name, rows in (("hard_negatives", 64), ("plan", 6)):
        table = np.arange(rows)[:, None] % 64
        narrow, pair = table.astype(np.int32), table.astype(np.int64).view(np.int32)
        keys = [run_key(config, pairs, **{name: one}) for one in (table, narrow, pair)]
        assert keys[0] == keys[1] != keys[2]


def numbers_on_the_way(model: Any, tests: Any, depth: int = 1) -> dict[str, float]:
    """Numbers of a test on the way, by a setting."""
    return {"depth": float(depth)}


def test_settings_of_a_test_on_the_way_are_in_the_key(pairs: Pairs) -> None:
    config = TrainConfig(evaluate_every=2, **SMALL)
    given: dict[str, Any] = {"tests": [cde.RetrievalSet.from_pairs(pairs, 3)]}
    tested = [numbers_on_the_way, *(partial(numbers_on_the_way, depth=depth) for depth in (2, 3))]
    keys = {run_key(config, pairs, evaluate_on_the_way=one, **given) for one in tested}
    assert len(keys | {run_key(config, pairs, **given)}) == 4
    depth = 5

    def hidden(model: Any, tests: Any) -> dict[str, float]:
        return {"depth": float(depth)}

    with pytest.raises(ValueError, match="evaluate_on_the_way uses variables"):
        run_key(config, pairs, evaluate_on_the_way=hidden, **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hard_negatives": [[0.5]] * 64}, "hard_negatives must be a table of positions"),
        ({"hard_negatives": [[1]] * 63}, "hard_negatives must have a row for each of the 64"),
        ({"hard_negatives": [[-1]] * 64}, "hard_negatives names pairs -1 to -1; there are 64"),
        ({"plan": [[1], [2, 3]]}, "plan must be an array of real numbers"),
    ],
)
def test_what_a_run_cannot_be_made_of_is_refused_by_name(
    given: dict[str, Any], said: str, pairs: Pairs, private_cache: Path
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{said}"):
        train(**{"config": TrainConfig(**SMALL), "pairs": pairs, **given})


def test_a_second_phase_starts_from_the_first_ones_weights(pairs: Pairs) -> None:
    first = TrainConfig(**{**BI, "seed": 12})
    before = train(first, pairs)
    config = dataclasses.replace(first, start=str(before.folder / "model"), steps=1, warmup_steps=0)
    assert_same_weights(build_model(config), before.model())
    assert run_key(config, pairs) != run_key(dataclasses.replace(config, start="minilm"), pairs)


@pytest.mark.parametrize(("share", "warm_up"), [(0.0, 3), (0.1, 3), (0.1, 11)])
def test_the_rate_warms_up_and_falls_to_its_share(share: float, warm_up: int, pairs: Pairs) -> None:
    """To nothing; to a tenth, as in the clustering paper's appendix A; or it only warms up."""
    config = TrainConfig(**{**BI, "steps": 11, "warmup_steps": warm_up, "final_rate": share})
    _, metrics = Trainer(config, pairs).run()
    rates = [row["learning_rate"] / config.learning_rate for row in metrics]
    rising = [step / warm_up for step in range(warm_up)]
    falling = [1 - (1 - share) * step / (11 - warm_up) for step in range(11 - warm_up)]
    np.testing.assert_allclose(rates, rising + falling, atol=1e-12)


@pytest.mark.parametrize("limit", [1e-3, 1e3])
def test_a_gradient_longer_than_the_limit_is_cut_to_it_and_a_shorter_one_is_left(
    limit: float, pairs: Pairs
) -> None:
    config = TrainConfig(**{**BI, "steps": 2, "clip_gradients": limit})
    trainer, followed = Trainer(config, pairs), []
    weights = list(trainer.model.parameters())

    def look(*_: Any) -> None:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        followed.append(float(torch.nn.utils.get_total_norm(gradients)))

    trainer.optimiser.register_step_pre_hook(look)
    _, metrics = trainer.run()
    lengths = [row["gradient_norm"] for row in metrics]
    np.testing.assert_allclose(followed, np.minimum(lengths, limit), rtol=1e-3)


@pytest.mark.parametrize("side", ["documents", "queries", "both", "pairs"])
def test_a_stratum_is_one_cluster_and_clusters_differ_by_side(side: str, pairs: Pairs) -> None:
    config = TrainConfig(
        **{**BI, "batches": "stratum", "cluster_by": side, "cluster_size": 16, "batch_size": 4}
    )
    prepared = prepare(config, pairs)
    labels = prepared._labels()
    for _ in range(prepared.sampler.batches_per_epoch):
        assert len(set(labels[next(prepared.sampler)].tolist())) == 1
    queries, documents = prepared.vectors
    expected = {
        "documents": cluster_vectors(documents, 16, pairs.domains),
        "queries": cluster_vectors(queries, 16, pairs.domains),
        "both": cluster_vectors(np.hstack([queries, documents]), 16, pairs.domains),
        "pairs": cluster_pairs(queries, documents, 16, pairs.domains),
    }
    np.testing.assert_array_equal(labels, expected[side])


@pytest.mark.slow
def test_a_plan_is_followed_and_survives_an_interruption(pairs: Pairs, tmp_path: Path) -> None:
    config = TrainConfig(**BI)
    plan = np.random.default_rng(0).permutation(48).reshape(6, 8)
    whole, metrics = Trainer(config, pairs, plan=plan).run()
    sampled = Trainer(config, pairs).run()[1]
    assert without_times(metrics) != without_times(sampled)

    interrupt(Trainer(config, pairs, tmp_path, plan=plan), after=5)
    again, resumed = Trainer(config, pairs, tmp_path, plan=plan).run()
    assert without_times(resumed) == without_times(metrics)
    assert_same_weights(again, whole)
    with pytest.raises(ValueError, match="batch_size is 8"):
        Trainer(config, pairs, plan=plan.reshape(12, 4))
    with pytest.raises(ValueError, match="numbered from 0"):
        Trainer(config, pairs, plan=plan + 60)


def test_tests_on_the_way_change_nothing_in_training(pairs: Pairs) -> None:
    toy = cde.RetrievalSet.from_pairs(pairs, 10)
    dropout = {"model": {"dropout": 0.1}}  # which a test on the way takes off, and puts on again
    config = TrainConfig(**{**BI, **dropout, "evaluate_every": 4, "seed": 21})
    tested = train(config, pairs, tests=[toy])
    plain = train(dataclasses.replace(config, evaluate_every=0), pairs)
    column = f"ndcg@10 {toy.name}"
    assert tested.metrics.dropna()["step"].tolist() == [4, 6]  # and after the last step
    assert tested.metrics[column].iloc[-1] == pytest.approx(
        cde.evaluate(plain.model(), toy)["ndcg@10"]
    )
    same = tested.metrics.drop(columns=["seconds", column])
    assert same.equals(plain.metrics.drop(columns="seconds"))


def test_tests_that_would_fail_on_the_way_are_refused_at_once(pairs: Pairs) -> None:
    config, toy = TrainConfig(**{**BI, "evaluate_every": 4}), cde.RetrievalSet.from_pairs(pairs, 3)
    for tests, message in (
        (toy, "tests must be a list of RetrievalSets"),
        ([toy, toy], "tests must have names of their own"),
        ([dataclasses.replace(toy, qrels={})], "has no judged query"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            train(config, pairs, tests=tests)  # type: ignore[arg-type]


def test_numbers_of_numpy_from_a_test_on_the_way_are_read_back(
    pairs: Pairs, tmp_path: Path
) -> None:
    config = TrainConfig(**{**BI, "evaluate_every": 1, "checkpoint_every": 1})
    whole = Trainer(config, pairs, tmp_path, evaluate=lambda _: {"ndcg": np.float64(0.5)})
    whole.run()
    assert len(Trainer(config, pairs, tmp_path).loop.metrics) == config.steps


FACTOR = 1.0


def doubled(
    queries: Tensor, documents: Tensor, temperature: float, times: float = 2.0, **rest: Any
) -> ContrastiveLoss:
    """The loss of the paper, several times, and with a number of its module."""
    one = contrastive_loss(queries, documents, temperature, **rest)
    return ContrastiveLoss(FACTOR * times * one.loss, one.accuracy, one.masked)


def test_a_loss_of_ones_own_is_differentiated_and_its_run_is_another(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the loss has twice the gradient; Adam's first step is the same."""
    config = TrainConfig(**{**SMALL, "steps": 1, "chunk_tokens": 64, "uncached_tokens": 1})
    _, rows = Trainer(config, pairs).run()
    _, changed = Trainer(config, pairs, loss=doubled).run()
    assert changed[0]["loss"] == pytest.approx(2 * rows[0]["loss"], rel=1e-5)
    assert changed[0]["gradient_norm"] == pytest.approx(2 * rows[0]["gradient_norm"], rel=1e-3)
    assert changed[0]["accuracy"] == rows[0]["accuracy"]
    keys = {
        run_key(config, pairs),
        run_key(config, pairs, loss=doubled),
        run_key(config, pairs, loss=partial(doubled, times=3.0)),
    }
    assert len(keys) == 3
    assert run_key(config, pairs, loss=contrastive_loss) in keys, "the default is no other run"
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert run_key(config, pairs, loss=doubled) not in keys


class Times:
    """Holds a setting that the source of its method does not show."""

    def __init__(self, times: float) -> None:
        self.times = times

    def loss(self, *given: Any, **rest: Any) -> ContrastiveLoss:
        return doubled(*given, times=self.times, **rest)


def test_a_loss_whose_source_does_not_say_what_it_does_is_refused(pairs: Pairs) -> None:
    times = 3.0

    def hidden(*given: Any, **rest: Any) -> ContrastiveLoss:
        return doubled(*given, times=times, **rest)

    with pytest.raises(ValueError, match=r"functools\.partial"):
        run_key(TrainConfig(**SMALL), pairs, loss=hidden)
    # of the last two, what is hashed would not hold what they compute with
    for opaque in (len, Times(3.0).loss, partial(doubled, times=torch.ones(2000))):
        with pytest.raises(ValueError, match="source can be read"):
            run_key(TrainConfig(**SMALL), pairs, loss=opaque)  # type: ignore[arg-type]
