# %% [markdown]
# # What can go wrong when several processes train one model?
#
# *The answer stands here once the chapter has run.*
#
# This page answers **CDE §10.3** {cite}`morris2024contextual`: contrastive training on several devices fails quietly if an
# embedding shows which device made it, or if gradients are not exchanged; and batches of neighbours may do without sharing
# negatives between devices. The paper gives no numbers. Here two processes train on one processor, and each failure is
# provoked, measured, and detected.

# %% tags=["hide-input"]
from cde.book.page import claims_under_test

claims_under_test("distributed")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: str = "laptop"
seed: int = 0
seeds: int | None = None  # training runs of each arm
steps: int | None = None  # of the optimiser
batch_size: int | None = None  # pairs a step, over both processes
pairs: int | None = None  # of pydocs, to train on
layers: int | None = None  # of MiniLM
max_tokens: int | None = None  # texts are cut there
learning_rate: float | None = None
noise: float | None = (
    None  # of the second copy's weights, as a share of their own spread
)
documents: int | None = None  # of the retrieval set
queries: int | None = None

# %% tags=["hide-input"]
from cde.book import page

laptop = {
    "seeds": 3, "steps": 40, "batch_size": 64, "pairs": 4000, "layers": 2, "max_tokens": 32, "learning_rate": 3e-4,
    "noise": 0.2, "documents": 300, "queries": 200,
}  # fmt: skip
settings = page.settings(
    profile,
    {
        "smoke": {
            **laptop, "seeds": 2, "steps": 2, "batch_size": 8, "pairs": 64, "layers": 1, "max_tokens": 12, "documents": 30,
            "queries": 10,
        },
        "laptop": laptop,
        "fresh": {**laptop, "seeds": 2, "steps": 10},
        "gpu": {**laptop, "steps": 1000, "batch_size": 1024, "pairs": 10**6, "layers": 6, "max_tokens": 64, "documents": 10**6},
        "paper": {**laptop, "steps": 5000, "batch_size": 4096, "pairs": 10**6, "layers": 6, "max_tokens": 512, "documents": 10**6},
    },
    seeds=seeds, steps=steps, batch_size=batch_size, pairs=pairs, layers=layers, max_tokens=max_tokens,
    learning_rate=learning_rate, noise=noise, documents=documents, queries=queries,
)  # fmt: skip
if settings.seeds < 2:
    raise ValueError("an interval over seeds needs two or more; give -p seeds 2")
settings

# %% [markdown]
# ## Two processes, one gradient
#
# `cde.training` does not wrap the model in `DistributedDataParallel`: with a gradient cache there are many backward passes a
# step, and only their sum may be exchanged. Each process embeds its half of the batch. With shared negatives it receives the
# other half's embeddings, computes the loss of the whole batch, and differentiates it with respect to its own embeddings;
# the parameters' gradients are then added up, once. That sum should be the gradient of a single process. The script below
# is started once with one process and once with two, by `torchrun`, and trains a bi-encoder in five arms:
#
# - **one process**, with the whole batch;
# - **two processes** that share negatives;
# - two processes with **own negatives** only;
# - two whose weights **differ** from the start: noise on the second copy's;
# - two that never **synchronise** gradients.

# %%
WORKER = '''
import json, sys
from dataclasses import replace
from pathlib import Path

import torch

import cde
from cde.training import Processes, TrainConfig, Trainer, build_model, differing_process


class Unsynchronised(Processes):
    """Processes that keep their gradients to themselves."""

    def add_gradients(self, parameters):
        pass


task = json.loads(Path(sys.argv[1]).read_text())
processes = Processes.connect()
test_set = cde.load_retrieval("pydocs/networkx").shrink(task["documents"], task["queries"], 0)
pairs = cde.load_pairs("pydocs").sample(task["pairs"], 0)
rows = []
for arm in task["arms"]:
    for seed in range(task["seed"], task["seed"] + task["seeds"]):
        config = TrainConfig(**task["config"], seed=seed, share_negatives=arm != "own negatives")
        mine = Unsynchronised(*vars(processes).values()) if arm == "no synchronisation" else processes
        gradient = None
        if arm in ("one process", "two processes") and seed == task["seed"]:
            config = replace(config, precision="float32")
            exact = Trainer(config, pairs, model=build_model(config), processes=mine)
            exact._one(next(exact.prepared.batches()), 0)  # warm-up: the rate of the first step is 0
            gradient = {n: p.grad.clone() for n, p in exact.model.named_parameters() if p.grad is not None}
            config = replace(config, precision="auto")
        trainer = Trainer(config, pairs, model=build_model(config), processes=mine)
        if arm == "different weights" and processes.rank:
            torch.manual_seed(seed)
            with torch.no_grad():
                for parameter in trainer.model.parameters():
                    if parameter.ndim > 1:
                        parameter += task["noise"] * parameter.std() * torch.randn_like(parameter)
        model, metrics = trainer.run()
        differing = differing_process(model, processes)
        quality = cde.evaluate(model, test_set)["ndcg@10"] if processes.rank == 0 else 0.0
        rows.append({"arm": arm, "seed": seed, "ndcg": quality, "loss": metrics[-1]["loss"],
                     "accuracy": metrics[-1]["accuracy"], "detected": differing is not None})
        if processes.rank == 0 and gradient is not None:
            torch.save(gradient, Path(sys.argv[1]).with_suffix(f".{processes.count}.pt"))
if processes.rank == 0:
    Path(sys.argv[1]).with_suffix(f".{processes.count}.json").write_text(json.dumps(rows))
'''

# %%
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import torch

import cde
import cde.retrieval
import cde.training  # the record names the modules that this process has, and the script runs in others
from cde.book.records import recorded

ARMS = {
    1: ["one process"],
    2: ["two processes", "own negatives", "different weights", "no synchronisation"],
}


def launch(folder, count):
    """Run the script with so many processes, each with its share of the threads."""
    task = {
        "arms": ARMS[count],
        "seed": seed,
        **{name: getattr(settings, name) for name in ("seeds", "noise", "pairs", "documents", "queries")},
        "config": {
            "architecture": "bi-encoder",
            "layers": settings.layers,
            "batch_size": settings.batch_size,
            "cluster_size": settings.batch_size,
            "steps": settings.steps,
            "warmup_steps": max(1, settings.steps // 10),
            "learning_rate": settings.learning_rate,
            "query_tokens": settings.max_tokens,
            "document_tokens": settings.max_tokens,
            "surrogate_tokens": settings.max_tokens,
            "checkpoint_every": 0,
        },
    }  # fmt: skip
    (folder / "worker.py").write_text(WORKER)
    (folder / "task.json").write_text(json.dumps(task))
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={count}",
    ]
    command = [
        sys.executable,
        *launcher,
        str(folder / "worker.py"),
        str(folder / "task.json"),
    ]
    threads = max(1, torch.get_num_threads() // count)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    if torch.cuda.device_count() < count:  # two processes cannot have one GPU each
        environment["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads((folder / f"task.{count}.json").read_text())


def compute():
    """Every arm and seed, and how far the first gradients of one and two processes differ."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [row for count in ARMS for row in launch(folder, count)]
        one, two = (torch.load(folder / f"task.{count}.pt") for count in ARMS)
    whole = torch.stack([gradient.norm() for gradient in one.values()]).norm()
    apart = torch.stack([(two[key] - one[key]).norm() for key in one]).norm() / whole
    return pd.DataFrame(rows).assign(gradient_difference=float(apart))


cde.load_pairs("pydocs")  # so that the page names what was trained on
found = recorded(
    "distributed-arms",
    settings.profile,
    compute,
    can_run=True,
    settings={
        name: value
        for name, value in vars(settings).items()
        if name not in ("profile", "role")
    }
    | {"seed": seed},
    costly=True,
)
runs = found.rows
if found.note:
    print(found.note)
difference = runs["gradient_difference"].iloc[0]
print(
    f"gradients of two processes and of one, relative difference over all parameters: {difference:.1e}"
)

# %% [markdown]
# ## What each arm comes to
#
# NDCG@10 (times 100) on a package that was not trained on, by the first process's copy. The loss is the last step's, and
# `detected` says whether `differing_process` (a digest of the weights that the processes compare) found the copies unlike:
# the trainer calls it before the first step and at every checkpoint, and stops; here it is only asked, at the end.

# %% tags=["hide-input"]
from cde.book import plots
from cde.intervals import run_interval

by_arm = {arm: rows.set_index("seed") for arm, rows in runs.groupby("arm", sort=False)}
quality = {
    arm: run_interval(100 * rows["ndcg"].to_numpy()) for arm, rows in by_arm.items()
}
summary = pd.DataFrame(
    {
        "NDCG@10": {arm: str(interval) for arm, interval in quality.items()},
        "last loss": {
            arm: f"{rows['loss'].mean():.3f}" for arm, rows in by_arm.items()
        },
        "last accuracy": {
            arm: f"{rows['accuracy'].mean():.3f}" for arm, rows in by_arm.items()
        },
        "detected": {
            arm: f"{int(rows['detected'].sum())} of {len(rows)}"
            for arm, rows in by_arm.items()
        },
    }
).rename_axis("arm")
plots.table(summary)

# %% tags=["hide-input"]
with plots.figure(width=7.0, height=2.8) as (drawing, axis):
    for place, (arm, rows) in enumerate(by_arm.items()):
        interval = quality[arm]
        axis.plot(
            [interval.low, interval.high],
            [place, place],
            marker="",
            color=plots.COLORS[0],
        )
        axis.plot(
            100 * rows["ndcg"],
            [place] * len(rows),
            "o",
            color=plots.COLORS[1],
            markersize=4,
        )
    axis.set_yticks(range(len(by_arm)), list(by_arm))
    axis.invert_yaxis()
    axis.set_xlabel(
        "NDCG@10, times 100 (points: seeds; lines: 95 % interval of their mean)"
    )
best, worst = (
    pick(quality, key=lambda arm: quality[arm].estimate) for pick in (max, min)
)
plots.show(
    drawing,
    alt=(
        f"NDCG@10 of five arms of training, a point for each seed: the highest mean is that of {best}, "
        f"{quality[best].estimate:.1f}, the lowest that of {worst}, {quality[worst].estimate:.1f}."
    ),
    caption=f"Retrieval after {settings.steps} steps, {settings.seeds} seeds an arm.",
    data=runs[["arm", "seed", "ndcg", "loss", "accuracy"]],
)

# %% [markdown]
# ## Verdict
#
# Differences are taken seed by seed against two processes that share negatives, start alike and synchronise.

# %% tags=["hide-input"]
from cde.book import claims
from cde.provenance import account

LEAK, NO_SYNC, LOCAL = (
    "cde-s103-gpu-leak",
    "cde-s103-no-sync",
    "cde-s103-local-negatives",
)


def against(arm, other="two processes"):
    """NDCG@10 points of an arm minus another's, seed by seed."""
    return run_interval(100 * (by_arm[arm]["ndcg"] - by_arm[other]["ndcg"]).to_numpy())


what = f"{settings.steps} steps of {settings.batch_size}, clustered batches"
claims.measure(
    LEAK,
    against("different weights"),
    f"{what}: noise of {settings.noise} on one copy",
    role=settings.role,
)
claims.measure(
    NO_SYNC,
    against("no synchronisation"),
    f"{what}: no synchronisation",
    role=settings.role,
)
claims.measure(
    LOCAL,
    against("two processes", "own negatives"),
    f"{what}: shared minus own negatives",
    role=settings.role,
)
claims.verdicts()

# %% tags=["hide-cell"]
verdicts = {
    name: claims.decide(claims.ledger()[name], account.measured)
    for name in (LEAK, NO_SYNC, LOCAL)
}


def found_in(arm):
    """In how many runs the copies were found to differ."""
    return f"{int(by_arm[arm]['detected'].sum())} of {len(by_arm[arm])} runs"


last_loss = {arm: rows["loss"].mean() for arm, rows in by_arm.items()}
page.answer(
    f"""**Copies that differ: {verdicts[LEAK].verdict}. No synchronisation: {verdicts[NO_SYNC].verdict}. Own negatives:
    {verdicts[LOCAL].verdict}.** Two processes have the gradient of one to {difference:.0e} of its length. After
    {settings.steps} steps, against two processes that do everything right, copies that start from different weights come to
    {against("different weights")} points of NDCG@10, copies that never exchange gradients to
    {against("no synchronisation")}, and sharing negatives makes a difference of {against("two processes", "own negatives")}
    (over {settings.seeds} seeds). The digest of the weights found copies that differ in {found_in("different weights")}, copies that
    never synchronise in {found_in("no synchronisation")} and healthy ones in {found_in("two processes")}. The last loss is
    {last_loss["different weights"]:.2f} and {last_loss["no synchronisation"]:.2f}, against {last_loss["two processes"]:.2f}
    where all is right."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper trains on eight GPUs with batches of thousands; here two processes on one machine train a truncated MiniLM for a
# few steps, and seeds are few: Student's interval over three of them is wide, and "cannot tell" is the likely outcome for
# small differences. The second copy's noise is a stronger leak than a forgotten seed of a freshly initialised layer, a weaker
# one than independent initialisations. Own negatives halve the number of negatives a query has, which batches of neighbours
# are said to make harmless.
#
# ## Run it again
#
# {rerun}
