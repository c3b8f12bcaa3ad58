"""A record grows by seeds that follow, of the same settings and data, and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from cde_book.records import grown


def record(seed: int = 0, seeds: int = 2, size: int = 9, digest: str = "a") -> dict[str, Any]:
    return {
        "time": f"day {seed}",
        "settings": {"seed": seed, "seeds": seeds, "size": size},
        "data": {"pydocs": digest},
        "rows": [{"seed": one, "ndcg": one / 10} for one in range(seed, seed + seeds)],
        "proof": {"rows": [seed]},
    }


def test_growing_twice_is_having_made_all_seeds_at_once() -> None:
    at_once = record(0, 6)
    in_parts = grown(grown(record(0, 2), record(2, 1)), record(3, 3))
    for name in ("settings", "rows", "data", "proof"):
        assert in_parts[name] == at_once[name]
    assert [(one["time"], one["seed"], one["seeds"]) for one in in_parts["parts"]] == [
        ("day 0", 0, 2),
        ("day 2", 2, 1),
        ("day 3", 3, 3),
    ]


def test_a_record_grows_by_what_its_chapter_calls_the_number_of_its_seeds() -> None:
    one, more = record(0, 2), record(2, 3)
    for part in (one, more):
        part["settings"]["trainings"] = part["settings"].pop("seeds")
    both = grown(one, more)
    assert both["settings"] == {"seed": 0, "trainings": 5, "size": 9}
    assert [(part["seed"], part["seeds"]) for part in both["parts"]] == [(0, 2), (2, 3)]
    with pytest.raises(ValueError, match="begin at 3"):
        grown(one, {**more, "settings": {**more["settings"], "seed": 3}})


def test_data_that_the_page_had_loaded_before_may_be_missing() -> None:
    assert grown(record(), {**record(2), "data": {}})["data"] == {"pydocs": "a"}


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (record(1), r"the seeds 0 to 1: add those from 2 on \(-p seed=2\); these begin at 1"),
        (record(3), "these begin at 3"),
        (record(2, size=8), "other settings.*size 9 instead of 8"),
        (record(2, digest="b"), "other data.*pydocs"),
        ({**record(2), "data": {"pydocs": "a", "beir/med": "c"}}, "other data.*: beir/med$"),
        ({**record(2), "settings": {"size": 9}}, "has no seeds"),
    ],
)
def test_what_is_not_the_same_experiment_is_refused(added: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        grown(record(), added)
