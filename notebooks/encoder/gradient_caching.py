# %% [markdown]
# # Can large batches be trained in little memory, or by several processes?
#
# This page answers **CDE §4.2**, on contexts that texts share and on two-stage gradient caching,
# and **§10.3** {cite}`morris2024contextual`. The contrastive loss couples all texts of a batch, so
# a plain step keeps the activations of every text in memory at once. The paper extends gradient
# caching (GradCache) to two encoders, to trade computation, "running each transformer forward pass
# twice", for memory. A batch can also be split over several devices. Then training fails without an
# error if the copies of the model differ, so that an embedding shows which device made it, or if
# gradients are not exchanged. The paper has no numbers. Here we measure memory and time, then cause
# each failure on purpose, and detect it.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Layers, Long, Profile, Rate, Seed, Several, Tokens

page.claims_under_test("gradient_caching")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
layers: Layers | None = None  # of each stage, where memory and time are measured
tokens: Tokens | None = None  # of the longest text there; the shortest has half as many
context_size: Count | None = None  # context documents
chunk_tokens: Count | None = None  # computed at once, padding included
memory_batches: list[Count] | None = None  # pairs a step; the claim divides last by first
uncached_batches: list[Count] | None = None  # of those, without the cache as well
time_batches: list[Count] | None = None
seeds: Count | None = None  # training runs, by one process and by two
steps: Long | None = None  # of the optimiser, in each
batch_size: Several | None = None  # pairs a step, over both processes
pairs: Long | None = None  # of pydocs, to train on
trained_layers: Layers | None = None  # of MiniLM
max_tokens: Tokens | None = None  # texts are cut there
learning_rate: Rate | None = None

# %%
laptop = {"layers": 6, "tokens": 16, "context_size": 32, "chunk_tokens": 4096}
laptop |= {"memory_batches": [256, 1024, 4096], "uncached_batches": [256, 1024]}
laptop |= {"repeats": 2, "rounds": 5}  # of each measurement of memory, and of time
laptop |= {"time_batches": [256], "time_chunks": [256, 1024, 4096]}  # pairs; tokens, at the last
laptop |= {"own_contexts": [16, 64], "own_pairs": 4}  # contexts of one text alone: documents
smoke = {"layers": 1, "chunk_tokens": 64, "memory_batches": [8, 32], "uncached_batches": [8]}
smoke |= {"time_batches": [8], "time_chunks": [64, 128], "rounds": 2}
smoke |= {"own_contexts": [2, 4], "own_pairs": 2}
quick = {"memory_batches": [64, 256], "time_batches": [64], "time_chunks": [256, 1024]}
quick |= {"own_pairs": 2}
large = {"chunk_tokens": 32768, "repeats": 5, "rounds": 20, "trained_layers": 6}
large |= {"pairs": 10**6, "documents": 10**6}
gpu = {"tokens": 64, "context_size": 64, "uncached_batches": [256, 1024, 4096]}
gpu |= {"time_batches": [256, 1024, 4096], "time_chunks": [4096, 16384, 65536]}
paper = {"tokens": 512, "context_size": 512, "time_batches": [256, 1024]}
run = {"seeds": 10, "steps": 40, "batch_size": 64, "trained_layers": 2, "max_tokens": 32}
run |= {"pairs": 4000, "learning_rate": 3e-4, "noise": 0.2, "documents": 300, "queries": 200}
tiny = {"seeds": 2, "steps": 2, "batch_size": 8, "trained_layers": 1, "max_tokens": 12}
tiny |= {"pairs": 64, "documents": 30, "queries": 10}
few = {"seeds": 2, "steps": 4, "pairs": 400, "documents": 60, "queries": 40}
settings = page.settings(
    globals(),
    laptop=laptop | run,
    smoke=smoke | tiny,
    fresh={"layers": 2, **quick, "uncached_batches": [64], "rounds": 2, **few},
    gpu=large | gpu | {"steps": 1000, "batch_size": 1024, "max_tokens": 64},
    paper=large
    | paper
    | {"time_chunks": [16384, 65536], "steps": 5000, "batch_size": 4096, "max_tokens": 512},
)
if settings.seeds < 2:
    raise ValueError("an interval needs two seeds or more")
settings

# %% [markdown]
# ## A batch in chunks
#
# What fills the memory is the *graph*: all that a forward pass keeps for the backward pass. The
# loss needs only embeddings, which are small. So texts are embedded twice: all without a graph, for
# the loss, then again a chunk at a time with one.
#
# 1. The first stage embeds the context documents, without a graph.
# 2. The second stage embeds queries and documents in that context, without a graph.
# 3. The loss is computed from the embeddings alone, and with it the gradient of each embedding.
# 4. The second stage runs again, with a graph, one chunk at a time. The gradients of the chunk's
#    embeddings flow into its parameters, and are collected on the context vectors.
# 5. The first stage runs again, one chunk at a time, and the collected gradients flow into its
#    parameters.
#
# By the chain rule the sum over chunks is the gradient of the whole graph, provided that each chunk
# computes the same numbers both times. Dropout must therefore drop the same units both times, so
# the state of the random generators is kept with each chunk.
#
# The model is a contextual encoder made of MiniLM's first layers. Texts are random words, because
# neither time nor memory depends on which words they are. First the gradients are compared, in
# float32, for a small batch with everything switched on: dropout in the layers and of the context,
# a hard negative for each query, the filter's mask, and chunks of which the last is shorter than
# the others.

# %%
import pandas as pd
import torch

from cde_studies.encoder.steps import random_step, step_memory
from cde_studies.encoder.timing import in_own_processes, in_turns, memory_is_measured

threads = torch.get_num_threads()
torch.set_num_threads(1)
depth = {"layers": settings.layers, "tokens": settings.tokens}
on = {"hard": 1, "dropout": 0.1, "sequence_dropout": 0.1}
model, step = random_step(9, settings.seed, context_size=11, **depth, **on)


def gradient(cache):
    """The gradient of all parameters, as one vector."""
    step(4 * settings.tokens, cache, half=False)
    every = (parameter.grad for parameter in model.parameters())
    return torch.cat([one.double().flatten() for one in every if one is not None])


whole = gradient(cache=False)
apart = (gradient(cache=True) - whole).norm() / whole.norm()
print(f"gradients with the cache and without: relative difference {apart:.1e}")

# %% [markdown]
# ### Memory
#
# Does the memory of a step grow with the batch? The loss itself has to hold the embeddings, and
# blocks of logits. Each measurement runs in its own process, so that no earlier one has left memory
# behind for it. On a CPU it is the highest resident memory that the kernel has seen, with one
# thread; on a GPU it is what PyTorch had allocated. *Above the model* subtracts what was there once
# model and texts were loaded; gradients are part of it, and the optimiser is not.

# %%
options = {**depth, "context_size": settings.context_size, "attention": "cached"}


def measure_memory():
    """Peaks of every batch size, cached and not, each in a process of its own."""
    arms = [(pairs, True) for pairs in settings.memory_batches]
    arms += [(pairs, False) for pairs in settings.uncached_batches]
    rows, jobs = [], []
    for pairs, cache in sorted(arms, reverse=True):
        for repeat in range(settings.repeats):
            rows.append({"pairs": pairs, "repeat": repeat, "cached": cache})
            jobs.append((pairs, settings.seed + repeat, cache, settings.chunk_tokens, options))
    peaks = in_own_processes(step_memory, jobs)
    return pd.DataFrame([row | peak for row, peak in zip(rows, peaks, strict=True)])


batches = [settings.memory_batches, settings.uncached_batches]
key = settings.only("chunk_tokens", "repeats", batches=batches, **options)
memory = page.experiment(
    "gradient-caching-memory",
    measure_memory,
    key,
    can_run=memory_is_measured(),
    varies=["above", "process"],
)
if memory is None:
    raise OSError("leave the parameters as they are, or run the chapter on Linux or with a GPU")

# %%
means = memory.groupby(["cached", "pairs"])[["above", "process"]].mean().reset_index()
with plots.figure(width=6.4, height=3.4) as (drawing, axes):
    kinds = {"with the cache": means[means["cached"]], "without": means[~means["cached"]]}
    charts.curves(axes, {kind: some.set_index("pairs")["above"] for kind, some in kinds.items()})
    axes.set_xscale("log", base=2)
    axes.set_xticks(settings.memory_batches, [f"{n:,}" for n in settings.memory_batches])
    axes.set(
        ylim=(0, 1.08 * means["above"].max()),
        xlabel="pairs a step",
        ylabel="peak memory above the model, MiB",
    )
    axes.legend()
plots.show(
    drawing,
    caption=(
        f"Peak memory of one step, with gradient caching and without; means over "
        f"{settings.repeats} processes, chunks of "
        f"{settings.chunk_tokens:,} tokens, layers a stage: {settings.layers}, texts of up to "
        f"{settings.tokens} tokens."
    ),
    data=means,
    answers="CDE §4.2, two-stage gradient caching",
    lead=True,
)

# %% [markdown]
# ### Time
#
# Cached and uncached steps of the same batch take turns, in the same chunks, so that a machine that
# slows down slows both; the first round warms up and does not count. Then the size of a chunk
# varies (exploratory): smaller chunks hold less and cost more, because each call has a fixed cost.

# %%
from cde.intervals import run_interval
from cde.progress import progress


def time_steps(pairs):
    """Seconds of cached and uncached steps, and of cached steps in chunks of several sizes."""
    _, one = random_step(pairs, settings.seed, **options)
    arms = [("cache", settings.chunk_tokens, cache) for cache in (True, False)]
    if pairs == settings.time_batches[-1]:
        arms += [("chunk", size, True) for size in settings.time_chunks]
    jobs = {place: lambda arm=arm: float(one(*arm[1:]).loss) for place, arm in enumerate(arms)}
    arms = pd.DataFrame(arms, columns=["part", "chunk_tokens", "cached"])
    return in_turns(jobs, settings.rounds).join(arms, on="step").assign(pairs=pairs)


def measure_time():
    """All batch sizes, one after the other."""
    every = progress(settings.time_batches, "time", unit="batch sizes")
    return pd.concat([time_steps(pairs) for pairs in every], ignore_index=True)


torch.set_num_threads(threads)
widths = [settings.chunk_tokens, settings.time_chunks]
key = settings.only("rounds", chunk_tokens=widths, batches=settings.time_batches, **options)
seconds = page.experiment("gradient-caching-time", measure_time, key)

# %%
timed = seconds[seconds["part"] == "cache"]
timed = timed.pivot_table(index=["pairs", "round"], columns="cached", values="seconds")
by_pairs = (timed[True] / timed[False]).groupby("pairs")
overhead = {count: run_interval(ratio) for count, ratio in by_pairs}
by_chunk = seconds[seconds["part"] == "chunk"]
by_chunk = by_chunk.pivot_table(index="round", columns="chunk_tokens", values="seconds")
over = by_chunk.div(by_chunk[by_chunk.columns.max()], axis=0)
rows = {f"{count:,} pairs, cached over uncached": ratio for count, ratio in overhead.items()}
rows |= {f"chunks of {size:,} tokens, over the largest": run_interval(over[size]) for size in over}
plots.table(pd.DataFrame({"time of a step": rows}).map(str))

# %% [markdown]
# ### A context for each text
#
# The paper gives a whole batch one context, because with a context for each text the first stage
# would embed that many documents for each of them. How much longer does a step take with four times
# the context? Here both kinds embed their texts one by one, with gradient caching and the paper's
# attention, so that only the number of contexts differs.

# %%
from cde_studies.encoder.steps import context_steps
from cde_studies.encoder.timing import ratios

sizes = settings.own_contexts


def time_contexts():
    """Seconds of steps whose texts share a context, and of steps in which each has its own."""
    work = (settings.own_pairs, sizes, settings.chunk_tokens, settings.seed)
    return in_turns(context_steps(*work, **depth), settings.rounds)


key = settings.only("rounds", "chunk_tokens", "own_contexts", "own_pairs", **depth)
by_context = page.experiment("gradient-caching-contexts", time_contexts, key)
dearer = {
    kind: run_interval(ratios(by_context, f"{kind}, {sizes[-1]}", f"{kind}, {sizes[0]}"))
    for kind in ("own", "one")
}
named = {"own": "a context for each text", "one": "one context"}
summary = {f"{named[kind]}: {sizes[-1]} documents over {sizes[0]}": dearer[kind] for kind in named}
plots.table(pd.DataFrame({"time of a step": summary}).map(str))

# %% [markdown]
# ## A batch split over two processes
#
# `cde.training` does not wrap the model in `DistributedDataParallel`, because a gradient cache
# makes many backward passes per step and only their sum may be exchanged. Each process embeds its
# half of the batch. With shared negatives it receives the other half's embeddings, computes the
# loss of the whole batch, and differentiates it with respect to its own embeddings. The parameters'
# gradients are then added up, once. That sum should equal the gradient of a single process.
#
# `torchrun` starts the module `cde_studies.encoder.faults` once with one process and once with two,
# on one processor. ({doc}`../../using` says how to train on several machines.) It trains a
# bi-encoder in five arms:
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
    layers=settings.trained_layers,
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
load_pairs("pydocs")  # so that the page names what was trained on
key = settings.only("seeds", "steps", "batch_size", "max_tokens", "learning_rate", **amounts)
key["layers"] = settings.trained_layers
rows = page.experiment(
    "distributed-arms", lambda: train_arms(task), key, varies=["gradient_difference"]
)
unlike = rows["gradient_difference"].iloc[0]
print(f"gradients of two processes and of one: relative difference {unlike:.1e}")

# %% [markdown]
# NDCG@10 (times 100) is measured with the first process's copy, on a package that was not trained
# on; the loss is that of the last step. `detected` says in how many runs `differing_process`, which
# compares a digest of the weights, found that the copies differ. The trainer calls it before the
# first step and at every checkpoint, and stops if they differ; here it is only called at the end.

# %%
by_arm = {arm: runs.set_index("seed") for arm, runs in rows.groupby("arm", sort=False)}
quality = {arm: run_interval(100 * runs["ndcg"]) for arm, runs in by_arm.items()}
summary = pd.DataFrame({"NDCG@10": quality}).map(str).rename_axis("arm")
summary["last loss"] = [f"{runs['loss'].mean():.3f}" for runs in by_arm.values()]
summary["detected"] = [f"{runs['detected'].sum()} of {len(runs)}" for runs in by_arm.values()]
plots.table(summary)

# %% [markdown]
# ## Verdict
#
# Memory is tested above the loaded model, at the claim's two batch sizes, with Student's interval
# over processes with other texts. Time is tested at the largest batch, with an interval over rounds
# on this machine; smaller batches, where there is little to amortise, are exploratory. Steps with a
# context for each text are tested at the claim's two sizes, with an interval over rounds.
# Differences between arms are taken seed by seed against two processes that share negatives, start
# alike and synchronise. There is only one test collection, so their intervals are Student's, over
# seeds alone. After three seeds they were too wide to tell; seven further seeds (computed in
# float32, the first three in bfloat16) decide, with the rule as it was.

# %%
first, last = settings.memory_batches[0], settings.memory_batches[-1]
peaks = memory[memory["cached"]].pivot_table(index="repeat", columns="pairs", values="above")
above = run_interval(peaks[last] / peaks[first])
stage = f"MiniLM, layers a stage: {settings.layers}, attention cached"
what = f"{stage}, {last:,} pairs over {first:,}, above the loaded model"
as_claimed = (first, last) == (256, 4096) or settings.profile == "smoke"
claims.measure("cde-s42-gradcache-memory", above, what, as_claimed)
slowest = settings.time_batches[-1]
for count, interval in overhead.items():
    what = f"{count:,} pairs, cached over uncached"
    claims.measure("cde-s42-gradcache-time", interval, what, count == slowest)
what = f"{settings.layers} layer(s) of MiniLM a stage, {sizes[-1]} documents over {sizes[0]}"
as_claimed = sizes == [16, 64] or settings.profile == "smoke"
for kind, times in dearer.items():
    tests = as_claimed and kind == "own"
    claims.measure("cde-s42-own-contexts-cost", times, f"{named[kind]}, {what}", tests)


# %%
def gain(arm, over):
    """NDCG@10 points of an arm minus another's, seed by seed."""
    return 100 * (by_arm[arm]["ndcg"] - by_arm[over]["ndcg"])


HEALTHY, NO_SYNC = "two processes", "cde-s103-no-sync"
what = f"{settings.steps} steps of {settings.batch_size}, clustered batches"
tested = {
    claim: claims.measure_fresh_runs(claim, gain(*pair), f"{what}: {said}")  # seeds 3 to 9 decide
    for claim, pair, said in (
        (
            "cde-s103-gpu-leak",
            ("different weights", HEALTHY),
            f"noise of {settings.noise} on one copy",
        ),
        (NO_SYNC, ("no synchronisation", HEALTHY), "no synchronisation"),
        ("cde-s103-local-negatives", (HEALTHY, "own negatives"), "shared minus own negatives"),
    )
}
claims.verdicts()

# %% tags=["hide-cell"]
training = claims.apart(
    "Unsynchronised processes' NDCG@10", tested[NO_SYNC], "synchronised", "points"
)
page.answer(
    f"""Caching costs {overhead[slowest].estimate:.2f} times the time; {last / first:g} times the
    pairs need {above.estimate:.2f} times the memory (model excluded). {training}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper trains models of 137 million parameters (six layers in its small setting) on texts of up
# to 512 tokens, on eight GPUs. There the graph of one chunk and the model's gradients are far
# larger relative to the embeddings and the loss's matrices. At `laptop` the stages are MiniLM's six
# layers and a chunk holds 4,096 tokens, so the growing part weighs more, and the ratio of memory is
# a harder test. Memory and time are measured with attention `cached`, the gradients with the
# paper's, `full`. Where each text has a context of its own, texts are embedded one at a time,
# because no two of them read the same vectors. That costs something for each text, however small
# its context, so the time grows less than the tokens; longer context documents would bring it
# nearer to proportion. Two processes train a truncated MiniLM for a few steps.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("gradient_caching")
