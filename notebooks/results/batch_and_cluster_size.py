# %% [markdown]
# # Do small clusters and large batches make better embeddings?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **CDE Figs. 2, 3, 9, 10, 12 and 13, §6 and §10.5** {cite}`morris2024contextual`.
# The paper varies batch size and cluster size, with the filter for false negatives and without. It
# reports that with the filter small clusters help and large batches add little. Without it, large
# clusters and large batches are better. And at a given batch size harder batches go with better
# retrieval. Its text gives no numbers, and its figures no spread between runs. Here are both.

# %%
from typing import Literal

from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Layers, Long, Profile, Rate, Seed, Several

page.claims_under_test("batch_and_cluster_size")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0  # the first seed
seeds: Count | None = None  # training runs of each arm
batch_sizes: list[Several] | None = None
cluster_sizes: list[Count] | None = None
pairs_seen: Long | None = None  # by a run, over all its steps
attention: Literal["full", "cached"] | None = None  # of the contextual encoder: full or cached
supervised_cluster_sizes: list[Count] | None = None  # of the second phase
data: str | None = None  # pairs to train on
pairs: Long | None = None
context_size: Count | None = None  # at most the smallest batch size
layers: Layers | None = None  # of the start's transformer, in either stage
learning_rate: Rate | None = None

# %%
from cde_studies import recipes

tiny = {"batch_sizes": [8, 16], "cluster_sizes": [8, 32], "pairs_seen": 48}
less = {"batch_sizes": [16, 32], "cluster_sizes": [16, 64], "pairs_seen": 128}
small = {"batch_sizes": [32, 128], "cluster_sizes": [32, 128, 512], "pairs_seen": 3200}
sizes = [64, 256, 1024, 4096]
large = {"batch_sizes": sizes, "cluster_sizes": sizes, "pairs_seen": 524_288, "attention": "full"}
large |= {"supervised_cluster_sizes": [64, 256, 1024]}
largest = {"batch_sizes": [*sizes, 16_384], "pairs_seen": 235_000_000, "context_size": 64}
settings = page.settings(
    globals(),
    recipes.PARAMETERS,
    laptop={"seeds": 3, **small, "attention": "cached", "supervised_cluster_sizes": [8, 32, 128]},
    smoke={"seeds": 2, **tiny, "supervised_cluster_sizes": [4, 8]},
    fresh={"seeds": 1, **less, "supervised_cluster_sizes": [8, 32]},
    gpu=large,
    paper=large | largest,
)
settings

# %% [markdown]
# ## One sweep
#
# Two encoders at every batch size and every cluster size, with the filter and without it. All
# batches are clustered. Every run sees the same number of *pairs*, not of steps: larger batches
# make fewer steps. Otherwise a larger batch would also mean more data. A tenth of the steps is
# warm-up. The learning rate is the same in all runs, so that a larger batch also makes fewer
# updates of the same size: a large batch that does worse may only have been trained less.
#
# "Without the filter" leaves out copies of the labelled document as well, in both arms: they are no
# negatives at all. Clusters smaller than a batch are packed in the order of a greedy tour, so that
# neighbours share a batch (chapter on packing). So a batch of many small clusters is not so unlike
# one of a single large cluster.
#
# At `laptop` the contextual encoder has attention `cached`, because a step takes little more than a
# bi-encoder's; with the paper's, `full`, it takes about twice as long as a bi-encoder's (chapter on
# Table 1). At `gpu` and `paper` it is `full`. The chapter on filtering reads the same sweep.

# %%
import pandas as pd

from cde_studies.intervals import share_interval, table_interval
from cde_studies.results.sizes import (
    SizeSweep,
    correlations,
    domains_below,
    loss_and_score,
    r_of_runs,
    r_of_seeds,
    sweep_second_phase,
    sweep_sizes,
)

recipe = recipes.recipe_of(settings)
BI, CONTEXTUAL = "bi-encoder", "contextual"
kinds = {BI: BI, CONTEXTUAL: f"{CONTEXTUAL}, {settings.attention}"}
batches, clusters = sorted(set(settings.batch_sizes)), sorted(set(settings.cluster_sizes))
swept = {"batch_sizes": batches, "cluster_sizes": clusters}
key = settings.only("seeds", "pairs_seen", **swept, contextual_attention=settings.attention)
rows = page.experiment("batch-cluster-sweep", lambda: sweep_sizes(recipe, **key), key, recipe)
results = SizeSweep(rows)

# %% [markdown]
# ### Which pairs the sizes reach
#
# Clusters and batches stay within a domain, and what does not fill a batch is dropped. So a domain
# smaller than a batch is never trained on at that batch size, and a domain no larger than a cluster
# is one cluster: batch size also changes *which* pairs are seen.

# %%
plots.table(domains_below(recipe.pairs.domains, sorted({*batches, *clusters})))

# %% [markdown]
# ## Batch and cluster size
#
# Which sizes find most? NDCG@10 times 100 out of domain, the mean over sets: mean and standard
# deviation over the seeds.

# %%
FILTERS = {True: "with the filter", False: "without"}
arms = [(encoder, filtered) for encoder in kinds for filtered in FILTERS]


def line(encoder, filtered, batch):
    """A line of the table: one encoder and batch size, with the filter or without."""
    arm = {"encoder": encoder, "filtered": filtered, "batch_size": batch}
    scores = {f"clusters of {size}": results.shown(**arm, cluster_size=size) for size in clusters}
    head = {"encoder": kinds[encoder], "filter": "on" if filtered else "off", "batch": batch}
    return head | scores


plots.table(pd.DataFrame([line(*arm, batch) for arm in arms for batch in batches]))


# %%
def draw(axis, title, which, lines):
    """Draw curves of seeds over the sizes of a "cluster" or "batch"."""
    charts.curves(axis, lines, {size: place for place, size in enumerate(results.sizes(which))})
    axis.set(title=title, xlabel=f"pairs a {which}", ylabel="NDCG@10, times 100")
    axis.label_outer()


with plots.figure(2, 2, width=7.4, height=5.6, sharex=True, sharey=True) as (drawing, axes):
    for axis, arm in zip(axes.flat, arms, strict=True):
        lines = {f"batches of {b}": results.by_size("cluster", *arm, batch_size=b) for b in batches}
        draw(axis, f"{kinds[arm[0]]}, {FILTERS[arm[1]]}", "cluster", lines)
    axes[0, 0].legend(loc="best")

# %%
cells = results.cells()
by_run = results.rows.groupby([*cells.index.names, "seed"], sort=False)["ndcg"].mean()
plots.show(
    drawing,
    caption="Retrieval out of domain by batch and cluster size: seeds, and lines of their means.",
    data=by_run.reset_index(),
    answers="CDE Figs. 3 and 9",
)

# %% [markdown]
# ## What the filter changes
#
# Do small clusters and large batches pay more with the filter than without? The same runs, averaged
# over batch sizes (left) and over cluster sizes (right).

# %%
panels = [(encoder, which) for encoder in kinds for which in ("cluster", "batch")]
with plots.figure(2, 2, width=7.4, height=5.4, sharey=True) as (drawing, axes):
    for axis, (encoder, which) in zip(axes.flat, panels, strict=True):
        lines = {name: results.by_size(which, encoder, on) for on, name in FILTERS.items()}
        draw(axis, kinds[encoder], which, lines)
    axes[0, 0].legend(loc="best")

# %%
of_clusters = {arm: results.gain_of_clusters(*arm) for arm in arms}
of_batches = {arm: results.gain_of_batches(*arm) for arm in arms}
plots.show(
    drawing,
    caption="Retrieval out of domain by cluster size and by batch size, means over the other size.",
    data=results.means_by_size(),
    answers="CDE Figs. 12 and 13",
)

# %%
clusters_pay = {arm: table_interval(gain) or gain.mean() for arm, gain in of_clusters.items()}
batches_pay = {arm: table_interval(gain) or gain.mean() for arm, gain in of_batches.items()}
columns = {
    "encoder": [kinds[encoder] for encoder, _ in arms],
    "filter": ["on" if filtered else "off" for _, filtered in arms],
    f"clusters: {clusters[0]} minus {clusters[-1]}": list(clusters_pay.values()),
    f"batches: {batches[-1]} minus {batches[0]}": list(batches_pay.values()),
}
plots.table(pd.DataFrame(columns))

# %% [markdown]
# ## Does difficulty go with quality?
#
# Loss is the mean over the last tenth of the steps: few batches (the table counts them), each from
# one domain, and not the same domains at every cluster size. So it says as much about the domains
# that came last as about the clusters. It is compared within a batch size, with the filter on. The
# filter leaves out more in small clusters, so that even there the number of negatives is not quite
# the same. Two kinds of correlation:
#
# - *of a seed*: Pearson's r over the cluster sizes, one r for each seed and batch size, averaged
#   over batch sizes. This is the ledger's test; its interval is over seeds. With two cluster sizes
#   r is 1 or −1 whatever the data, with three it is seldom near 0.
# - *of all runs*: r over cluster sizes and seeds together, with a bootstrap over the points. Points
#   of one cluster size are not independent, and seeds differ in loss and score for other reasons.
#   Its interval is too narrow; it is exploratory.

# %%
with_filter = {encoder: results.of(encoder=encoder, filtered=True) for encoder in kinds}
runs = {encoder: loss_and_score(rows) for encoder, rows in with_filter.items()}
tables = {kinds[encoder]: correlations(some) for encoder, some in runs.items()}
table = pd.concat(tables, names=["encoder"]).reset_index("encoder").reset_index(drop=True)
of_batch = (settings.pairs_seen // table["batch"] // 10).clip(lower=1)
plots.table(table.assign(**{"batches a loss is of": of_batch}))

# %% [markdown]
# ## Difficulty in the second phase
#
# The paper's Fig. 10 is about supervised training, on pairs that people wrote, with hard negatives
# mined beforehand. Here Table 1's bi-encoder, trained on clustered batches, goes on for some epochs
# on other pairs (at `laptop` none that it has seen). It has one hard negative a query from the
# surrogate, the filter, and clusters of several sizes. With `pydocs` these pairs are more
# docstrings: no written questions can be had offline. So this shows whether difficulty pays in a
# second phase with hard negatives, not whether it does on questions. The figure shows both phases.

# %%
SECOND = "second phase"
second = {"clusters": sorted(set(settings.supervised_cluster_sizes)), "second": recipe.second}
rows = page.experiment(
    "batch_and_cluster_size-supervised",
    lambda: sweep_second_phase(recipe, second["clusters"], settings.every_seed),
    settings.only("seeds", **second),
    recipe,
)
runs[SECOND] = loss_and_score(rows)
r = {name: r_of_seeds(some) for name, some in runs.items()}

# %%
with plots.figure(1, 3, width=9.4, height=3.4) as (drawing, axes):
    for axis, (name, some) in zip(axes, runs.items(), strict=True):
        parts = {f"batches of {batch}": same for batch, same in some.groupby("batch_size")}
        names = {label: same["cluster_size"] for label, same in parts.items()}
        dots = {label: (same["loss"], same["ndcg"]) for label, same in parts.items()}
        charts.points(axis, dots, names)
        axis.set(title=kinds.get(name, name), xlabel="loss at the end, nats")
        axis.legend(loc="best")
    axes[0].set_ylabel("NDCG@10, times 100")

# %% tags=["hide-input"]
plots.show(
    drawing,
    caption="Difficulty of batches and retrieval; the small numbers are cluster sizes.",
    data=pd.concat([some.assign(encoder=name) for name, some in runs.items()]),
    answers="CDE Figs. 2 and 10",
)

# %% [markdown]
# Which end of the second phase is the hard one? A positive correlation speaks for small clusters
# only if these end with the higher loss. Loss at the end, in nats, mean and standard deviation over
# seeds:

# %%
of_seed = runs[SECOND].groupby(["cluster_size", "seed"])["loss"].mean()
ends = {f"clusters of {size}": page.mean_and_spread(of_seed[size]) for size in second["clusters"]}
plots.table(pd.DataFrame(ends, index=["loss, second phase"]))

# %% [markdown]
# ## Verdict
#
# Differences are between runs of the same seed, means over the sizes that are not compared.
# Intervals of scores speak of other seeds and other sets at once, those of correlations of seeds.
# The latter may reach beyond 1, where none can lie.
#
# The contextual encoder is a test with the paper's attention, `full`; `cached` is exploratory, as
# in the chapter on Table 1. That it is ahead is not yet a gain from context: it has two stages and
# twice the layers. So its claims have a gate, that it reads its context. The share of cells has the
# exact binomial interval over n cells, on means over seeds. Below 36 cells even a full share cannot
# be shown to lie above 0.9, and it is exploratory.
#
# Claims on batch size have a gate: the largest batch still makes 1,000 updates (the paper's make
# tens of thousands). With fewer, a large batch is first of all an encoder that was trained less.
# Where a batch is best is a test, moreover, only if the sweep's batches span 100 to 1,000. Each
# seed has its best size. The interval is Student's over seeds, on a logarithmic scale, and at least
# as wide as the gap to the neighbouring sizes. Whether too large batches harm is measured only if
# 1,024 and a larger size are among them, and is a test only above 10,000.

# %%
from cde_book import gates

updates = [settings.pairs_seen // batch for batch in (batches[0], batches[-1])]
gates.of_recipe("batch_and_cluster_size", recipe, results, updates=updates[-1])

# %%
SMALL_CLUSTERS = "cde-fig3-small-clusters-filtered"
LARGE_BATCHES = "cde-fig3-large-batches-filtered"
ROLE = {True: "test", False: "exploratory"}
over = f"out of domain, {results.sets()} sets, {settings.pairs_seen:,} pairs seen"
to = f"{clusters[0]} and {clusters[-1]} a cluster; {over}"
of = f"{batches[-1]} and {batches[0]} a batch; {over}"
claims.measure_runs(SMALL_CLUSTERS, of_clusters[BI, True], to)
claims.measure_runs(LARGE_BATCHES, of_batches[BI, True], of)
claims.measure_runs("cde-fig3-large-clusters-unfiltered", -of_clusters[BI, False], to)
_ = claims.measure_runs("cde-fig3-large-batches-unfiltered", of_batches[BI, False], of)

# %%
name, full = kinds[CONTEXTUAL], settings.attention == "full"
smaller, larger = of_clusters[CONTEXTUAL, True], of_batches[CONTEXTUAL, True]
claims.measure_runs("cde-fig9-small-clusters", smaller, f"{name}; {to}", ROLE[full])
claims.measure_runs("cde-fig9-large-batches", larger, f"{name}; {of}", ROLE[full])
for filtered, word in FILTERS.items():
    # lost: smallest minus largest clusters, and largest minus smallest batches
    lost = [
        gains[CONTEXTUAL, filtered] - gains[BI, filtered] for gains in (of_clusters, of_batches)
    ]
    what, tests = f"{name}, {word}; {over}", full and filtered
    claims.measure_runs("cde-fig9-copes-with-large-clusters", lost[0], what, ROLE[tests])
    claims.measure_runs("cde-fig9-copes-with-small-batches", lost[1], what, ROLE[tests])

# %%
AHEAD, UNLOCKS = "cde-fig9-ahead-everywhere", "cde-fig12-filter-unlocks-small-clusters"
ahead = cells[CONTEXTUAL] > cells[BI]
what = f"{name}; filter on and off, mean of {settings.seeds} seed(s); {over}"
tests = ROLE[full and settings.seeds > 1 and len(ahead) >= 36]
claims.measure(AHEAD, share_interval(ahead, "cells"), what, tests)
tested = {BI: True, CONTEXTUAL: full}
for encoder, kind in kinds.items():
    gain = of_clusters[encoder, True] - of_clusters[encoder, False]
    claims.measure_runs(UNLOCKS, gain, f"{kind}; {to}", ROLE[tested[encoder]])

# %%
DIFFICULTY, SUPERVISED = "cde-fig2-difficulty-pays", "cde-fig10-supervised-difficulty"
several = f"{len(clusters)} cluster sizes, mean of {len(batches)} batch sizes"
for encoder, kind in kinds.items():
    what, tests = f"{kind}, filter on; r of a seed over {several}", tested[encoder]
    if len(r[encoder]):
        claims.measure_runs(DIFFICULTY, r[encoder], what, ROLE[tests and len(clusters) > 2])
    for batch, some in runs[encoder].groupby("batch_size"):
        pooled, what = r_of_runs(some), f"all runs with batches of {batch}"
        if pooled is not None:
            claims.measure(DIFFICULTY, pooled, f"{kind}, filter on; {what}", "exploratory")
several = len(second["clusters"])
what = f"{SECOND}: {BI}, one hard negative, batches of {recipe.second['batch_size']}"
what += f"; r of a seed over {several} cluster sizes"
if len(r[SECOND]):
    claims.measure_runs(SUPERVISED, r[SECOND], what, ROLE[several > 2])

# %%
spans = batches[0] <= 100 and batches[-1] >= 1000
for encoder, filtered in arms:
    what = f"{kinds[encoder]}, {FILTERS[filtered]}; batches of {', '.join(map(str, batches))}"
    best = results.best_batch(encoder, filtered, settings.pairs_seen)
    tests = tested[encoder] and spans and settings.seeds > 1
    claims.measure("cde-fig13-best-batch", best, what, ROLE[tests])
    if 1024 in batches and batches[-1] > 1024:
        scores = results.by_size("batch", encoder, filtered)
        harm, what = scores[batches[-1]] - scores[1024], f"{what}; {batches[-1]} minus 1,024"
        tests = tested[encoder] and batches[-1] > 10_000
        claims.measure_runs("cde-fig13-too-large-batch", harm, what, ROLE[tests])
claims.verdicts()

# %% tags=["hide-cell"]
fewer = "" if updates[-1] >= 1000 else ", with fewer updates"
page.answer(
    f"""With the filter, small clusters change NDCG@10 by {claims.shown(clusters_pay[BI, True])}
    points against large ones, large batches by {claims.shown(batches_pay[BI, True])}{fewer}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The tests are four packages at `laptop`, each cut to 300 documents and 150 queries, where the
# paper has truncated BEIR. The learning rate is 3e-4 and a tenth of the steps is warm-up; the paper
# has 2e-5 and 1,000 steps. The largest batch makes tens of thousands of updates in the paper, and
# 25 at `laptop`. Profile `paper` runs this sweep at the size of the paper's large setting, `gpu` of
# its small one.
#
# The paper's small setting has six layers, 64 tokens, batches of 256 to 4,096 and clusters of 64 to
# 4 million, on some 200 million pairs, and goes on with a supervised phase. Fig. 2 is from after
# that phase; ours is the first phase only. At `laptop` there are two layers, batches of tens of
# pairs and 3,200 pairs a run from 6,000. So the paper's batch sizes are not reached, and clusters
# of 512 are larger than most domains. As the table above says, large batches also lose small
# domains. With `pydocs` at `gpu`, batches of 4,096 fit in a single domain only, so give `data` with
# larger domains there. The window of the contextual encoder is fixed, as in the paper, so that
# larger batches see fewer different contexts. At a batch of 32 the context of 32 is the whole
# batch, each text's own document among it; at 128 it holds a text's own document once in four. One
# learning rate serves all batch sizes; the paper names one as well. The surrogate is MiniLM, for
# clusters and filter; in the paper it is GTR for the first and nomic-embed for the second.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("batch_and_cluster_size")
