"""What the chapters read off their rows: squares of contexts, shortcuts by depth, and movement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from pairs_in_groups import unit

from cde.data import RetrievalSet
from cde_studies.results.movement import ALL_REAL, movement, movement_by_kind, nearest
from cde_studies.results.shortcut import FULL, Shortcut, search_by_depth
from cde_studies.results.squares import APART, NULL, OTHERS, Squares


def squares() -> Squares:
    """Two domains and two seeds; "a" is searched best in its own context, "b" in that of "a"."""
    points = {"aa": 50, "ab": 40, "a-": 45, "bb": 30, "ba": 30.5, "b-": 10}
    tested = {"ab": (-0.1, -0.2, 0.0, 0.01), "ba": (0.005, -0.005, 0.015, 0.3)}
    rows = []
    for square, score in points.items():
        difference, low, high, p = tested.get(square, (0.0, 0.0, 0.0, 1.0))
        context = {"-": NULL}.get(square[1], square[1])
        for seed in (0, 1):
            row = {"seed": seed, "test": square[0], "where": "out", "context": context}
            row |= {"ndcg": (score + seed) / 100, "difference": difference}
            rows.append({**row, "low": low, "high": high, "p": p})
    return Squares(pd.DataFrame(rows))


def test_squares_are_counted_against_the_best_and_after_holms_correction() -> None:
    assert list(squares().counts().values()) == [2, 1, 1, 0, 1]
    assert squares().foreign()["differs"].to_dict() == {("a", "b"): True, ("b", "a"): False}
    assert squares().crossover().to_dict() == {0: 0.5, 1: 0.5}


def test_the_own_context_is_compared_with_others_null_and_what_there_is_apart() -> None:
    gains = squares().own_minus(OTHERS).groupby("test").mean()
    assert gains.to_dict() == pytest.approx({"a": 10.0, "b": -0.5})
    assert squares().own_minus(NULL).groupby("test").mean()["b"] == pytest.approx(20.0)
    assert squares().own_minus(APART).empty


class Likes:
    """Ranks documents of its own list first, in that order."""

    def __init__(self, *liked: str) -> None:
        self.liked = liked

    def rank(self, one: RetrievalSet, depth: int = 1000) -> dict[str, dict[str, float]]:
        rest = [name for name in one.document_ids if name not in self.liked]
        order = [*self.liked, *rest][:depth]
        return {query: {name: -float(n) for n, name in enumerate(order)} for query in one.query_ids}


class Counted:
    """An encoder that counts how often it is asked for documents."""

    asked = 0

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.eye(1, 3, dtype=np.float32).repeat(len(texts), axis=0)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += 1
        return np.linspace(0, 1, 3 * len(texts), dtype=np.float32).reshape(len(texts), 3)


def toy(documents: int) -> RetrievalSet:
    ids = [f"d{number}" for number in range(documents)]
    queries = ["q0", "q1"]
    qrels = {"q0": {"d0": 1}, "q1": {"d1": 1}}
    return RetrievalSet(ids, [f"text {one}" for one in ids], queries, queries, qrels)


def test_a_document_that_the_surrogate_misses_is_lost_to_every_model() -> None:
    models = [("finds", lambda one: Likes("d0", "d1")), ("fails", lambda one: Likes("d4", "d5"))]
    rows = search_by_depth(models, {"toy": toy(20)}, [2, 6], Likes("d0", "d9"))
    part = Shortcut(rows)
    assert part.depths == [2, 6]
    assert rows.groupby("depth")["recall"].first().to_dict() == {FULL: 1.0, 2: 0.5, 6: 1.0}
    assert part.scores(2).loc["toy", "finds"] == pytest.approx(50)
    full = part.scores(FULL).loc["toy", "finds"]
    assert part.change_of_scores(2).loc["toy", "finds"] == pytest.approx(50 - full)
    before, after = part.differences(2)
    moved = part.change_of_differences(2)
    assert moved.to_numpy() == pytest.approx(100 * abs(after - before).to_numpy())


def test_sets_that_no_depth_cuts_are_left_out_and_one_must_be_cut_where_it_is_tested() -> None:
    models = [(name, lambda one: Likes("d0")) for name in "ab"]
    sets = {"large": toy(20), "small": toy(3)}
    rows = search_by_depth(models, sets, [5], Likes("d0"))
    assert set(rows["set"]) == {"large"}
    with pytest.raises(ValueError, match="no set has more than 30 documents"):
        search_by_depth(models, sets, [5, 30], Likes("d0"), tested=30)


def test_runs_of_one_name_are_averaged_and_documents_are_embedded_once_for_all_depths() -> None:
    encoder = Counted()
    models = [("runs", lambda one: Likes("d0")), ("runs", lambda one: Likes("d1"))]
    rows = search_by_depth(
        [*models, ("one", lambda one: encoder)], {"toy": toy(9)}, [2, 4], Likes()
    )
    assert encoder.asked == 1
    assert set(rows["first"]) == {"runs"}
    # each run finds one query's document first and the other's second
    assert 100 * rows["first_score"].iloc[0] == pytest.approx(50 * (1 + 1 / np.log2(3)))


def conclusion(p: Sequence[float], after: Sequence[float]) -> dict[str, int | str]:
    rows = [{"depth": FULL, "first_score": 0.5, "second_score": 0.4, "p": p[0]}]
    rows += [{"depth": 5, "first_score": after[0], "second_score": after[1], "p": p[1]}]
    table = pd.DataFrame(rows).assign(set="s", documents=9, first="a", second="b")
    return Shortcut(table).conclusions(5)


@pytest.mark.parametrize(
    ("p", "after", "what"),
    [
        ((0.01, 0.2), (0.5, 0.45), "vanish"),
        ((0.2, 0.01), (0.5, 0.45), "appear"),
        ((0.01, 0.01), (0.4, 0.5), "flip"),
        ((0.01, 0.01), (0.5, 0.45), None),
    ],
)
def test_a_conclusion_vanishes_appears_flips_or_stands(
    p: Sequence[float], after: Sequence[float], what: str | None
) -> None:
    conclusions = conclusion(p, after)
    assert [name for name in ("vanish", "appear", "flip") if conclusions[name]] == (
        [what] if what else []
    )
    assert conclusions["largest change"] == f"{100 * abs(0.1 - (after[0] - after[1])):.2f}"


def test_a_common_shift_of_all_documents_is_all_that_moves() -> None:
    one = np.random.default_rng(0).normal(size=(5, 4))
    row = movement(np.stack([one, one + 0.1]), 2).iloc[0]
    assert row["common"] == pytest.approx(row["total"])
    alone = one.copy()
    alone[0] += 1.0
    row = movement(np.stack([one, alone]), 2).iloc[0]
    assert row["common"] == pytest.approx(row["total"] / 5)


def test_every_pair_of_contexts_has_a_row_and_still_documents_find_themselves() -> None:
    one = unit(np.random.default_rng(1).normal(size=(6, 3)))
    rows = movement(np.stack([one, one, one]), 2)
    assert rows[["first", "second"]].to_numpy().tolist() == [[1, 0], [2, 0], [2, 1]]
    assert rows["moved"].to_numpy() == pytest.approx(0, abs=1e-6)
    assert (rows[["itself", "kept"]] == 1).to_numpy().all()
    swapped = movement(np.stack([one, one[::-1]]), 2).iloc[0]
    assert swapped["itself"] == 0


def test_pairs_of_contexts_are_of_the_kind_that_their_corpora_say() -> None:
    contexts = [("own", 0), ("own", 1), ("a", 0), ("a", 1), ("b", 0), (NULL, 0)]
    one = unit(np.random.default_rng(3).normal(size=(4, 3)))
    vectors = np.stack([one] * len(contexts))
    table = movement_by_kind(vectors, contexts, "own", 1).set_index("kind")
    assert table["pairs"].to_dict() == {
        "own, drawn again": 1,
        "other, drawn again": 1,
        "own and other": 6,
        "two others": 2,
        ALL_REAL: 10,
        NULL: 5,
    }


def test_the_nearest_are_others_and_as_many_as_asked_for() -> None:
    marks = nearest(unit(np.random.default_rng(2).normal(size=(7, 3))), 3)
    assert not marks.diagonal().any()
    assert (marks.sum(axis=1) == 3).all()
