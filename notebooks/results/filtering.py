# %% [markdown]
# # Does leaving false negatives out of the loss help?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **CDE Fig. 4, §4.1 and §6** {cite}`morris2024contextual`. Clustered batches put
# similar pairs together, so they often contain *false negatives*: documents that answer a query but
# are not labelled for it. The filter scores documents with a surrogate, a model that is already
# trained, and leaves out of a query's denominator in the loss those that score at least as high as
# its labelled document. The paper calls it critical and plots bi-encoders of many batch and cluster
# sizes with and without it, but prints no numbers. This page makes the same comparison for pairs of
# runs.

# %%
from typing import Literal

from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Layers, Long, Profile, Rate, Seed, Several

page.claims_under_test("filtering")

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
data: str | None = None  # pairs to train on
pairs: Long | None = None
context_size: Count | None = None  # at most the smallest batch size
layers: Layers | None = None  # of the start's transformer, in either stage
learning_rate: Rate | None = None

# %%
from cde_studies import recipes

sizes = [64, 256, 1024, 4096]
large = {"batch_sizes": sizes, "cluster_sizes": sizes, "pairs_seen": 524_288, "attention": "full"}
largest = {"batch_sizes": [*sizes, 16_384], "pairs_seen": 235_000_000, "context_size": 64}
small = {"batch_sizes": [32, 128], "cluster_sizes": [32, 128, 512], "pairs_seen": 3200}
settings = page.settings(
    globals(),
    recipes.PARAMETERS,
    laptop={"seeds": 3, **small, "attention": "cached"},
    smoke={"seeds": 2, "batch_sizes": [8, 16], "cluster_sizes": [8, 32], "pairs_seen": 48},
    fresh={"seeds": 1, "pairs_seen": 128, "batch_sizes": [16, 32], "cluster_sizes": [16, 64]},
    gpu=large,
    paper=large | largest,
)
settings

# %% [markdown]
# ## The sweep of batch and cluster sizes
#
# These are the runs of the chapter on batch and cluster size, with the same settings; nothing
# further is trained. There are two encoders at every batch and cluster size, all on clustered
# batches, each with the filter (ε = 0) and without it. All runs see the same number of pairs. Two
# runs with the same sizes and seed have the same weights at the start and the same batches in the
# same order, so they differ only in the filter. At `laptop` the contextual encoder has attention
# `cached`, because it is cheaper.

# %%
import pandas as pd

from cde_studies.results.sizes import sweep_sizes
from cde_studies.sweeps import Sweep

recipe = recipes.recipe_of(settings)
BI, CONTEXTUAL = "bi-encoder", "contextual"
kinds = {BI: BI, CONTEXTUAL: f"{CONTEXTUAL}, {settings.attention}"}
batches = sorted(set(settings.batch_sizes))
clusters = sorted(set(settings.cluster_sizes))
key = settings.only(
    "seeds",
    "pairs_seen",
    batch_sizes=batches,
    cluster_sizes=clusters,
    contextual_attention=settings.attention,
)
rows = page.experiment("batch-cluster-sweep", lambda: sweep_sizes(recipe, **key), key, recipe)
results = Sweep(rows)

# %% [markdown]
# ## With and without, cell by cell
#
# In which cells (pairs of a batch and a cluster size) does the filter help? The scores are NDCG@10
# times 100 out of domain, means over sets, with mean and standard deviation over the seeds. The
# difference is taken seed by seed and set by set; its interval is for other seeds and other
# collections at once.

# %%
from cde_book.differences import in_words

FILTER = ({"filtered": True}, {"filtered": False})


def gain(encoder, **cell):
    """Points by seed and set: with the filter minus without."""
    return results.gain(*FILTER, by=["seed", "set"], encoder=encoder, **cell)


def shown(encoder, **cell):
    """Their mean and its interval."""
    return in_words(results, FILTER, encoder=encoder, **cell)


# %%
def line(encoder, batch, cluster):
    """A line of the table: one encoder at one batch and cluster size."""
    cell = {"batch_size": batch, "cluster_size": cluster}
    return {
        "encoder": kinds[encoder],
        "batch": batch,
        "cluster": cluster,
        "with the filter": results.shown(encoder=encoder, filtered=True, **cell),
        "without": results.shown(encoder=encoder, filtered=False, **cell),
        "difference": shown(encoder, **cell),
    }


plots.table(
    pd.DataFrame([line(encoder, b, c) for encoder in kinds for b in batches for c in clusters])
)

# %%
keys = ["encoder", "batch_size", "cluster_size", "seed"]
cells = 100 * results.rows.pivot_table(index=keys, columns="filtered", values="ndcg")
helped = cells[True] > cells[False]
ends = [float(cells.min().min()), float(cells.max().max())]
with plots.figure(1, 2, width=7.4, height=3.9, sharex=True, sharey=True) as (drawing, axes):
    for axis, encoder in zip(axes, kinds, strict=True):
        axis.plot(ends, ends, color=plots.MUTED, linewidth=0.8, linestyle=":", marker="")
        parts = {of: cells.loc[encoder].xs(of, level="cluster_size") for of in clusters}
        dots = {f"clusters of {of}": (some[False], some[True]) for of, some in parts.items()}
        charts.points(axis, dots)
        axis.set_title(kinds[encoder])
        axis.set_xlabel("without the filter")
    axes[0].set_ylabel("with the filter")
    axes[0].legend(loc="best")

# %% tags=["hide-input"]
plots.show(
    drawing,
    caption="NDCG@10 with and without the filter. Each point is two runs that differ only in the "
    "filter; above the dotted line the filter helps.",
    data=cells.rename(columns={True: "with", False: "without"}).reset_index(),
    answers="CDE Fig. 4",
)

# %% [markdown]
# ## Where does it help?
#
# The filter should matter most where batches have many similar pairs, which is with small clusters.
# The table has the differences at each size, averaged over the other size; they are exploratory.
# Whether small clusters help *because of* the filter is a claim of the chapter on batch and cluster
# size.


# %%
def by_size(which, size):
    """The gain of both encoders at one size, the other size averaged."""
    gains = {
        f"{kinds[one]}: with minus without": shown(one, **{f"{which}_size": size}) for one in kinds
    }
    return {"size of a": which, "pairs": size, **gains}


lines = [by_size("cluster", size) for size in clusters]
plots.table(pd.DataFrame(lines + [by_size("batch", size) for size in batches]))

# %% [markdown]
# ## Verdict
#
# We test the bi-encoder's score with the filter minus that without it, as a mean over all cells.
# The interval is for other seeds and other collections at once. Cells of one seed share data and
# weights at the start, so they are not counted as independent. The contextual encoder is
# exploratory, because it is not in the paper's figure.

# %%
from cde_book import gates

gates.of_recipe("filtering", recipe, results)

# %%
HELPS = "cde-fig4-filter-helps"
over = (
    f"out of domain, {results.sets()} sets, mean of {len(batches) * len(clusters)} cells, "
    f"{settings.pairs_seen:,} pairs seen"
)
helped_by = claims.measure_runs(HELPS, gain(BI), f"{BI}; {over}")
claims.measure_runs(HELPS, gain(CONTEXTUAL), f"{kinds[CONTEXTUAL]}; {over}", "exploratory")
for cluster in (clusters[0], clusters[-1]):
    only = gain(BI, cluster_size=cluster)
    claims.measure_runs(HELPS, only, f"{BI}; clusters of {cluster} alone", "exploratory")
claims.verdicts()

# %% tags=["hide-cell"]
ahead = f"ahead in {helped[BI].sum()} of {len(helped[BI])} paired runs"
filtered = "A bi-encoder trained with the false-negative filter"
page.answer(f"{claims.apart(filtered, helped_by, 'one without')}, and {ahead}.")

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper filters with nomic-embed, which is trained on the same data, in batches of 256 and more.
# The data are hundreds of millions of pairs from the web, with many false negatives. At `laptop`
# the surrogate is MiniLM, from which the encoders also start; the batches have at most little more
# than a hundred pairs, and the pairs are docstrings of packages. If another pair of the batch has
# the labelled document itself, this copy is left out in both arms, so even without the filter an
# exact copy is not a negative. The difference measured here therefore comes from *other* documents
# only. Runs are short; whether false negatives harm longer ones is not tested. The tests are four
# packages, each cut to 300 documents and 150 queries, so the intervals are for other packages like
# them, not for corpora of another kind. The chapter on false negatives shows how many of these the
# filter finds, and how many true negatives it removes as well.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("filtering")
