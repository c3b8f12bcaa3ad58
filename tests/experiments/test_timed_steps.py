"""Steps to be timed: every encoder reads the same pairs, and a job can run again and again."""

from __future__ import annotations

import pytest

from cde.experiments.recipes import recipe
from cde.experiments.timed_steps import steps_to_time

pytestmark = pytest.mark.usefixtures("one_thread")
ENCODERS = {
    "single": {"architecture": "bi-encoder"},
    "full": {"architecture": "contextual", "attention": "full"},
}


def test_a_job_for_each_encoder_and_length_leaves_no_gradient_and_gives_its_loss() -> None:
    jobs = steps_to_time(recipe("smoke"), ENCODERS, [4, 8], 2, 0)
    assert list(jobs) == ["single", "full", "4 tokens", "8 tokens"]
    for job in jobs.values():
        model = job.args[0]  # type: ignore[attr-defined]
        assert 0 < job() < 100
        assert all(weights.grad is None for weights in model.parameters())


def test_encoders_read_the_same_pairs_and_contexts_are_some_of_their_documents() -> None:
    jobs = steps_to_time(recipe("smoke"), ENCODERS, [4], 2, 0)
    single, full = (jobs[name].args[1] for name in ENCODERS)  # type: ignore[attr-defined]
    assert [row.tolist() for row in single.texts] == [row.tolist() for row in full.texts]
    half = len(full.texts) // 2
    first = full.texts[half : half + len(full.context)]
    assert [row.tolist() for row in full.context] == [row.tolist() for row in first]
    assert not single.context
