"""Tests on the way of long runs: what they measure is what the library measures."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cde
from cde.adaptation import AdaptedEncoder, Shift, tempered, unit
from cde.data import RetrievalSet
from cde.training.loss import contrastive_loss
from cde_studies.collections import manuals
from cde_studies.results import day


@pytest.fixture(scope="module")
def toys() -> list[RetrievalSet]:
    names = ("rich", "networkx", "polars")
    return [cde.load_retrieval(f"pydocs/{name}").shrink(40, 20, 0) for name in names]


def test_a_panel_has_one_manual_of_a_family() -> None:
    of = manuals.table().drop_duplicates("corpus").set_index("corpus")[["family", "part"]]
    rows = of.loc[[one.name.partition("/")[2] for one in day.panel("test")]]
    assert rows["family"].is_unique
    assert set(rows["part"]) == {"test"}


def test_ndcg_on_the_way_is_the_library_s(toys: list[RetrievalSet]) -> None:
    encoder = cde.Surrogate(max_tokens=16)
    measured = day.scores_on_the_way(encoder, toys)
    wanted = np.mean([cde.evaluate(encoder, one)["ndcg@10"] for one in toys])
    assert set(measured) == {"ndcg none", "loss none"}
    assert measured["ndcg none"] == pytest.approx(wanted, abs=1e-6)


def test_training_has_no_sources_of_few_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = {
        "pairs/*": cde.Pairs(["q"] * 4, [f"public {n}" for n in range(4)], ["web"] * 4),
        "pydocs": cde.Pairs(["q"] * 4, ["a", "b", "c", "c"], ["numpy"] * 2 + ["rich"] * 2),
    }
    monkeypatch.setattr("cde_studies.results.day.load_pairs", pairs.__getitem__)
    # rich has two pairs of one document
    assert set(day.training_pairs(None, least=2).domains) == {"web", "numpy"}


def test_a_loss_with_directions_is_the_plain_one_where_no_direction_stands_out() -> None:
    generator = torch.Generator().manual_seed(0)
    axes = torch.eye(16)
    documents = torch.cat([axes, -axes])  # as much variance in every direction
    queries = documents + 0.3 * torch.randn(32, 16, generator=generator)
    rest = {"masked": torch.zeros(32, 32, dtype=torch.bool), "symmetric": False, "hardness": 0.0}
    turn = torch.linalg.qr(torch.randn(16, 16, generator=generator)).Q
    plain = contrastive_loss(queries, documents, 0.1).loss
    torch.testing.assert_close(day.tempered_loss(queries, documents, 0.1, **rest).loss, plain)
    skewed = torch.randn(32, 16, generator=generator) * torch.linspace(0.2, 2, 16)
    one = day.tempered_loss(queries, skewed, 0.1, **rest).loss
    torch.testing.assert_close(
        day.tempered_loss(queries @ turn, skewed @ turn, 0.1, **rest).loss, one
    )
    asked, rows = (torch.nn.functional.normalize(side, dim=-1) for side in (queries, skewed))
    weights = torch.from_numpy(tempered(rows.numpy()))
    torch.testing.assert_close(one, contrastive_loss(asked @ weights, rows @ weights, 0.1).loss)
    assert abs(one - contrastive_loss(queries, skewed, 0.1).loss) > 1e-3


class Reading:
    """An encoder whose vectors lose the mean of what it reads."""

    reads_context = True
    config = SimpleNamespace(context_size=4)
    plain = cde.Surrogate(max_tokens=16)

    def with_context(self, texts: list[str] | None, seed: int) -> AdaptedEncoder:
        nothing = np.zeros(384, np.float32)
        mean = nothing if texts is None else self.plain.encode_documents(texts).mean(axis=0)
        return AdaptedEncoder(self.plain, Shift(mean / 2, mean / 2))


def test_the_other_context_is_the_next_test_s_and_moves_documents(toys: list[RetrievalSet]) -> None:
    measured, reader = day.scores_on_the_way(Reading(), toys), Reading()
    expected = defaultdict[str, list[float]](list)
    for test, following in zip(toys, [*toys[1:], toys[0]], strict=True):
        own, other = (reader.with_context(one.documents, 0) for one in (test, following))
        for name, encoder in (("own", own), ("other", other), ("null", reader.plain)):
            expected[f"ndcg {name}"].append(cde.evaluate(encoder, test)["ndcg@10"])
        answers = [next(iter(test.qrels[query])) for query in test.query_ids]
        texts = [test.documents[test.document_ids.index(one)] for one in answers]
        sides = own.encode_queries(test.queries), own.encode_documents(texts)
        loss = contrastive_loss(*map(torch.from_numpy, sides), day.DAY.temperature).loss
        expected["loss own"].append(float(loss))
        vectors = own.encode_documents(test.documents), other.encode_documents(test.documents)
        expected["moved"].append(1 - float((vectors[0] * vectors[1]).sum(axis=1).mean()))
    for column, values in expected.items():
        assert measured[column] == pytest.approx(np.mean(values), abs=1e-4), column
    assert measured["moved"] > 0.01


def test_directions_alone_are_changed_and_are_the_corpus_s(toys: list[RetrievalSet]) -> None:
    encoder = cde.Surrogate(max_tokens=16)
    vectors = encoder.encode_documents(toys[0].documents)
    made = day.by_directions(encoder, toys[0].documents).encode_documents(toys[0].documents)
    assert np.allclose(made, unit(vectors @ tempered(vectors)), atol=1e-5)


def test_arms_differ_in_what_their_names_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss with directions is that of the arm with directions; a longer arm is longer."""
    seen: dict[str, tuple[object, cde.TrainConfig]] = {}
    pairs = cde.Pairs(["q"], ["d"], name="toy")
    for arm in day.ARMS:

        def noted(config: cde.TrainConfig, *_: object, arm: str = arm, **given: object) -> None:
            seen[arm] = given["loss"], config

        monkeypatch.setattr(day.runs, "train", noted)
        day.train(arm, 0, pairs, [])
    with_directions = {arm for arm, (loss, _) in seen.items() if loss is day.tempered_loss}
    assert with_directions == {"bi-encoder, directions; clustered"}
    steps = {arm: config.steps for arm, (_, config) in seen.items()}
    assert {arm for arm in steps if steps[arm] != 3200} == {"contextual, full; 12,800 steps"}
    assert steps["contextual, full; 12,800 steps"] == 12_800
    layers = {arm for arm, (_, config) in seen.items() if config.layers != 2}
    assert layers == {arm for arm in day.ARMS if "six layers" in arm}
