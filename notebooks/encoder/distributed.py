# %% [markdown]
# # What can go wrong when several processes train one model?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **CDE §10.3** {cite}`morris2024contextual`. Contrastive training on several
# devices fails without an error if an embedding shows which device made it, or if gradients are not
# exchanged. Batches of neighbours (similar texts) may do without sharing negatives between devices.
# The paper gives no numbers. Here two processes train on one processor, and we cause each failure
# on purpose, measure it, and detect it.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Layers, Long, Positive, Profile, Rate, Seed, Several, Tokens

page.claims_under_test("distributed")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
seeds: Count | None = None  # training runs of each arm
steps: Long | None = None  # of the optimiser
batch_size: Several | None = None  # pairs a step, over both processes
pairs: Long | None = None  # of pydocs, to train on
layers: Layers | None = None  # of MiniLM
max_tokens: Tokens | None = None  # texts are cut there
learning_rate: Rate | None = None
noise: Positive | None = None  # of the second copy's weights, as a share of their own spread
documents: Count | None = None  # of the retrieval set
queries: Count | None = None

# %%
run = {"seeds": 3, "steps": 40, "batch_size": 64, "layers": 2, "max_tokens": 32}
tiny = {"seeds": 2, "steps": 2, "batch_size": 8, "layers": 1, "max_tokens": 12}
large = {"steps": 1000, "batch_size": 1024, "layers": 6, "max_tokens": 64}
largest = {"steps": 5000, "batch_size": 4096, "layers": 6, "max_tokens": 512}
sizes = {"pairs": 4000, "documents": 300, "queries": 200}
settings = page.settings(
    globals(),
    laptop={**run, **sizes, "learning_rate": 3e-4, "noise": 0.2},
    smoke={**tiny, "pairs": 64, "documents": 30, "queries": 10},
    fresh={"seeds": 2, "steps": 4, "pairs": 400, "documents": 60, "queries": 40},
    gpu={**large, "pairs": 10**6, "documents": 10**6},
    paper={**largest, "pairs": 10**6, "documents": 10**6},
)
if settings.seeds < 2:
    raise ValueError("an interval over seeds needs two or more; give -p seeds 2")
settings

# %% [markdown]
# ## Two processes, one gradient
#
# `cde.training` does not wrap the model in `DistributedDataParallel`, because a gradient cache
# makes many backward passes per step and only their sum may be exchanged. Each process embeds its
# half of the batch. With shared negatives it receives the other half's embeddings, computes the
# loss of the whole batch, and differentiates it with respect to its own embeddings. The parameters'
# gradients are then added up, once. That sum should equal the gradient of a single process.
#
# `torchrun` starts the module `cde_studies.encoder.faults` once with one process and once with two.
# It trains a bi-encoder in five arms:
#
# - **one process**, with the whole batch;
# - **two processes** that share negatives;
# - two processes with **own negatives** only;
# - two whose weights **differ** from the start, by noise added to the second copy;
# - two that never **synchronise** gradients.

# %%
from cde.data import load_pairs
from cde.training import TrainConfig
from cde_studies.encoder.faults import Task, train_arms

config = TrainConfig(
    architecture="bi-encoder",
    layers=settings.layers,
    batch_size=settings.batch_size,
    cluster_size=settings.batch_size,
    steps=settings.steps,
    warmup_steps=max(1, settings.steps // 10),
    learning_rate=settings.learning_rate,
    query_tokens=settings.max_tokens,
    document_tokens=settings.max_tokens,
    surrogate_tokens=settings.max_tokens,
    checkpoint_every=0,
)
amounts = {name: getattr(settings, name) for name in ("pairs", "documents", "queries", "noise")}
task = Task(config, seeds=tuple(settings.every_seed), **amounts)

# %%
load_pairs("pydocs")  # so that the page names what was trained on
key = settings.only(*run, "learning_rate", *amounts)
rows = page.experiment(
    "distributed-arms", lambda: train_arms(task), key, varies=["gradient_difference"]
)
difference = rows["gradient_difference"].iloc[0]
print(
    "gradients of two processes and of one, relative difference over all parameters: "
    f"{difference:.1e}"
)

# %% [markdown]
# **On several machines**, start the same script on each, with the machine's number and the address
# of the first; `train` gives every process the run:
#
# ```bash
# torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr 10.0.0.1 train.py
# torchrun --nnodes 2 --node-rank 1 --nproc-per-node 1 --master-addr 10.0.0.1 train.py
# ```
#
# - *Cache.* The machines may share `$CDE_CACHE` or not. Process 0 reads and writes checkpoints,
#   says where a run resumes, and sends the finished run to the machines whose store lacks it.
# - *Batches.* Two kinds of processor round differently, and clusters made on each may differ by a
#   pair. So process 0's vectors, clusters and batches are used; they are sent where others differ.
# - *The same run.* Config, data, starting weights and precision must be the same everywhere. A
#   machine that would train a different run is named before anything is trained.
# - *A lost machine.* The others end with an error. A closed connection is noticed at once; a silent
#   one after `CDE_TIMEOUT` seconds, or half an hour where it is not set. Start all machines again
#   with the same commands, and the run resumes from its last checkpoint.
# - *Network.* `GLOO_SOCKET_IFNAME` (on GPUs `NCCL_SOCKET_IFNAME`) names the interface, where a
#   machine's own name does not lead to it.
#
# The page *Reliability* reports the results of such runs between two hosts.
#
# ## How each arm scores
#
# The table gives NDCG@10 (times 100) on a package that was not trained on, measured with the first
# process's copy, and the loss of the last step. `detected` says in how many runs
# `differing_process` found that the copies differ; it compares a digest of the weights between the
# processes. The trainer calls it before the first step and at every checkpoint, and stops if they
# differ; here it is only called at the end.

# %%
import pandas as pd

from cde.intervals import run_interval

by_arm = {arm: runs.set_index("seed") for arm, runs in rows.groupby("arm", sort=False)}
quality = {arm: run_interval(100 * runs["ndcg"]) for arm, runs in by_arm.items()}


def detected(arm):
    """In how many runs the copies were found to differ."""
    return f"{int(by_arm[arm]['detected'].sum())} of {len(by_arm[arm])}"


def line(arm):
    """A line of the table: what an arm comes to."""
    return {
        "NDCG@10": str(quality[arm]),
        "last loss": f"{by_arm[arm]['loss'].mean():.3f}",
        "last accuracy": f"{by_arm[arm]['accuracy'].mean():.3f}",
        "detected": detected(arm),
    }


plots.table(pd.DataFrame({arm: line(arm) for arm in by_arm}).T.rename_axis("arm"))

# %%
xlabel = "NDCG@10, times 100 (points: seeds; lines: 95 % interval of their mean)"
with plots.figure(width=7.0, height=2.8) as (drawing, axis):
    dots = {arm: {"": 100 * runs["ndcg"]} for arm, runs in by_arm.items()}
    means = {arm: {"": interval} for arm, interval in quality.items()}
    charts.seed_dots(axis, dots, xlabel, intervals=means)

# %%
plots.show(
    drawing,
    caption=f"Retrieval after {settings.steps} steps, {settings.seeds} seeds per arm.",
    data=rows[["arm", "seed", "ndcg", "loss", "accuracy"]],
)

# %% [markdown]
# ## Verdict
#
# Differences are taken seed by seed against two processes that share negatives, start alike and
# synchronise. There is only one test collection, so intervals are Student's, over seeds alone.

# %%
LEAK, NO_SYNC = "cde-s103-gpu-leak", "cde-s103-no-sync"
LOCAL = "cde-s103-local-negatives"


def gain(arm, over="two processes"):
    """NDCG@10 points of an arm minus another's, seed by seed."""
    return 100 * (by_arm[arm]["ndcg"] - by_arm[over]["ndcg"])


what = f"{settings.steps} steps of {settings.batch_size}, clustered batches"
shared = gain("two processes", over="own negatives")
noisy = f"{what}: noise of {settings.noise} on one copy"
leaking = claims.measure_runs(LEAK, gain("different weights"), noisy)
apart = claims.measure_runs(NO_SYNC, gain("no synchronisation"), f"{what}: no synchronisation")
claims.measure_runs(LOCAL, shared, f"{what}: shared minus own negatives")
claims.verdicts()

# %% tags=["hide-cell"]
page.answer(
    f"""Starting the copies from different weights changes NDCG@10 by {claims.shown(leaking)}
    points; never exchanging gradients changes it by {claims.shown(apart)}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper trains on eight GPUs with batches of thousands. Here two processes on one machine train
# a truncated MiniLM for a few steps. Seeds are few: Student's interval over three of them is wide,
# so "cannot tell" is the likely outcome for small differences. The noise on the second copy is a
# stronger leak than a forgotten seed of a freshly initialised layer, and a weaker one than
# independent initialisations. Own negatives halve the number of negatives per query, which is said
# to be harmless in batches of neighbours.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("distributed")
