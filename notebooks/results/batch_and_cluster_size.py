# %% [markdown]
# # Do small clusters and large batches make better embeddings?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **CDE Figs. 2, 3, 9, 10, 12 and 13, §6 and §10.5** {cite}`morris2024contextual`.
# The paper varies batch size and cluster size, both with and without its filter for false
# negatives. It reports that with the filter small clusters help and large batches add little,
# whereas without it large clusters and large batches are better. It also reports that, at a given
# batch size, harder batches go with better retrieval. Its text gives no numbers, and its figures do
# not show how much runs differ. This page gives both.

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
# We train two encoders at every batch size and every cluster size, with and without the filter. All
# batches are clustered. Every run sees the same number of *pairs*, not of steps, because otherwise
# a larger batch would also mean more data. A larger batch therefore makes fewer steps. A tenth of
# the steps is warm-up. The learning rate is the same in all runs, so a larger batch makes fewer
# updates of the same size. If a large batch does worse, it may only have been trained less.
#
# "Without the filter" still leaves out copies of the labelled document, for both encoders, because
# copies are not negatives at all. Clusters smaller than a batch are ordered by a greedy
# nearest-neighbour tour, so that similar clusters share a batch (chapter on packing). A batch of
# many small clusters is therefore not very different from a batch of one large cluster.
#
# At `laptop` the contextual encoder has attention `cached`, because its step takes little longer
# than a bi-encoder's. With the paper's attention, `full`, a step takes about twice as long (chapter
# on Table 1). At `gpu` and `paper` it is `full`. The chapter on the filter uses the same sweep.

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
# ### Which pairs are seen at each size
#
# Clusters and batches stay within a domain, and pairs that do not fill a batch are dropped. So a
# domain smaller than a batch is never trained on at that batch size, and a domain no larger than a
# cluster forms a single cluster. Batch size thus also changes *which* pairs are seen.

# %%
plots.table(domains_below(recipe.pairs.domains, sorted({*batches, *clusters})))

# %% [markdown]
# ## Batch and cluster size
#
# Which sizes score highest? The table shows NDCG@10 times 100 out of domain, averaged over sets:
# mean and standard deviation over the seeds.

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
    caption="Retrieval out of domain by batch and cluster size: dots are seeds, lines their means.",
    data=by_run.reset_index(),
    answers="CDE Figs. 3 and 9",
)

# %% [markdown]
# ## What the filter changes
#
# Do small clusters and large batches help more with the filter than without it? These are the same
# runs, averaged over batch sizes (left) and over cluster sizes (right).

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
    caption="Retrieval out of domain by cluster size and batch size, averaged over the other size.",
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
# ## Do harder batches go with better retrieval?
#
# The loss is the mean over the last tenth of the steps. That is few batches (the table counts
# them), each from one domain, and not from the same domains at every cluster size. So the loss says
# as much about the domains that came last as about the clusters. We compare it within a batch size,
# with the filter on. The filter leaves out more in small clusters, so even then the number of
# negatives is not quite the same. There are two kinds of correlation:
#
# - *of a seed*: Pearson's r over the cluster sizes, one r for each seed and batch size, averaged
#   over batch sizes. This is what the claim is tested with; its interval is over seeds. With two
#   cluster sizes r is 1 or −1 whatever the data, and with three it is seldom near 0.
# - *of all runs*: r over cluster sizes and seeds together, with a bootstrap over the points. Points
#   of one cluster size are not independent, and seeds differ in loss and score for other reasons.
#   Its interval is therefore too narrow, and it is exploratory.

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
# mined beforehand. Here the bi-encoder of Table 1, trained on clustered batches, is trained for
# some more epochs on other pairs (at `laptop`, pairs it has not seen). Each query gets one hard
# negative from the surrogate model; the filter is on, and clusters have several sizes. With
# `pydocs` these pairs are more docstrings, because no written questions are available offline. So
# this shows whether difficulty helps in a second phase with hard negatives, but not whether it
# helps on questions. The figure shows both phases.

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
    caption="Training loss (difficulty of batches) and retrieval; small numbers are cluster sizes.",
    data=pd.concat([some.assign(encoder=name) for name, some in runs.items()]),
    answers="CDE Figs. 2 and 10",
)

# %% [markdown]
# Which cluster sizes give the harder batches in the second phase? A positive correlation supports
# small clusters only if these end with the higher loss. The table shows the loss at the end, in
# nats: mean and standard deviation over seeds.

# %%
of_seed = runs[SECOND].groupby(["cluster_size", "seed"])["loss"].mean()
ends = {f"clusters of {size}": page.mean_and_spread(of_seed[size]) for size in second["clusters"]}
plots.table(pd.DataFrame(ends, index=["loss, second phase"]))

# %% [markdown]
# ## Verdict
#
# Differences are between runs of the same seed, averaged over the sizes that are not compared.
# Intervals of scores cover other seeds and other sets at once; those of correlations cover seeds.
# The latter may reach beyond 1, although no correlation can.
#
# The contextual encoder counts as a test with the paper's attention, `full`; `cached` is
# exploratory, as in the chapter on Table 1. If it is ahead, that is not yet a gain from context,
# because it has two stages and twice the layers. So its claims have a gate: it must use its
# context. The share of cells in which it is ahead has the exact binomial interval over n cells, on
# means over seeds. Below 36 cells even a full share cannot be shown to lie above 0.9, and it is
# exploratory.
#
# Claims on batch size have a gate: the largest batch must still make 1,000 updates (the paper's
# make tens of thousands). With fewer, an encoder with large batches is mainly one that was trained
# less. The claim about the best batch size is a test, moreover, only if the sweep's batches span
# 100 to 1,000. Each seed has its best size. The interval is Student's over seeds, on a logarithmic
# scale, and at least as wide as the gap to the neighbouring sizes. Whether too large batches harm
# is measured only if 1,024 and a larger size are in the sweep, and is a test only above 10,000.

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
fewer = "" if updates[-1] >= 1000 else ", which get fewer updates,"
page.answer(
    f"""With false negatives filtered, smaller clusters change NDCG@10 by
    {claims.shown(clusters_pay[BI, True])} points; larger batches{fewer} change it by
    {claims.shown(batches_pay[BI, True])}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The tests are four packages at `laptop`, each cut to 300 documents and 150 queries, where the
# paper uses truncated BEIR. The learning rate is 3e-4 and a tenth of the steps is warm-up; the
# paper uses 2e-5 and 1,000 warm-up steps. The largest batch makes tens of thousands of updates in
# the paper, and 25 at `laptop`. Profile `paper` runs this sweep at the size of the paper's large
# setting, `gpu` at that of its small one.
#
# The paper's small setting has six layers, 64 tokens, batches of 256 to 4,096 and clusters of 64 to
# 4 million, on some 200 million pairs, and continues with a supervised phase. Fig. 2 was made after
# that phase; ours shows the first phase only. At `laptop` there are two layers, batches of tens of
# pairs and 3,200 pairs a run from 6,000. So we do not reach the paper's batch sizes, and clusters
# of 512 are larger than most domains. As the table above shows, large batches also drop small
# domains. With `pydocs` at `gpu`, batches of 4,096 fit in a single domain only, so set `data` to
# pairs with larger domains there. The window of the contextual encoder is fixed, as in the paper,
# so larger batches see fewer different contexts. At a batch of 32 the context of 32 is the whole
# batch, including each text's own document; at 128 it includes a text's own document once in four.
# One learning rate serves all batch sizes, as in the paper. The surrogate model is MiniLM, for both
# clusters and filter; in the paper it is GTR for the clusters and nomic-embed for the filter.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("batch_and_cluster_size")
