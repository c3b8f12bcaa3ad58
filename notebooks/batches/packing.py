# %% [markdown]
# # Does the order in which clusters are packed into batches matter?
#
# This page answers **CDE §4.1, "Packing", and Fig. 14, §10.5** {cite}`morris2024contextual`.
# Clusters have many sizes but batches have one, so clusters are laid in a row and the row is cut.
# The paper compares a random order with a greedy tour, named after the travelling salesman problem
# (TSP), which always goes on to the nearest cluster not yet visited. It finds the tour better, most
# of all with small clusters, and calls the result slightly noisy. It also says that cutting
# clusters up re-mixes batches from one epoch to the next. It gives no numbers for either.

# %%
from cde_book import charts, claims, gates, page, plots, sketches
from cde_book.parameters import Count, Layers, Long, Profile, Seed, Several, Tokens

page.claims_under_test("packing")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0  # the first seed
# training
seeds: Count | None = None  # training runs of each arm
cluster_sizes: list[Count] | None = None  # pairs a cluster, on average; two or more
data: str | None = None  # pairs to train on
pairs: Long | None = None
steps: Long | None = None
batch_size: Several | None = None
context_size: Count | None = None  # given as in another chapter, runs are shared
layers: Layers | None = None  # of the start's transformer
# what packing does to clusters
pairs_per_package: Count | None = None
max_tokens: Tokens | None = None  # texts are cut there
cluster_size: Count | None = None
batch_sizes: list[Several] | None = None
epochs: Count | None = None  # an even number: each two in a row are compared
queries_per_batch: Count | None = None  # looked at in each batch, against all of its documents
iterations: Count | None = None  # of k-means
attempts: Count | None = None  # of k-means, of which the best is kept
long_run: bool = False  # the two orders with a thousand updates, with $CDE_DATA

# %%
TRAINED = ("data", "pairs", "steps", "batch_size", "context_size", "layers")
laptop = {"seeds": 3, "cluster_sizes": [16, 128], "iterations": 15, "attempts": 1}
laptop |= {"pairs_per_package": 600, "max_tokens": 64, "cluster_size": 128}
laptop |= {"batch_sizes": [32, 128, 512], "epochs": 12, "queries_per_batch": 64}
smoke = {"seeds": 2, "cluster_sizes": [8, 16], "iterations": 5, "epochs": 4}
smoke |= {"pairs_per_package": 40, "max_tokens": 16, "cluster_size": 16, "batch_sizes": [8, 16, 64]}
every_pair = {"pairs_per_package": 10**6, "iterations": 100, "attempts": 3}
gpu = {"cluster_sizes": [64, 128, 256, 512], "max_tokens": 256}
gpu |= {"cluster_size": 256, "batch_sizes": [64, 256, 1024]}
paper = {"cluster_sizes": [64, 256, 512], "max_tokens": 512}
paper |= {"cluster_size": 512, "batch_sizes": [256, 512, 1024, 2048, 4096]}
settings = page.settings(
    globals(),
    TRAINED,
    laptop=laptop,
    smoke=smoke,
    fresh={"seeds": 1, "steps": 6, "cluster_sizes": [16, 64], "pairs_per_package": 80, "epochs": 4},
    gpu=every_pair | gpu,
    paper=every_pair | paper,
)
settings

# %% [markdown]
# ## The idea
#
# Here are four clusters of which neighbours in the alphabet are alike, and batches of four pairs.
# Batches begin and end at the upright lines. A large cluster is split, and a small one shares a
# batch with what follows it in the row. After a greedy tour that is a similar cluster, so the batch
# stays hard. The next epoch starts the tour elsewhere and so cuts in other places.

# %%
import numpy as np
import pandas as pd

ORDERS = {"tsp": "greedy tour", "random": "random"}
toy = {"A": 3, "B": 6, "C": 2, "D": 5}
lines = {"greedy tour": "ABCD", "greedy tour, next epoch": "CDBA", "random": "CADB"}
plots.show(
    sketches.row_of_clusters(toy, lines, batch=4),
    caption="Clusters A to D in a row, cut into batches of four pairs, in three orders.",
    data=pd.DataFrame({"pairs": toy}),
    alt="Three rows of the same four clusters in different orders, each cut by upright lines every "
    "four pairs, so that lines fall inside clusters and batches hold parts of two.",
)

# %% [markdown]
# ## Does packing neighbours together train a better encoder?
#
# The recipe of the profile fixes data, model and schedule of a bi-encoder (the paper does not name
# its encoder). The arms differ only in the size of clusters and in their order. Batches are at
# least as large as clusters, because otherwise clusters would not share one; all pairs of a batch
# are from one domain, and the filter for false negatives is on.
#
# Runs of `laptop` are some dozens of steps long. `cde run packing --record day/tsp_packing-arms -p
# long_run true -p seeds=2`, with $CDE_DATA, trains these arms with the settings of the longer runs
# in {doc}`../results/batch_and_cluster_size`: 1,000 updates of 128 pairs of 28 public sources,
# clusters of 32 and of 128, nine judged collections. It was fixed before these runs that they
# decide, as the larger scale.

# %%
from cde_book.differences import deciding, show_differences, sweeps_at_profiles
from cde_studies import recipes
from cde_studies.results.sizes import long_recipe
from cde_studies.sweeps import Sweep, sweep

recipe = recipes.recipe(
    settings.profile, **{name: getattr(settings, name, None) for name in TRAINED}
)
sizes = sorted(set(settings.cluster_sizes))
if len(sizes) < 2 or sizes[-1] > recipe.base.batch_size:
    raise ValueError(
        f"cluster_sizes must be two or more, none above the batch of {recipe.base.batch_size}; "
        f"they are {sizes}"
    )


def train_all(of, sizes):
    """Every arm with every seed, tested out of domain."""
    arms = {
        f"{name}; clusters of {size}": {
            "architecture": "bi-encoder",
            "batches": "cluster",
            "order": order,
            "cluster_size": size,
        }
        for size in sizes
        for order, name in ORDERS.items()
    }
    return sweep(arms, settings.every_seed, of, tests=of.out_of_domain())


key = settings.only("seeds", cluster_sizes=sizes)
rows = page.experiment("tsp_packing-arms", lambda: train_all(recipe, sizes), key, recipe)
page.need_pairs(long_run)
day, at_day = long_recipe(), None
long = settings.only("seeds", cluster_sizes=[32, 128])
if long_run:
    at_day = page.experiment(
        "tsp_packing-arms", lambda: train_all(day, long["cluster_sizes"]), long, day, profile="day"
    )
results = {}
for scale, runs in sweeps_at_profiles("tsp_packing-arms", rows, at_day).items():
    parts = runs.rows["arm"].str.extract(r"(?P<order>.*); clusters of (?P<size>\d+)")
    results[scale] = Sweep(runs.rows.join(parts.astype({"size": int})))
pair = {"order": ORDERS["tsp"]}, {"order": ORDERS["random"]}
every = sorted({size for runs in results.values() for size in runs.rows["size"]})
GAINS = {"tour − random, all sizes": pair}
GAINS |= {
    f"tour − random, clusters of {size}": tuple(one | {"size": size} for one in pair)
    for size in every
}
WHAT = "What a bi-encoder gains from packing neighbouring clusters. The paper prints no numbers."
show_differences(results, GAINS, WHAT, "CDE Fig. 14", lead=True)

# %% [markdown]
# ## What becomes of the clusters
#
# In this section nothing is trained; a surrogate (a finished embedding model) scores the pairs. We
# cluster `pydocs` twice (paired k-means, Eq. 3): as one domain, which leaves room for many
# clusters, and within each package, as the paper does within each dataset. Each epoch lays the
# clusters out again. Pairs that do not fill a batch at the end of a domain are dropped. The
# authors' code lays the clusters of all domains end to end instead, so that batches may cross from
# one domain into the next.

# %%
from threadpoolctl import threadpool_limits

import cde
from cde.batching.clustering import cluster_pairs
from cde.batching.packing import pack_batches

sample = cde.load_pairs("pydocs", split="all")
sample = sample.sample_per_domain(settings.pairs_per_package, settings.seed)
surrogate = cde.Surrogate(max_tokens=settings.max_tokens)
vectors = surrogate.encode_queries(sample.queries), surrogate.encode_documents(sample.documents)
print(f"{len(sample):,} pairs; fingerprint {sample.fingerprint}")
WHOLE, PACKAGES, ACROSS = "all as one domain", "packages", "packages, across borders"
of_package = list(sample.domains)
kmeans = settings.only("cluster_size", "iterations", "attempts")
labels = {WHOLE: cluster_pairs(*vectors, **kmeans)}
with threadpool_limits(1):  # small work is faster on one thread
    labels[PACKAGES] = labels[ACROSS] = cluster_pairs(*vectors, domains=of_package, **kmeans)


def epoch(within, order, batch, seed=settings.seed):
    """The batches of one epoch, as training draws them."""
    how = {"cross_domains": within == ACROSS, "seed": seed}
    with threadpool_limits(None if within == WHOLE else 1):
        domains = None if within == WHOLE else of_package
        return pack_batches(labels[within], batch, order, vectors[1], domains=domains, **how)


# %% [markdown]
# How much of the clusters survives? The table is for one epoch. The mean cosine is that of a query
# with the other documents of its batch, by the surrogate: the higher, the harder the batch. Uncut
# clusters and shuffled batches are the two ends. The interval is over batches.

# %%
from cde.intervals import mean_interval
from cde_studies.batches.statistics import batch_difficulty, cluster_members, cut_clusters

packages = np.unique(np.asarray(sample.domains), return_inverse=True)[1]
room = {WHOLE: len(sample), PACKAGES: int(np.bincount(packages).max()), ACROSS: len(sample)}
fits = {one: [b for b in settings.batch_sizes if 2 <= b <= room[one]] for one in room}
if not fits[PACKAGES]:
    raise ValueError(f"no batch size of {settings.batch_sizes} fits {len(sample)} pairs")


def hard(batches):
    """How hard batches are, with the interval over batches."""
    each = (batch_difficulty(*vectors, one, settings.queries_per_batch) for one in batches)
    return mean_interval([one["mean"] for one in each])


def fate(within, order, batch):
    """A line of the table: what an epoch does to the clusters."""
    made = epoch(within, order, batch)
    cut = cut_clusters(labels[within], made)
    borders = {"batches across a border": np.mean([np.ptp(packages[rows]) > 0 for rows in made])}
    head = {"clusters within": within, "order": ORDERS[order], "batch size": f"{batch:,}"}
    return head | cut | ({} if within == WHOLE else borders) | {"mean cosine": hard(made)}


whole = np.zeros(len(sample), np.int64)  # all in one: no clusters
uncut = [rows for rows in cluster_members(labels[WHOLE]) if len(rows) > 1]
ends = {"uncut": uncut, "shuffled": pack_batches(whole, fits[WHOLE][0], seed=settings.seed)}
lines = [fate(WHOLE, order, batch) for order in ORDERS for batch in fits[WHOLE]]
lines += [fate(one, "tsp", batch) for one in (PACKAGES, ACROSS) for batch in fits[one]]
head = {"clusters within": WHOLE}
lines += [head | {"order": name, "mean cosine": hard(some)} for name, some in ends.items()]
plots.table(pd.DataFrame(lines).round(3).astype(object).fillna("–"))

# %% [markdown]
# ## Which batch-mates meet again in the next epoch?
#
# For each pair that is in a batch in two epochs in a row, we take the share of its batch-mates in
# the first epoch that are its batch-mates again in the second. An interval is over pairs of epochs
# that have no epoch in common. Shuffled batches are the baseline: there the share is about the
# batch size divided by the size of the domain.

# %%
from cde_studies.batches.statistics import mates_met_again

epoch_seeds = range(settings.seed, settings.seed + settings.epochs)
tried = [(one, o, b) for one in (WHOLE, PACKAGES) for o in ORDERS for b in fits[one]]
packed = {one: [epoch(*one, each) for each in epoch_seeds] for one in tried}
shuffled = {b: [pack_batches(whole, b, seed=each) for each in epoch_seeds] for b in fits[WHOLE]}
again, baseline = (
    {one: mean_interval(mates_met_again(some)) for one, some in epochs.items()}
    for epochs in (packed, shuffled)
)
drawn = {(one, ORDERS[order], batch): share for (one, order, batch), share in again.items()}
drawn |= {(WHOLE, "shuffled", batch): share for batch, share in baseline.items()}
head = ["clusters within", "order", "batch size"]
shares = charts.interval_table(drawn, head, "share met again")
RANDOMNESS = "cde-s41-packing-randomness"
bound = claims.ledger()[RANDOMNESS].expect["below"]

# %%
with plots.figure(1, 2, width=7.6, height=3.6, sharey=True) as (drawing, axes):
    for axis, within in zip(axes, (WHOLE, PACKAGES), strict=True):
        lines = {}
        for (of, order, batch), share in drawn.items():
            if of == within:
                lines.setdefault(order, {})[batch / settings.cluster_size] = share
        charts.curves(axis, lines)
        charts.reference(axis, y=bound, name="the claim's bound", color=plots.COLORS[4])
        axis.set_xscale("log", base=2)
        ratios = sorted({ratio for line in lines.values() for ratio in line})
        axis.set_xticks(ratios, [f"{ratio:g}" for ratio in ratios])
        axis.set_ylim(0, 1.02)
        axis.set(xlabel="batch size / cluster size", title=f"clusters within: {within}")
    axes[0].set_ylabel("share of batch-mates met again")
    axes[0].legend(loc="upper left", bbox_to_anchor=(0, 0.88))
plots.show(
    drawing,
    caption="Share of a pair's batch-mates that it meets again in the next epoch, with 95 % "
    "intervals over pairs of epochs.",
    data=shares,
    answers="CDE §4.1, Packing",
)

# %% [markdown]
# ## Verdict
#
# **The order.** A gain is the score with the tour minus that with a random order, between runs with
# the same seed and clusters; at each cluster size alone it is exploratory. Intervals are for other
# seeds and other sets at once.
#
# **The re-mixing.** Tested in both orders at every batch size at which a domain holds, on average,
# eight batches or more. With fewer there are few other pairs to meet, whatever the packing, so the
# result is exploratory.

# %%
HELPS, SMALL = "cde-fig14-tsp-helps", "cde-fig14-tsp-small-clusters"
for scale in [one for one in (profile, "day") if one in results]:
    runs, of = results[scale], day if scale == "day" else recipe
    display(gates.of_recipe("packing", of, runs, scale=scale))
    what = f"out of domain, {runs.sets()} sets, {of.base.steps} steps of {of.base.batch_size}"
    gains = {
        size: runs.gain(*GAINS[f"tour − random, clusters of {size}"], by=["seed", "set"])
        for size in sorted(runs.rows["size"].unique())
    }
    least, *_, most = gains
    over = f"mean of clusters of {' and '.join(map(str, gains))}; {what}"
    claims.measure_runs(HELPS, sum(gains.values()) / len(gains), over, scale=scale)
    for size, gain in gains.items():
        claims.measure_runs(HELPS, gain, f"clusters of {size} alone", "exploratory", scale=scale)
    over = f"clusters of {least} minus {most}; {what}"
    claims.measure_runs(SMALL, gains[least] - gains[most], over, scale=scale)

# %%
in_a_domain = {WHOLE: len(sample), PACKAGES: len(sample) / (packages.max() + 1)}
for (within, order, batch), share in again.items():
    what = f"batches of {batch:,}, clusters of {settings.cluster_size:,}"
    role = "test" if in_a_domain[within] / batch >= 8 else "exploratory"
    claims.measure(RANDOMNESS, share, f"{within}, {ORDERS[order]}, {what}", role)
for batch, share in baseline.items():
    what = f"shuffled pairs (baseline), batches of {batch:,}"
    claims.measure(RANDOMNESS, share, what, "exploratory")
claims.verdicts()

# %% tags=["hide-cell"]
batch = min(fits[WHOLE], key=lambda size: abs(size - settings.cluster_size))
near, other = (again[WHOLE, order, batch].estimate for order in ORDERS)
neighbours = "NDCG@10 with neighbouring clusters packed together"
helped = deciding(results, pair)
page.answer(
    f"""{claims.apart(neighbours, helped, "random packing", unit="points")}. In batches of {batch:,}
    docstrings a pair meets {near:.0%} (random: {other:.0%}) of its mates again."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper's small setting has six layers, batches of 256 to 4,096, and datasets of up to 65
# million pairs. At `laptop` there are 6,000 pairs, batches of 128, some dozens of steps from a
# trained sentence encoder, and 21 packages of 52 to 1,275 pairs as domains. The tour runs within a
# domain, so there it has few clusters to choose from: about 80 of 16 in the largest, or ten of 128,
# among which the order makes little difference. Packages of fewer pairs than a batch are not
# trained on. At `day` two layers take 1,000 steps on 100,000 pairs, with two runs of each arm. The
# shares of batch-mates met again depend on the ratios of batch, cluster and domain, and all
# clusters come from one run of k-means: intervals cover the randomness of packing, not other
# clusters or texts. The paper values re-mixed batches because they should help training; that is
# not tested here.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("packing")
