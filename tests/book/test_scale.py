"""The page *Scale*: powers are found with honest intervals, and nothing is said that was not
measured.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cde_book.checkout import project_root
from cde_book.scale import PAIRS, fit, scale_page


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_a_power_is_found_and_read_off(power: float) -> None:
    sizes = np.array([1000.0, 2000, 4000, 8000])
    curve = fit(sizes, 0.5 * sizes**power)
    assert curve.exponent == pytest.approx(power, abs=1e-9)
    assert curve.at(PAIRS)[0] == pytest.approx(0.5 * PAIRS**power, rel=1e-6)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Of the exponent, and of the cost at the paper's size: 95 of 100."""
    draws, sizes = np.random.default_rng(0), np.tile([1000.0, 2000, 4000, 8000], 3)
    held = []
    for _ in range(400):
        curve = fit(sizes, 2 * sizes**1.2 * np.exp(draws.normal(0, 0.1, len(sizes))))
        _, low, high = curve.at(PAIRS)
        held.append((curve.low < 1.2 < curve.high, low < 2 * PAIRS**1.2 < high))
    assert np.mean(held, axis=0) == pytest.approx([0.95, 0.95], abs=0.03)


def test_the_page_has_what_was_measured_and_nothing_without(tmp_path: Path) -> None:
    assert "Nothing is measured yet" in scale_page(tmp_path)
    run = {"run": "small", "predicted_seconds": 10.0, "predicted_memory": 4.0, "memory": 8.0}
    run |= {"seconds": 15.0, "predicted_storage": 4.0, "storage": 4.0}
    sizes = (1000, 2000, 4000)
    curves = [
        {"stage": stage, "round": 0, "pairs": n, "peak": 1e11, "cost": n**power / 1000}
        for stage, power in (("tokenising", 1), ("embedding", 1), ("clustering", 2))
        for n in sizes
    ]
    about = {"time": "2026-11-25", "commit": "0" * 40, "clean": True, "device": "<b>"}
    told = {**about, "cluster_size": 512, "iterations": 10, "runs": [run], "curves": curves}
    (tmp_path / "book" / "scale").mkdir(parents=True)
    (tmp_path / "book" / "scale" / "measured.json").write_text(json.dumps(told))
    page = scale_page(tmp_path)
    assert "1.50 [1.50, 1.50]" in page and "2.00 [2.00, 2.00]" in page
    assert f"{PAIRS / 1000 / 86400:.3g} [" in page, "days of one thread to embed them"
    assert "<b>" not in page.split("Measured 2026")[1]


def test_the_books_own_measurements_make_a_page() -> None:
    assert "Nothing is measured yet" not in scale_page(project_root())
