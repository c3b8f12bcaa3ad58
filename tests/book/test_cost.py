"""The page *What it costs* says what the reports hold: ratios within rounds, by class, and no more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cde_book.checkout import project_root
from cde_book.cost import cost_page
from cde_book.cost_reports import (
    CLASSES,
    Comparison,
    CostReport,
    exponents,
    growth_exponent,
    read_cost_reports,
)
from cde_book.cost_targets import TARGETS, headlines, judged

THEIRS = "sentence-transformers, as it comes"
COMMITTED = read_cost_reports(project_root())


def comparison(**given: Any) -> dict[str, Any]:
    return {
        "question": "embedding",
        "case": "short texts",
        "arm": "BiEncoder, float32",
        "peer": THEIRS,
        "meaning": "times as fast",
        "size": 9,
        "unit": "texts",
        "seconds": [1.0, 2.0, 1.0],
        "peer_seconds": [4.0, 6.0, 5.0],
        "peak": 10.0,
        "peer_peak": None,
        "agreement": 0.99999,
        "agrees": "smallest cosine",
        "note": "",
        **given,
    }


def size(number: int, seconds: float, **given: Any) -> dict[str, Any]:
    return {
        "question": "packing",
        "arm": "pack_batches, tsp",
        "size": number,
        "unit": "pairs",
        "seconds": [seconds, 3 * seconds, seconds],
        "peak": 1.0,
        "expected": 1.0,
        "fitted_from": 10,
        **given,
    }


def report(cpu_class: str = "avx2", **given: Any) -> dict[str, Any]:
    return {
        "time": "2026-11-25T10:00:00+00:00",
        "commit": "0123456789abcdef",
        "clean": True,
        "device": "<b>",
        "cpu_class": cpu_class,
        "threads": 2,
        "imitated": False,
        "variables": {},
        "load": [0.5, 1.5],
        "libraries": {"torch": "2"},
        "seconds": 600.0,
        "comparisons": [comparison()],
        "sizes": [],
        "bounds": [],
        **given,
    }


def page(root: Path, *reports: dict[str, Any]) -> str:
    folder = root / "book" / "cost"
    folder.mkdir(parents=True, exist_ok=True)
    for one in reports:
        (folder / f"{one['cpu_class']}.json").write_text(json.dumps(one))
    return " ".join(cost_page(root).split())


def test_a_ratio_is_made_within_a_round() -> None:
    ratio = Comparison(**comparison()).ratio
    assert ratio == (4.0, 3.0, 5.0)
    cost = Comparison(**comparison(meaning="times the cost")).ratio
    assert cost == (1 / 4, 1 / 5, 1 / 3)


def test_the_best_arm_speaks_for_its_peer_but_what_is_not_one_thing_for_itself() -> None:
    slower = comparison(arm="Surrogate, float32", seconds=[2.0, 3.0, 2.0])
    costs = [
        comparison(question="context", peer="no context", arm=arm, meaning="times the cost")
        for arm in ("context, full", "context, cached")
    ]
    steps = [
        comparison(question="training", peer="plain loop, float32", arm=arm, seconds=[took] * 3)
        for arm, took in (
            ("cached, float32", 2),
            ("cached, bfloat16", 1),
            ("not cached, float32", 3),
        )
    ]
    found = headlines(CostReport(**report(comparisons=[slower, comparison(), *costs, *steps])))
    assert [one.arm for one in found] == [
        "BiEncoder, float32",
        "context, full",
        "context, cached",
        "cached, bfloat16",
        "not cached, float32",
    ]


@pytest.mark.parametrize(
    ("peer_seconds", "limit_seconds", "word"),
    [
        ([3.0, 6.0, 4.0], 0.5, "reached"),
        ([2.9, 6.0, 4.0], 0.5, "reached in the median"),
        ([2.0, 4.0, 2.0], 0.5, "not reached"),
        ([2.0, 4.0, 2.0], 0.9, "not reached: beyond what the machine allows"),
    ],
)
def test_a_target_is_reached_in_every_round_in_the_median_or_not(
    peer_seconds: list[float], limit_seconds: float, word: str
) -> None:
    limit = comparison(
        arm="matrix products, float32",
        meaning="limit",
        seconds=[limit_seconds * one for one in (1.0, 2.0, 1.0)],
        peer_seconds=peer_seconds,
        agreement=None,
    )
    faster = {**limit, "arm": "matrix products, bfloat16", "seconds": [0.01, 0.01, 0.01]}
    rows = [comparison(peer_seconds=peer_seconds), faster, limit]
    (one,) = judged(CostReport(**report(comparisons=rows)))
    assert one.word == word
    assert one.limit is not None and one.limit.least < 100  # that of the arm's own precision


def test_a_cost_is_held_to_its_most() -> None:
    target = next(one for one in TARGETS if one.question == "context")
    row = comparison(
        question="context",
        case=f"minilm, {target.case} tokens",
        arm="context, cached",
        peer="no context",
        meaning="times the cost",
        seconds=[1.1, 1.2, 1.1],
        peer_seconds=[1.0, 1.0, 1.0],
    )
    other = {**row, "case": "minilm, 64 + 64 tokens"}
    (one,) = judged(CostReport(**report(comparisons=[row, other])))
    assert one.word == "reached in the median"


@given(st.floats(0.2, 3.0), st.floats(-8.0, 2.0))
def test_the_exponent_of_a_power_law_is_found(exponent: float, scale: float) -> None:
    sizes = [1_000, 3_000, 10_000, 100_000]
    fit = growth_exponent(sizes, [10**scale * n**exponent for n in sizes])
    assert fit.estimate == pytest.approx(exponent, abs=1e-6)
    assert fit.low == pytest.approx(fit.high, abs=1e-4)


def test_noise_widens_the_interval_of_an_exponent_and_three_sizes_are_needed() -> None:
    sizes = np.array([1_000, 3_000, 10_000, 30_000, 100_000])
    noise = np.exp(np.random.default_rng(0).normal(0, 0.2, len(sizes)))
    fit = growth_exponent(sizes.tolist(), (sizes**1.5 * noise).tolist())
    assert fit.low < 1.5 < fit.high and 0.05 < fit.high - fit.low < 1
    with pytest.raises(ValueError, match="three or more sizes"):
        growth_exponent([1, 10], [1.0, 2.0])


def test_fixed_costs_of_small_sizes_are_left_out_of_the_fit() -> None:
    rows = [size(1, 5.0), size(10, 1.0), size(100, 10.0), size(1_000, 100.0)]
    ((key, fit),) = exponents(CostReport(**report(sizes=rows))).items()
    assert key == ("packing", "pack_batches, tsp")
    assert fit.n == 3 and fit.estimate == pytest.approx(1.0)


def test_the_page_has_each_class_with_its_spread_and_names_the_missing(tmp_path: Path) -> None:
    bound = {
        "question": "clustering and packing",
        "size": 1_000_000,
        "unit": "pairs",
        "used": 2.25,
        "allowed": 4.0,
        "seconds": 60.0,
        "note": "",
    }
    whole = report(
        "bfloat16",
        comparisons=[comparison(seconds=[0.5, 1.0, 0.5])],
        sizes=[size(n, n / 100) for n in (10, 100, 1_000)],
        bounds=[bound],
    )
    lesser = report("avx2", imitated=True, variables={"ONEDNN_MAX_CPU_ISA": "AVX2"})
    text = page(tmp_path, whole, lesser)
    assert f"On a machine with {CLASSES['bfloat16']} `cde` embeds 8 times as fast as" in text
    assert "1,000,000 pairs were clustered and packed with 2.2 GB" in text
    assert "Of 3 targets" in text and "3 are reached in every round" in text
    assert "8.00 (6.00 to 10.00)" in text and "4.00 (3.00 to 5.00)" in text
    assert "AVX2 (imitated)" in text and "`ONEDNN_MAX_CPU_ISA=AVX2`" in text
    assert f"no report yet of {CLASSES['avx512']}, of {CLASSES['cuda']}" in text
    assert text.count("class='cde-figure") == 2
    assert "<b>" not in text.split("## Machines")[1]
    alts = re.findall(r'alt="([^"]+)"', text)
    assert len(alts) == 4 and all(len(alt) > 40 for alt in alts)


def test_the_same_reports_are_the_same_page(tmp_path: Path) -> None:
    first = page(tmp_path, report(sizes=[size(n, n / 100) for n in (10, 100, 1_000)]))
    assert cost_page(tmp_path).split() == first.split()


def test_an_imitated_class_speaks_first_only_where_there_is_no_other(tmp_path: Path) -> None:
    imitated = report("avx512", imitated=True)
    assert f"On a machine with {CLASSES['avx512']} (imitated)" in page(tmp_path, imitated)
    assert f"On a machine with {CLASSES['avx2']} `cde`" in page(tmp_path, report("avx2"))


def test_without_reports_nothing_is_claimed(tmp_path: Path) -> None:
    text = page(tmp_path)
    assert "Nothing is measured yet: `make benchmarks`" in text and "times as fast" not in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"threads": None}, "threads"),
        ({"comparisons": [comparison(peer="")]}, "comparisons.0.peer"),
        ({"comparisons": [comparison(peer_seconds=[1.0])]}, "3 rounds of the arm and 1 of its"),
        ({"comparisons": [comparison(seconds=[1.0, 0.0, 1.0])]}, "must be above 0"),
        ({"comparisons": [{**comparison(), "more": 1}]}, "comparisons.0.more"),
        ({"cpu_class": "avx512"}, "of the class avx512: rename it"),
    ],
)
def test_a_file_that_is_no_report_is_refused_by_its_name(
    given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    (tmp_path / "book" / "cost").mkdir(parents=True)
    (tmp_path / "book" / "cost" / "avx2.json").write_text(json.dumps({**report(), **given}))
    with pytest.raises(ValueError, match=f"avx2.json.*{said}"):
        read_cost_reports(tmp_path)


@pytest.mark.parametrize("name", COMMITTED)
def test_every_report_of_the_book_is_whole(name: str) -> None:
    found = COMMITTED[name]
    assert len(found.commit) == 40
    questions = {one.question for one in found.comparisons}
    assert questions == {one.question for one in TARGETS}
    assert {one.target.question for one in judged(found)} == questions
    assert {"packing", "filtering", "evaluation"} <= {one.question for one in found.sizes}
    assert max(one.size for one in found.sizes) >= 1_000_000
    assert all(len(one.seconds) >= 3 for one in found.comparisons)
    if name != "cuda":
        assert any(one.size >= 1_000_000 for one in found.bounds)


@pytest.mark.parametrize("name", COMMITTED)
def test_what_a_report_compares_does_the_same_work(name: str) -> None:
    for one in COMMITTED[name].comparisons:
        if one.agreement is not None and "bfloat16" not in one.arm + one.peer:
            if one.agrees == "smallest cosine":
                assert one.agreement > (0.99 if "int8" in one.arm else 0.9999)
            elif one.agrees == "difference of the gradients":
                assert one.agreement < 1e-4
            else:
                assert one.agreement < 1.01 or "did not come as far" in one.note
