"""Tests on the way of long runs: what they measure is what the library measures."""

import numpy as np
import pytest
import torch

import cde
from cde.adaptation import tempered
from cde.data import RetrievalSet, manuals
from cde.training.loss import contrastive_loss
from cde_studies.results.day import panel, scores_on_the_way, tempered_loss, training_pairs


@pytest.fixture(scope="module")
def tests() -> list[RetrievalSet]:
    return panel("validation", 3, 40, 20)


def test_a_panel_has_one_manual_of_a_family(tests: list[RetrievalSet]) -> None:
    of = manuals.table().drop_duplicates("corpus").set_index("corpus")[["family", "part"]]
    rows = of.loc[[one.name.partition("/")[2] for one in panel("test")]]
    assert rows["family"].is_unique
    assert set(rows["part"]) == {"test"}


def test_ndcg_on_the_way_is_the_library_s(tests: list[RetrievalSet]) -> None:
    encoder = cde.Surrogate(max_tokens=16)
    measured = scores_on_the_way(encoder, tests)
    wanted = np.mean([cde.evaluate(encoder, one)["ndcg@10"] for one in tests])
    assert set(measured) == {"ndcg none", "loss none"}
    assert measured["ndcg none"] == pytest.approx(wanted, abs=1e-6)


def test_an_untrained_gated_reader_moves_nothing_in_any_context(tests: list[RetrievalSet]) -> None:
    """Its gate is nought: own, other, null and random letters are one encoder."""
    encoder = cde.ContextualEncoder.from_backbone(
        "minilm", layers=1, attention="gated", context_size=4
    )
    measured = scores_on_the_way(encoder, tests[:2])
    kinds = ("own", "other", "null", "strings")
    assert np.ptp([measured[f"ndcg {kind}"] for kind in kinds]) < 1e-6
    assert np.ptp([measured[f"loss {kind}"] for kind in kinds]) < 1e-3
    assert abs(measured["moved"]) < 1e-4


def test_far_training_has_no_manuals_and_near_training_has_them_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = {
        "pairs/*": cde.Pairs(["q"] * 4, [f"public {n}" for n in range(4)], ["web"] * 4),
        "pydocs": cde.Pairs(["q"] * 2, ["a", "b"], ["numpy"] * 2),
        "manuals": cde.Pairs(["q"] * 5, [f"m {n}" for n in range(5)], ["aws/a"] * 4 + ["aws/b"]),
    }
    monkeypatch.setattr("cde_studies.results.day.load_pairs", pairs.__getitem__)
    far, near = (training_pairs(kind, None, least=2) for kind in ("far", "near"))
    assert set(far.domains) == {"web", "numpy"}
    assert set(near.domains) == {"web", "numpy", "aws/a"}  # one of aws/b's is too few


def test_a_loss_with_directions_is_the_plain_one_where_no_direction_stands_out() -> None:
    generator = torch.Generator().manual_seed(0)
    axes = torch.eye(16)
    documents = torch.cat([axes, -axes])  # as much variance in every direction
    queries = documents + 0.3 * torch.randn(32, 16, generator=generator)
    rest = {"masked": torch.zeros(32, 32, dtype=torch.bool), "symmetric": False, "hardness": 0.0}
    turn = torch.linalg.qr(torch.randn(16, 16, generator=generator)).Q
    plain = contrastive_loss(queries, documents, 0.1).loss
    torch.testing.assert_close(tempered_loss(queries, documents, 0.1, **rest).loss, plain)
    skewed = torch.randn(32, 16, generator=generator) * torch.linspace(0.2, 2, 16)
    one = tempered_loss(queries, skewed, 0.1, **rest).loss
    torch.testing.assert_close(tempered_loss(queries @ turn, skewed @ turn, 0.1, **rest).loss, one)
    asked, rows = (torch.nn.functional.normalize(side, dim=-1) for side in (queries, skewed))
    weights = torch.from_numpy(tempered(rows.numpy()))
    torch.testing.assert_close(one, contrastive_loss(asked @ weights, rows @ weights, 0.1).loss)
    assert abs(one - contrastive_loss(queries, skewed, 0.1).loss) > 1e-3
