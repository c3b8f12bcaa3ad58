"""The declared version of the training procedures: their numbers move only when it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cde.data import Pairs
from cde.training import TrainConfig, Trainer, build_model, runs
from cde_studies.dwell import chain
from cde_studies.dwell.chain import Phase

SUBJECTS = ("boats", "hills", "lamps", "rivers", "stones", "gardens", "engines", "bridges")
DEEDS = ("are red", "are painted", "stand still", "are sold", "fall down", "were built", "shine")
PAIRS = Pairs(
    [f"which {subject} {deed}?" for subject in SUBJECTS for deed in DEEDS],
    [f"the {deed} ones of all {subject} in {deed[::-1]}" for subject in SUBJECTS for deed in DEEDS],
    ["toy"] * (len(SUBJECTS) * len(DEEDS)),
    [str(place) for place in range(len(SUBJECTS) * len(DEEDS))],
)
SMALL: dict[str, Any] = {
    "layers": 1, "first_stage_layers": 1, "batch_size": 8, "cluster_size": 8, "context_size": 4,
    "steps": 4, "warmup_steps": 1, "learning_rate": 1e-3, "query_tokens": 8, "document_tokens": 12,
    "context_tokens": 12, "surrogate_tokens": 12, "checkpoint_every": 0, "precision": "float32",
}  # fmt: skip
ARMS: dict[str, dict[str, Any]] = {
    "bi-encoder, shuffled": {"architecture": "bi-encoder", "batches": "random"},
    "bi-encoder, clustered": {"architecture": "bi-encoder", "batches": "cluster"},
    "bi-encoder, hard negatives": {
        "architecture": "bi-encoder",
        "batches": "random",
        "hard_negatives": 1,
    },
    "contextual, full": {"attention": "full", "batches": "cluster"},
    "contextual, cached": {"attention": "cached", "batches": "random"},
}
#: procedure → arm → losses of four steps
TRAINING: dict[int, dict[str, list[float]]] = {
    1: {
        "bi-encoder, shuffled": [0.174813, 0.159646, 0.125616, 0.305851],
        "bi-encoder, clustered": [0.174456, 0.173820, 1.142360, 0.022361],
        "bi-encoder, hard negatives": [0.375719, 0.383370, 0.295394, 0.245624],
        "contextual, full": [0.202421, 0.222070, 1.026361, 0.038470],
        "contextual, cached": [0.215353, 0.194696, 0.133389, 0.283135],
    }
}
#: procedures of training and of the stages → losses of two steps of each phase
STAGES: dict[tuple[int, int], list[list[float]]] = {
    (1, 1): [[12.182079, 8.822544], [1.293249, 1.238087], [1.891544, 1.715669]]
}


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.slow
def test_losses_move_only_with_the_declared_version_of_the_training_procedure(
    arm: str, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What moved them makes every stored run another run: raise PROCEDURE, and enter them here."""
    # in half precision the surrogate's nearest documents differ between processors
    monkeypatch.setenv("CDE_PRECISION", "float32")
    config = TrainConfig(**SMALL, **ARMS[arm])
    _, metrics = Trainer(config, PAIRS, model=build_model(config)).run()
    losses = [row["loss"] for row in metrics]
    assert losses == pytest.approx(TRAINING[runs.PROCEDURE][arm], rel=2e-3)


@pytest.mark.slow
def test_losses_move_only_with_the_declared_version_of_the_phases(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDE_PRECISION", "float32")
    contrastive = {"steps": 2, "batch_size": 4, "query_tokens": 24, "document_tokens": 24}
    start = Phase("start", {"layers": 1, "max_tokens": 64, "trained_tokens": 64})
    restore = Phase("restore", {"steps": 2, "batch_size": 4, "tokens": 24}, start)
    crops = Phase("crops", contrastive, restore)
    tune = Phase("tune", {**contrastive, "hard_negatives": 1, "surrogate_tokens": 12}, crops)
    texts = [" ".join([document] * 3) for document in PAIRS.documents]
    losses_by_phase = []
    for phase in (restore, crops, tune):
        folder = chain.train_phase(phase, texts, PAIRS, 0)
        metrics = json.loads((folder / "run.json").read_text())["metrics"]
        losses_by_phase.append([row["loss"] for row in metrics])
    assert losses_by_phase == [
        pytest.approx(losses, rel=2e-3) for losses in STAGES[runs.PROCEDURE, chain.PROCEDURE]
    ]
