"""What the benchmarks compare is the same work, and a page has its numbers."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cde_book.checkout import project_root

FOLDER = project_root() / "benchmarks"
sys.path.insert(0, str(FOLDER))
pages: Any = import_module("pages")
reports: Any = import_module("measuring.reports")
sys.path.remove(str(FOLDER))
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def plain_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("CDE_PRECISION", "float32")


def rows(question: str) -> list[Any]:
    """A miniature of a question, measured."""
    comparing: Any = import_module("measuring.comparing")
    found = [row for _, some in comparing.measured(question, True, 1) for row in some]
    return [reports.Comparison(**row) for row in found]


def test_vectors_are_those_of_the_peer() -> None:
    found = rows("embedding")
    agreements = [one.agreement for one in found if one.agreement is not None]
    assert len(agreements) >= 4 and min(agreements) > 0.99
    plain = [one for one in found if one.arm.endswith("float32") and one.agreement is not None]
    assert all(one.agreement > 0.99999 for one in plain if one.agreement is not None)
    # each arm stands against the library, and against the machine
    for arm in {one.arm for one in plain}:
        meanings = {one.meaning for one in found if one.arm == arm}
        assert meanings == {"times as fast", "share of the limit"}


def test_gradients_are_those_of_the_peer() -> None:
    found = [one for one in rows("training") if one.agreement is not None]
    assert {one.arm for one in found} == {"cached, float32", "not cached, float32"}
    assert {one.peer for one in found} == {
        "plain loop, float32",
        "sentence-transformers' cached loss, float32",
    }
    assert all(one.agreement < 1e-4 for one in found if one.agreement is not None)


def test_clusters_are_as_good_as_the_peer_s() -> None:
    found = [one for one in rows("clustering") if one.agreement is not None]
    assert {"scikit-learn, MiniBatchKMeans", "faiss.SuperKmeans"} <= {one.peer for one in found}
    for one in found:
        assert one.agreement is not None and one.agreement < 1.006
        assert one.note.startswith("run_kmeans: ")
        assert "run_kmeans: 32 iterations, and did not" not in one.note


def test_operations_are_those_of_the_model() -> None:
    """The limit counts the multiply-adds that torch itself counts in MiniLM."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from cde.models import BiEncoder

    embedding: Any = import_module("questions.embedding")
    model = BiEncoder.from_backbone("minilm", device="cpu", attn_implementation="eager")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.full((3, 40), 2000))
    assert embedding.multiply_adds([40] * 3) == pytest.approx(counter.get_total_flops(), rel=0.01)


@given(st.floats(0.0, 3.0), st.floats(-8.0, 2.0))
def test_the_exponent_of_a_power_law_is_found_and_read_off(exponent: float, scale: float) -> None:
    sizes = [1_000, 3_000, 10_000, 100_000]
    curve = pages.fit(sizes, [10**scale * n**exponent for n in sizes])
    assert curve[:3] == pytest.approx((exponent,) * 3, abs=1e-4)
    assert curve.at(pages.PAIRS)[0] == pytest.approx(10**scale * pages.PAIRS**exponent, rel=1e-4)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Of the exponent, and of the cost at the paper's size: 95 of 100."""
    draws, sizes = np.random.default_rng(0), np.tile([1000.0, 2000, 4000, 8000], 3)
    held = []
    for _ in range(400):
        curve = pages.fit(sizes, 2 * sizes**1.2 * np.exp(draws.normal(0, 0.1, len(sizes))))
        _, low, high = curve.at(pages.PAIRS)
        held.append((curve.low < 1.2 < curve.high, low < 2 * pages.PAIRS**1.2 < high))
    assert np.mean(held, axis=0) == pytest.approx([0.95, 0.95], abs=0.03)
    with pytest.raises(ValueError, match="three sizes or more"):
        pages.fit([1, 10], [1.0, 2.0])


@pytest.mark.parametrize("name", pages.PARTS)
def test_a_page_has_the_numbers_of_the_committed_reports(name: str) -> None:
    text = (project_root() / "book" / f"{name}.md").read_text()
    parts = pages.PARTS[name]()
    assert set(re.findall(r"<!-- (\w+) -->", text)) == {*parts, "end"}
    assert pages.filled(text, parts) == text, f"python benchmarks/pages.py {name} writes it anew"


def test_what_a_committed_report_compares_does_the_same_work() -> None:
    for one in (one for report in reports.read_cost_reports() for one in report.comparisons):
        if one.agreement is not None and "bfloat16" not in one.arm + one.peer:
            if one.agrees == "smallest cosine":
                assert one.agreement > 0.9999
            elif one.agrees == "difference of the gradients":
                assert one.agreement < 1e-4
            else:
                assert one.agreement < 1.01 or "did not come as far" in one.note
