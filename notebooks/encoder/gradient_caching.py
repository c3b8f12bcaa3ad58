# %% [markdown]
# # Large batches in the memory of small ones?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **CDE §4.2, two-stage gradient caching** {cite}`morris2024contextual`. The
# contrastive loss couples all texts of a batch, so a plain step keeps the activations of every text
# in memory at once. The paper extends gradient caching (GradCache) to two encoders, to trade
# computation, "running each transformer forward pass twice", for memory. It reports no numbers for
# either.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Layers, Profile, Seed, Tokens

page.claims_under_test("gradient_caching")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
layers: Layers | None = None  # of each stage
tokens: Tokens | None = None  # of the longest text; the shortest has half as many
context_size: Count | None = None  # context documents
chunk_tokens: Count | None = None  # computed at once, padding included
memory_batches: list[Count] | None = None  # pairs a step; the claim divides last by first
uncached_batches: list[Count] | None = None  # of those, without the cache as well
repeats: Count | None = None  # of each measurement of memory, with other texts
time_batches: list[Count] | None = None
time_chunks: list[Count] | None = None  # tokens a chunk, at the largest of time_batches
rounds: Count | None = None  # of each measurement of time

# %%
laptop = {"layers": 6, "tokens": 16, "context_size": 32, "chunk_tokens": 4096}
laptop |= {"memory_batches": [256, 1024, 4096], "uncached_batches": [256, 1024], "repeats": 2}
laptop |= {"time_batches": [256], "time_chunks": [256, 1024, 4096], "rounds": 5}
smoke = {"layers": 1, "chunk_tokens": 64, "memory_batches": [8, 32], "uncached_batches": [8]}
smoke |= {"time_batches": [8], "time_chunks": [64, 128], "rounds": 2}
quick = {"memory_batches": [64, 256], "time_batches": [64], "time_chunks": [256, 1024]}
large = {"chunk_tokens": 32768, "repeats": 5, "rounds": 20}
gpu = {"tokens": 64, "context_size": 64, "uncached_batches": [256, 1024, 4096]}
gpu |= {"time_batches": [256, 1024, 4096], "time_chunks": [4096, 16384, 65536]}
paper = {"tokens": 512, "context_size": 512, "time_batches": [256, 1024]}
settings = page.settings(
    globals(),
    laptop=laptop,
    smoke=smoke,
    fresh={"layers": 2, **quick, "uncached_batches": [64], "rounds": 2},
    gpu=large | gpu,
    paper=large | paper | {"time_chunks": [16384, 65536]},
)
if settings.repeats < 2 or settings.rounds < 2:
    raise ValueError("an interval needs repeats and rounds of 2 or more")
settings

# %% [markdown]
# ## Five steps
#
# 1. The first stage embeds the context documents, chunk by chunk, without a graph.
# 2. The second stage embeds queries and documents in that context, chunk by chunk, without a graph.
# 3. The loss is computed from the embeddings alone, and with it the gradient of each embedding.
# 4. The second stage runs again, with a graph, one chunk at a time. The gradients of the chunk's
#    embeddings flow into its parameters, and are collected on the context vectors.
# 5. The first stage runs again, one chunk at a time, and the collected gradients flow into its
#    parameters.
#
# By the chain rule the sum over chunks is the gradient of the whole graph, provided that each chunk
# computes the same numbers both times. Dropout must therefore drop the same units both times, so
# the state of the random generators is kept with each chunk. A step, as this page measures it, ends
# with the gradients; the optimiser's memory does not depend on the batch.
#
# The model is a contextual encoder made of MiniLM's first layers. Texts are random words, because
# neither time nor memory depends on which words they are. On a CPU, gradients and memory are
# measured in one thread, which other programs on the machine disturb less.
#
# ## The same gradients
#
# We take a small batch with everything switched on: dropout in the layers and of the context, a
# hard negative for each query, the filter's mask, and chunks of which the last is shorter than the
# others, in float32. The reference is one graph of all chunks.

# %%
import pandas as pd
import torch

from cde_studies.encoder.steps import random_step

threads = torch.get_num_threads()
torch.set_num_threads(1)
CHUNK, CONTEXT = 4 * settings.tokens, 11
depth = {"layers": settings.layers, "tokens": settings.tokens}
on = {"hard": 1, "dropout": 0.1, "sequence_dropout": 0.1}
model, step = random_step(9, settings.seed, context_size=CONTEXT, **depth, **on)


def gradients(cache):
    """The gradient of each parameter that has one."""
    step(CHUNK, cache, half=False)
    named = model.named_parameters()
    return {name: p.grad.double() for name, p in named if p.grad is not None}


whole, cached = gradients(cache=False), gradients(cache=True)
if whole.keys() != cached.keys():
    raise AssertionError("the two ways reach different parameters")
lengths = {name: float(gradient.norm()) for name, gradient in whole.items()}


# %%
def compare(other):
    """Each parameter's difference from the whole graph's gradient, relative to its length."""
    table = pd.DataFrame({"parameter": list(whole), "length": list(lengths.values())})
    table["stage"] = ["first" if name.startswith("first") else "second" for name in whole]
    table["relative"] = [float((other[name] - whole[name]).norm()) for name in whole]
    table["relative"] /= table["length"]
    # a bias of keys moves all scores of a softmax alike: its gradient is rounding alone
    total = float(torch.tensor(list(lengths.values())).norm())
    return table[table["length"] >= 1e-6 * total]


# %%
counted = compare(cached)
largest = counted["relative"].max()
print(f"{len(counted)} parameters; largest relative difference {largest:.1e}")
print(f"{len(whole) - len(counted)} more have no gradient but rounding")
worst = counted.nlargest(6, "relative")[["parameter", "length", "relative"]]
plots.table(worst.reset_index(drop=True))

# %% [markdown]
# ### If a chunk is forgotten
#
# As a control: would the comparison notice a mistake? Step 5 must run every chunk of the context
# again, including the last, shorter one. The authors' code, under data parallelism, loses all but
# the first. Here we set the gradients of the forgotten chunks to zero. Nothing fails and the loss
# is the same; only the first stage's gradient is wrong.


# %%
def with_hook(hook):
    """Gradients of a cached step, with something done to what the first stage returns."""
    handle = model.first_stage.register_forward_hook(hook)
    try:
        return gradients(cache=True)
    finally:
        handle.remove()


def forgetful(remembered):
    """Gradients when step 5 reaches only those of the context's chunks."""
    number = iter(range(CONTEXT))

    def forget(module, arguments, vectors):
        if torch.is_grad_enabled() and next(number) not in remembered:
            return vectors.detach() + 0 * vectors
        return vectors

    return with_hook(forget)


seen = []
with_hook(lambda *_: seen.append(torch.is_grad_enabled()))
chunks = sum(seen)  # each runs twice, once with a graph

# %%
firsts = [name for name in whole if name.startswith("first")]
reference = torch.cat([whole[name].flatten() for name in firsts])


def line(other):
    """A line of the table: how far off the gradients of both stages are."""
    flat = torch.cat([other[name].flatten() for name in firsts])
    second = compare(other).query("stage == 'second'")
    return {
        "first stage: difference": float((flat - reference).norm() / reference.norm()),
        "cosine": float(torch.cosine_similarity(flat, reference, dim=0)),
        "length": float(flat.norm() / reference.norm()),
        "second stage: largest difference": second["relative"].max(),
    }


forgotten = {
    "none": line(cached),
    "the last": line(forgetful(range(chunks - 1))),
    "all but the first": line(forgetful(range(1))),
}
plots.table(pd.DataFrame(forgotten).T.rename_axis("chunks forgotten"))

# %% [markdown]
# ## Memory
#
# Each measurement runs in its own process, so that no earlier one has left memory behind for it. On
# a CPU it is the highest resident memory that the kernel has seen; on a GPU it is what PyTorch had
# allocated. The C library, glibc, keeps freed memory for later, and how much differs from run to
# run. So the processes tell it to give memory back (`MALLOC_TRIM_THRESHOLD_`). *Above the model*
# subtracts what was there once model and texts were loaded; gradients are part of it. The *whole
# process* includes the libraries, the model and the filter's mask. The mask has an entry for each
# query and document, and exists before the step begins. Memory above the model decides the claim.
# Does it grow with the batch? Steps of thousands of pairs take a while, so the page uses a stored
# record where there is one.

# %%
from cde_studies.encoder.steps import step_memory
from cde_studies.encoder.timing import in_own_processes, in_turns, memory_is_measured

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


# %%
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
    kinds = {"cached": means[means["cached"]], "uncached": means[~means["cached"]]}
    charts.curves(axes, {kind: some.set_index("pairs")["above"] for kind, some in kinds.items()})
    axes.set_xscale("log", base=2)
    axes.set_xticks(settings.memory_batches, [f"{n:,}" for n in settings.memory_batches])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("pairs a step")
    axes.set_ylabel("peak above the model, MiB")
    axes.legend()

# %% tags=["hide-input"]
first, last = settings.memory_batches[0], settings.memory_batches[-1]
level = means[means["cached"]].set_index("pairs")["above"]
plots.show(
    drawing,
    caption=(
        f"Peak memory of one step, means over {settings.repeats} processes; chunks of "
        f"{settings.chunk_tokens:,} tokens, {settings.layers} layer(s) a stage, texts of up to "
        f"{settings.tokens} tokens."
    ),
    data=means,
    answers="CDE §4.2, two-stage gradient caching",
)

# %%
from cde.intervals import run_interval


def growth(column):
    """Largest batch over smallest, with the cache, for each repeat."""
    rows = memory[memory["cached"]].pivot_table(index="repeat", columns="pairs", values=column)
    return run_interval(rows[last] / rows[first])


above, process = growth("above"), growth("process")
print(f"{last:,} pairs over {first:,}: {above} above the model, {process} whole process")

# %% [markdown]
# The loss needs memory that has to grow with the batch: the embeddings, held several times over (as
# computed, scaled to length 1, and their gradients), and blocks of logits, which are computed one
# at a time, and again for the backward pass. The table gives the sizes of these, and of the mask,
# which is not part of what was measured above the model. They explain a part of the growth; we did
# not measure where the rest comes from.

# %%
import numpy as np

n = np.array(settings.memory_batches)
block = np.minimum(n, np.maximum(64, 2**20 // n))  # rows of logits that the loss holds at once
parts = {
    "all embeddings, MiB": 2 * n * model.dim * 4 / 2**20,
    "a block of logits, MiB": block * n * 4 / 2**20,
    "measured above the model, MiB": level[n].to_numpy(),
    "mask, there before the step, MiB": n * n / 2**20,
}
plots.table(pd.DataFrame(parts, index=pd.Index(n, name="pairs")).round(1))

# %% [markdown]
# ## Time
#
# Cached and uncached steps of the same batch take turns, in the same chunks, so that a machine that
# slows down slows both; the first round warms up and does not count. Then we vary the size of a
# chunk (exploratory): smaller chunks hold less and cost more, because each call has a fixed cost
# and each chunk adds a whole gradient of the word embeddings, used rows or not, to the sum so far.
# These times also come from a record where there is one; they use all the machine's threads.

# %%
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
    torch.set_num_threads(threads)
    every = progress(settings.time_batches, "time", unit="batch sizes")
    return pd.concat([time_steps(pairs) for pairs in every], ignore_index=True)


# %%
widths = [settings.chunk_tokens, settings.time_chunks]
key = settings.only("rounds", chunk_tokens=widths, batches=settings.time_batches, **options)
seconds = page.experiment("gradient-caching-time", measure_time, key)

# %%
timed = seconds[seconds["part"] == "cache"]
timed = timed.pivot_table(index=["pairs", "round"], columns="cached", values="seconds")
by_pairs = (timed[True] / timed[False]).groupby("pairs")
overhead = {pairs: run_interval(ratio) for pairs, ratio in by_pairs}
middle = 1000 * timed.groupby("pairs").median()
columns = {"cached, ms": middle[True], "uncached, ms": middle[False]}
plots.table(pd.DataFrame({**columns, "cached over uncached": overhead}))

# %%
by_chunk = seconds[seconds["part"] == "chunk"]
by_chunk = by_chunk.pivot_table(index="round", columns="chunk_tokens", values="seconds")
over = by_chunk.div(by_chunk[by_chunk.columns.max()], axis=0)
rows = [(size, 1000 * by_chunk[size].median(), run_interval(over[size])) for size in by_chunk]
plots.table(pd.DataFrame(rows, columns=["tokens a chunk", "ms", "over the largest"]))

# %% [markdown]
# ## Verdict
#
# Memory is tested above the loaded model, at the claim's two batch sizes, with Student's interval
# over processes with other texts; the whole process is reported as exploratory. Time is tested at
# the largest batch, with an interval over rounds on this machine; smaller batches, where there is
# little to amortise, are exploratory.

# %%
MEMORY, TIME = "cde-s42-gradcache-memory", "cde-s42-gradcache-time"
stage = f"{settings.layers} layer(s) of MiniLM a stage, attention cached"
what = f"{stage}, {last:,} pairs over {first:,}"
as_claimed = (first, last) == (256, 4096) or settings.profile == "smoke"
role = "test" if as_claimed else "exploratory"
claims.measure(MEMORY, above, f"{what}, above the loaded model", role)
claims.measure(MEMORY, process, f"{what}, whole process", "exploratory")
for pairs, interval in overhead.items():
    role = "test" if pairs == settings.time_batches[-1] else "exploratory"
    claims.measure(TIME, interval, f"{pairs:,} pairs, cached over uncached", role)
claims.verdicts()

# %% tags=["hide-cell"]
slowest = settings.time_batches[-1]
page.answer(
    f"""With caching, the largest batch needs {claims.shown(above, 2)} times the memory of the
    smallest, not counting the model; each step takes {claims.shown(overhead[slowest], 2)} times as
    long."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper trains models of 137 million parameters (six layers in its small setting) on texts of up
# to 512 tokens, on GPUs. There the graph of one chunk and the model's gradients are far larger
# relative to the embeddings and the loss's matrices. At `laptop` the stages are MiniLM's six layers
# and a chunk holds 4,096 tokens, so the growing part weighs more, and the ratio of memory is a
# harder test. Memory and time are measured with attention `cached`, the gradients with the paper's,
# `full`, where the context before each text makes a chunk's graph larger still. The number of
# context documents does not grow with the batch here, as in the paper.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("gradient_caching")
