"""A stored run gives back what was trained, or is trained again, to the same numbers, and says so."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from stages import flipped, toy_pairs
from tiny_encoders import BRIEF, backbone_folder

import cde
from cde.storage import DamageWarning
from cde.training import Trainer, runs
from cde.training.runs import Run, train

PAIRS = toy_pairs()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> cde.TrainConfig:
    start = str(backbone_folder(tmp_path_factory.mktemp("backbone"), "bert"))
    return cde.TrainConfig(architecture="bi-encoder", start=start, **BRIEF)


@pytest.fixture(scope="module")
def whole(config: cde.TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, in a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDE_CACHE", str(tmp_path_factory.mktemp("whole")))
        return train(config, PAIRS).folder


@pytest.fixture
def run(whole: Path, private_cache: Path) -> Path:
    """A copy of it, in the test's own cache."""
    return Path(shutil.copytree(whole, private_cache / "runs" / whole.name))


def numbers(folder: Path) -> tuple[Any, bytes]:
    """What a run is asked for: losses and weights."""
    values = json.loads((folder / "run.json").read_text())
    rows = [{name: row[name] for name in row if name != "seconds"} for row in values["metrics"]]
    return rows, (folder / "model" / "model.safetensors").read_bytes()


def flip(path: Path, bit: int) -> None:
    path.write_bytes(flipped(path.read_bytes(), bit))


@pytest.mark.parametrize("gone", [False, True])
def test_no_damaged_or_missing_file_of_a_run_is_believed(
    run: Path, whole: Path, gone: bool
) -> None:
    asked: list[Path] = []

    def made(folder: Path) -> dict[str, Any]:
        asked.append(folder)
        raise KeyboardInterrupt

    for path in sorted(path for path in whole.rglob("*") if path.is_file()):
        if path.name == ".lock" or (gone and path.name == "run.json"):
            continue
        shutil.rmtree(run)
        shutil.copytree(whole, run)
        name = path.relative_to(whole)
        (run / name).unlink() if gone else flip(run / name, 4 * path.stat().st_size)
        asked.clear()
        with (
            pytest.warns(DamageWarning, match="made again") as told,
            pytest.raises(KeyboardInterrupt),
        ):
            runs.stored(run.name, made, 0)
        said = f"{name} is missing" if gone else str(run / name)
        assert asked == [run] and said in str(told[0].message), name


def test_a_damaged_run_is_made_again_with_the_same_numbers(
    run: Path, whole: Path, config: cde.TrainConfig
) -> None:
    weights = run / "model" / "model.safetensors"
    flip(weights, 8 * weights.stat().st_size - 13)
    with pytest.raises(ValueError, match="model.safetensors is damaged.*train with the same"):
        Run.read(run).model()
    with pytest.warns(DamageWarning, match="model.safetensors is damaged"):
        again = train(config, PAIRS)
    assert again.folder == run and numbers(run) == numbers(whole)
    assert weights.with_name("model.safetensors.damaged-1").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DamageWarning)
        assert train(config, PAIRS).model().dim == 32


def test_a_run_of_a_version_without_digests_is_read_and_guarded_from_then_on(
    run: Path, whole: Path, config: cde.TrainConfig
) -> None:
    values = json.loads((run / "run.json").read_text())
    earlier = {name: values[name] for name in values if name not in ("files", "sha256")}
    (run / "run.json").write_text(json.dumps(earlier, indent=1))
    assert train(config, PAIRS).metrics.equals(Run.read(whole).metrics)
    assert json.loads((run / "run.json").read_text()) == values
    flip(run / "model" / "model.safetensors", 4000)
    with pytest.warns(DamageWarning):
        train(config, PAIRS)


def test_the_checkpoint_of_a_kill_after_the_run_was_done_is_removed(
    run: Path, config: cde.TrainConfig
) -> None:
    before = sorted(path for path in run.rglob("*"))
    (run / "checkpoint.pt").write_bytes(b"of a kill after the run was done")
    train(config, PAIRS)
    assert sorted(path for path in run.rglob("*")) == before


class Stopped(BaseException):
    """As a kill."""


def stopped_after(config: cde.TrainConfig, steps: int, folder: Path) -> Path:
    """A folder with a checkpoint of an unfinished run."""
    trainer = Trainer(config, PAIRS, folder)
    taken = trainer._take_step

    def step(batch: Any, number: int) -> dict[str, float]:
        if number == steps:
            raise Stopped
        return taken(batch, number)

    trainer._take_step = step  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        trainer.run()
    return folder / "checkpoint.pt"


@pytest.mark.slow
def test_no_flipped_bit_of_a_checkpoint_moves_a_number(
    config: cde.TrainConfig, tmp_path: Path
) -> None:
    path = stopped_after(config, 3, tmp_path / "run")
    good, draws = path.read_bytes(), random.Random(0)
    state = torch.load(path, weights_only=True)
    told = 0
    for _ in range(150):
        path.write_bytes(flipped(good, draws.randrange(8 * len(good))))
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            trainer = Trainer(config, PAIRS, path.parent)
        damaged = [one for one in messages if one.category is DamageWarning]
        told += bool(damaged)
        # padding between two parts says nothing; of all else either nothing is used, or all is good
        assert len(trainer.loop.metrics) == (0 if damaged else 2)
        if not damaged:
            kept = trainer.model.state_dict()
            assert all(torch.equal(kept[name], state["model"][name]) for name in kept)
        assert path.exists() != bool(damaged)
    assert told > 100


@pytest.mark.parametrize("left", [0, 1, 1000, -1, -1000])
def test_a_truncated_checkpoint_costs_its_steps_and_nothing_else(
    config: cde.TrainConfig, whole: Path, tmp_path: Path, left: int
) -> None:
    path = stopped_after(config, 3, tmp_path / "run")
    path.write_bytes(path.read_bytes()[:left])
    with pytest.warns(DamageWarning, match="checkpoint.pt is damaged"):
        _, metrics = Trainer(config, PAIRS, path.parent).run()
    rows = [{name: row[name] for name in row if name != "seconds"} for row in metrics]
    assert rows == numbers(whole)[0]
