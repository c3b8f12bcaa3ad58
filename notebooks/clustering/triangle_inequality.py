# %% [markdown]
# # Does the triangle inequality make batch-mates hard?
#
# This page answers **Fig. 3, §4.3, §4.4 and §5.2** of the clustering paper
# {cite}`merrick2024embedding`. The paper finds that batches from one cluster make better models,
# and offers a reason: a query is near its own passage, and the passage is near the others of its
# cluster, so the query cannot be far from those. They must therefore be hard negatives. The paper
# doubts this reason itself, because its clusters are loose, but gives no numbers. This page
# measures them.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Profile, Seed, Tokens

page.claims_under_test("triangle_inequality")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
sources: list[str] | None = None  # pairs to cluster; by default pairs/* of $CDE_DATA
pairs_per_source: Count | None = None
queries: Count | None = None  # of each source that are looked at
clusters: list[Count] | None = None  # how many a source is cut into; the first one is tested
max_tokens: Tokens | None = None  # texts are cut there
sizes: list[Count] | None = None  # pairs of a source, in turn; the sources with most take part

# %%
most = {"pairs_per_source": 10**6, "clusters": [10, 100, 1000, 10_000], "queries": 1000}
most["sizes"] = [1000, 10_000, 100_000]
settings = page.settings(
    globals(),
    laptop={
        "sources": None,
        "pairs_per_source": 500,
        "queries": 200,
        "clusters": [10, 30, 62],
        "max_tokens": 48,
        "sizes": [500, 2000, 8000],
    },
    smoke={
        "sources": [f"pydocs/{name}" for name in ("networkx", "polars", "rich", "tornado")],
        "pairs_per_source": 80,
        "queries": 20,
        "clusters": [4, 10],
        "max_tokens": 16,
        "sizes": [40, 80],
    },
    fresh={"pairs_per_source": 120, "queries": 60, "clusters": [10, 30], "sizes": [120, 240]},
    gpu=most | {"max_tokens": 256},
    paper=most | {"max_tokens": 512},
)
settings

# %% [markdown]
# ## What three vectors can do
#
# A query lies at an angle $a$ from its own passage, and this passage at an angle $b$ from another
# one. The angle between the query and the other passage is then at least $|a - b|$ and at most $a +
# b$. In cosines this is a band.
#
# The figure shows one query and all passages of one package. The inequality says only that each
# passage lies somewhere in the band. The dotted line is the query's mean cosine with all passages,
# so a passage above it is harder than the average negative. To the right of the dashed line even
# the lowest possible cosine is above the dotted one, so these negatives are *guaranteed* to be
# hard.

# %%
import numpy as np

import cde
from cde.batching.clustering import cluster_vectors
from cde_studies.batches.guarantees import cosine_bounds, negative_guarantees

surrogate = cde.Surrogate(max_tokens=settings.max_tokens)


def embedded(name, most=settings.pairs_per_source):
    """Unit vectors of a source's queries and documents, of so many pairs at most."""
    pairs = cde.load_pairs(name).sample(most, settings.seed)
    return surrogate.encode_queries(pairs.queries), surrogate.encode_documents(pairs.documents)


def cut(vectors, count):
    """The cluster of each pair: spherical k-means, into so many clusters."""
    return cluster_vectors(vectors, -(-len(vectors) // count), seed=settings.seed)


SHOWN = "pydocs/networkx"
tested = settings.clusters[0]
of_queries, of_documents = embedded(SHOWN)
own = (of_queries * of_documents).sum(axis=1)
one = int(np.argsort(own)[len(own) // 2])  # the query that is as near its passage as most are
labels = cut(of_documents, tested)

# %%
import pandas as pd

shown = pd.DataFrame(
    {"passages": of_documents @ of_documents[one], "query": of_documents @ of_queries[one]}
).assign(inside=labels == labels[one])
shown = shown.drop(index=one)
mean = float(shown["query"].mean())
needed = float(np.cos(max(np.arccos(mean) - np.arccos(own[one]), 0)))  # a + b is the mean's angle
reach = np.linspace(min(0, shown["passages"].min()), 1, 200)
low, high = cosine_bounds(own[one], reach)

# %%
with plots.figure(width=6.4, height=4.0) as (drawing, axis):
    axis.fill_between(reach, low, high, color=plots.MUTED, alpha=0.15, linewidth=0)
    parts = {"other clusters": shown[~shown["inside"]], "its cluster": shown[shown["inside"]]}
    dots = {name: (some["passages"], some["query"]) for name, some in parts.items()}
    charts.points(axis, dots, markersize=2.5, alpha=0.6)
    charts.reference(axis, y=mean, name="mean over all passages")
    charts.reference(axis, x=needed, name="from here harder than average", linestyle="--")
    axis.set_xlabel("cosine of the query's own passage with another passage")
    axis.set_ylabel("cosine of the query with that passage")
    axis.legend(loc="lower right")
plots.show(
    drawing,
    caption=f"One query of {SHOWN}, {tested} clusters: possible cosines (band) and actual (dots).",
    data=shown,
    answers="Clustering Fig. 3",
)

# %% [markdown]
# The guarantee is hard to reach. A query is never identical to its own passage, so a good part of
# the allowed angle is used up before another passage is considered.
#
# ## Many sources, from few clusters to many
#
# K-means divides each source into ten clusters, as in the paper, and into more. It uses the vectors
# of the passages, or of the queries. Some queries of each source are drawn, and the passage of
# every other pair of the source is a negative, except for copies of the query's own passage.

# %%
from cde.progress import progress
from cde_studies.batches.statistics import cluster_statistics, mean_pairwise_cosine
from cde_studies.collections.pydocs import HELD_OUT

at_hand = [one.name for one in cde.list_sources() if one.name.startswith("pairs/")]
names = settings.sources or at_hand or [f"pydocs/{name}" for name in HELD_OUT]


def measured(name):
    """How hard negatives are, and must be: a row for each side and number of clusters."""
    sides = dict(zip(("queries", "passages"), embedded(name), strict=True))
    count = len(sides["passages"])
    drawn = np.random.default_rng(settings.seed).permutation(count)[: settings.queries]
    for side, vectors in sides.items():
        for number in settings.clusters:
            if 8 * number > count:  # fewer than eight pairs in each
                continue
            labels = cut(vectors, number)
            found = negative_guarantees(*sides.values(), labels, drawn).mean()
            of = cluster_statistics(vectors, labels).dropna()
            density = np.average(of["similarity"], weights=of["size"])
            head = {"source": name.split("/")[1], "side": side, "clusters": number, "pairs": count}
            yield {**head, "density": density, "all": mean_pairwise_cosine(vectors), **found}


def measure():
    """Every source."""
    shown = progress(names, "clustering sources", unit="sources")
    return pd.DataFrame([row for name in shown for row in measured(name)])


# %%
key = settings.only("sources", "pairs_per_source", "queries", "clusters", "max_tokens")
rows = page.experiment("triangle_inequality-sources", measure, key)

# %% [markdown]
# ## What is guaranteed, and what is so
#
# How many batch-mates must be hard, how many are, and where are the hardest? The figure is for
# clusters of passages.


# %%
def by_source(column, side="passages"):
    """A row for each source, a column for each number of clusters."""
    table = rows[rows["side"] == side].pivot_table(column, "source", "clusters")
    return table.rename_axis(columns=None)


numbers = {count: place for place, count in enumerate(sorted(set(rows["clusters"])))}
panels = [
    {"are harder": by_source("harder"), "are guaranteed to be": by_source("guaranteed")},
    {"the ten hardest": by_source("hardest_inside"), "by chance": by_source("by_chance")},
]
titles = ["in-cluster negatives harder than average", "negatives in the own passage's cluster"]

# %%
with plots.figure(1, 2, width=7.6, height=3.4, sharey=True) as (drawing, axes):
    for axis, series, title in zip(axes, panels, titles, strict=True):
        charts.curves(axis, series, places=numbers, shift=0.06)
        axis.set_title(title, fontsize=9)
        axis.set(xlabel="clusters", ylim=(0, 1))
        axis.legend()
    axes[0].set_ylabel("share")
means = rows[rows["side"] == "passages"].groupby("clusters").mean(numeric_only=True)
plots.show(
    drawing,
    caption="Left: the share of in-cluster negatives that are harder than average, and that must "
    "be. Right: the share of a query's ten hardest negatives that lie in the cluster of its own "
    "passage, and the share by chance. Each small dot is a source.",
    data=rows,
    answers="Clustering Fig. 3",
    lead=True,
)

# %% [markdown]
# ## With more pairs
#
# A source of 500 pairs is a small sample, in which even a query's ten hardest negatives are not
# very hard. With more pairs they come nearer to the query, and more of them lie in the cluster. So
# the count is repeated with ten clusters and a growing number of pairs, on the four largest sources
# and on all docstrings together. The paper has half a million pairs.


# %%
def measured_in_samples(name):
    """The hardest negatives in samples of a source, from small to large."""
    largest = embedded(name, settings.sizes[-1])
    order = np.random.default_rng(settings.seed).permutation(len(largest[0]))
    for size in settings.sizes:
        queries, passages = (vectors[order[:size]] for vectors in largest)
        drawn = np.arange(min(settings.queries, size))
        found = negative_guarantees(queries, passages, cut(passages, tested), drawn).mean()
        yield {"source": name, "pairs": size, **found}


def measure_in_samples():
    """All docstrings together, and the four sources that have most pairs."""
    counts = {name: len(cde.load_pairs(name)) for name in names}
    large = ["pydocs", *sorted(names, key=counts.get, reverse=True)[:4]]
    shown = progress(large, "larger and larger samples", unit="sources")
    return pd.DataFrame([row for name in shown for row in measured_in_samples(name)])


key = settings.only("sources", "sizes", "queries", "max_tokens", clusters=tested)
grown = page.experiment("triangle_inequality-sizes", measure_in_samples, key)

# %% [markdown]
# ## All numbers
#
# Means over sources, with bootstrap intervals. *Density* is the mean cosine of two members of a
# cluster, as in the paper's Table 1; *all* is that of any two. *Ruled out* is the other half of the
# paper's argument: the share of negatives from other clusters that must be easier than average.

# %%
from cde.intervals import mean_interval

COLUMNS = {
    "density": "density",
    "all": "all",
    "inside": "cosine inside",
    "outside": "cosine outside",
    "guaranteed": "must be harder",
    "harder": "are harder",
    "ruled_out": "ruled out",
    "hardest_inside": "ten hardest inside",
    "by_chance": "by chance",
}


def line(side, number, some):
    """A line of the table: clusters of one side, so many of them."""
    found = {shown: str(mean_interval(some[column])) for column, shown in COLUMNS.items()}
    return {"clusters of": side, "number": number, "sources": len(some), **found}


grouped = rows.groupby(["side", "clusters"])
plots.table(pd.DataFrame([line(*which, some) for which, some in grouped]))

# %% [markdown]
# ## Verdict
#
# Clusters count as too loose if less than half of the in-cluster negatives are guaranteed to be
# harder than average. Hard negatives count as inside if more than half of a query's ten hardest lie
# in the cluster of its own passage. Both rules are for clusters of passages, and as many of them as
# the paper has; everything else is exploratory. The second rule is tested on the largest samples,
# and a gate requires enough pairs, because the share grows with the number of pairs and the paper
# has half a million. The result on 500 pairs per source, which was the test until 2026-11-27, is
# exploratory.

# %%
LOOSE, INSIDE = "clustering-s44-loose-clusters", "clustering-s52-hard-negatives-inside"
for (side, number), some in grouped:
    role = "test" if side == "passages" and number == tested else "exploratory"
    what = f"{number} clusters of {side}, {len(some)} sources"
    claims.measure(LOOSE, mean_interval(some["guaranteed"]), what, role)
    claims.measure(INSIDE, mean_interval(some["hardest_inside"]), what, "exploratory")
largest = grown["pairs"].max()
of_sizes = grown.pivot_table("hardest_inside", "source", "pairs")
claims.gate("enough-pairs", largest, f"{len(of_sizes)} sources")
what = f"{tested} clusters of passages, {largest:,} pairs, {len(of_sizes)} sources"
claims.measure(INSIDE, mean_interval(of_sizes[largest]), what)
claims.verdicts()

# %% tags=["hide-input"]
by_size = ", ".join(f"{share:.0%} among {size:,} pairs" for size, share in of_sizes.mean().items())
page.in_numbers(
    f"""Of a query's ten hardest negatives, these lie in the cluster of its own passage (means of
    {len(of_sizes)} sources): {by_size}."""
)

# %% tags=["hide-cell"]
at = means.loc[tested]
page.answer(
    f"""{100 * at["harder"]:.0f} % of the negatives in a query's cluster are harder than average,
    but the triangle inequality guarantees this for only {100 * at["guaranteed"]:.1f} %."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper clusters half a million pairs of one source with Arctic Embed M, and argues without
# numbers. Here many kinds of sources are clustered, with 500 pairs each, and MiniLM both makes the
# clusters and judges how hard negatives are. That favours the clusters: another judge would find
# fewer hard negatives inside. This page does not test whether harder negatives train a better
# model.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("triangle_inequality")
