# %% [markdown]
# # Does it matter which clusters share a batch?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **CDE Fig. 14, §10.5** {cite}`morris2024contextual`. Clusters differ in size but
# batches do not, so clusters are laid end to end and the sequence is cut into batches. The paper
# compares a random order of clusters with a greedy tour, named after the travelling salesman
# problem (TSP), which goes from each cluster to the one with the nearest centroid. It finds the
# tour better, most of all with small clusters, and calls the result slightly noisy. It gives no
# numbers and does not name the encoder; this page uses the bi-encoder.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Layers, Long, Profile, Rate, Seed, Several

page.claims_under_test("tsp_packing")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0  # the first seed
seeds: Count | None = None  # training runs of each arm
cluster_sizes: list[Count] | None = None  # pairs a cluster, on average; two or more
data: str | None = None  # pairs to train on
pairs: Long | None = None
steps: Long | None = None
batch_size: Several | None = None
cluster_size: Count | None = None  # of the recipe: given as in another chapter, runs are shared
context_size: Count | None = None  # likewise; a bi-encoder has no context
layers: Layers | None = None  # of the start's transformer
learning_rate: Rate | None = None

# %%
from cde_studies import recipes

settings = page.settings(
    globals(),
    recipes.PARAMETERS,
    laptop={"seeds": 3, "cluster_sizes": [16, 128]},
    smoke={"seeds": 2, "cluster_sizes": [8, 16]},
    fresh={"seeds": 1, "steps": 6, "cluster_sizes": [16, 64]},
    gpu={"cluster_sizes": [64, 128, 256, 512]},
    paper={"cluster_sizes": [64, 256, 512]},
)
settings

# %% [markdown]
# ## Two orders, several cluster sizes
#
# The recipe of the profile fixes data, model and schedule. The arms differ only in the size of
# clusters and in the order of packing. All batches have one size, which is at least that of the
# clusters, because otherwise clusters would not share a batch. Even clusters that are as large as
# batches do so, since their sizes vary around the mean. In both orders, all pairs of a batch are
# from one domain. The filter for false negatives is on in all arms. The arm with the tour at the
# recipe's own cluster size is a run of the chapter on Table 1.

# %%
recipe = recipes.recipe_of(settings)
SIZES = sorted(set(settings.cluster_sizes))
if len(SIZES) < 2 or SIZES[-1] > recipe.base.batch_size:
    raise ValueError(
        f"cluster_sizes must be two or more, none above the batch of {recipe.base.batch_size}; "
        f"they are {SIZES}"
    )
recipe.base

# %%
TSP, RANDOM = "tsp", "random"
ORDERS = {TSP: "greedy tour", RANDOM: "random"}
BI = {"architecture": "bi-encoder", "batches": "cluster"}


def name_of(order, size):
    """An arm's name."""
    return f"{ORDERS[order]}; clusters of {size}"


cells = [(order, size) for size in SIZES for order in ORDERS]
arms = {name_of(order, size): {**BI, "order": order, "cluster_size": size} for order, size in cells}

# %%
from cde_studies.sweeps import Sweep, sweep


def train_all():
    """Every arm with every seed, tested out of domain."""
    tests = [test for test in recipe.tests() if test.where == "out"]
    return sweep(arms, settings.every_seed, recipe, tests=tests)


key = settings.only("seeds", cluster_sizes=SIZES)
results = Sweep(page.experiment("tsp_packing-arms", train_all, key, recipe))

# %% [markdown]
# ## Score by cluster size and order
#
# Does the tour score higher than a random order? NDCG@10 is given times 100, as the mean over sets
# that training never saw. Loss (nats) and accuracy (per cent of the queries) are those of the last
# tenth of the steps, on the arm's own batches, so a higher loss can mean harder batches. The table
# has means over seeds, with their standard deviation.

# %%
import pandas as pd


def of_run(column, order, size):
    """A number of each run: loss or accuracy."""
    return results.of_run(column, arm=name_of(order, size))


def score(order, size):
    """NDCG@10 points of each seed, the mean over sets."""
    return results.score(arm=name_of(order, size))


# %%
def line(order, size):
    """A line of the table: one order of packing at one cluster size."""
    return {
        "cluster size": size,
        "order": ORDERS[order],
        "loss": page.mean_and_spread(of_run("loss", order, size)),
        "accuracy": page.mean_and_spread(100 * of_run("accuracy", order, size)),
        "NDCG@10": page.mean_and_spread(score(order, size)),
    }


plots.table(pd.DataFrame([line(order, size) for order, size in cells]))

# %%
runs = {
    label: pd.DataFrame({size: score(order, size) for size in SIZES})
    for order, label in ORDERS.items()
}
with plots.figure(width=7.0, height=3.4) as (drawing, axis):
    charts.curves(axis, runs, {size: place for place, size in enumerate(SIZES)}, shift=0.06)
    axis.set_xlabel(f"pairs per cluster (batches of {recipe.base.batch_size})")
    axis.set_ylabel("NDCG@10 out of domain, times 100")
    axis.legend(loc="best")

# %% tags=["hide-input"]
plots.show(
    drawing,
    caption="NDCG@10 by cluster size and order of packing; small points are seeds, lines are their "
    "means.",
    data=results.rows.groupby(["arm", "seed"], sort=False)[["ndcg", "loss"]].mean().reset_index(),
    answers="CDE Fig. 14",
)

# %% [markdown]
# ## Verdict
#
# A gain is the score with the tour minus that with a random order, between runs with the same seed
# and clusters. The gain at each cluster size alone is exploratory. Intervals are for other seeds
# and other sets at once.

# %%
from cde_book import gates

gates.of_recipe("tsp_packing", recipe, results)

# %%
HELPS = "cde-fig14-tsp-helps"
SMALL = "cde-fig14-tsp-small-clusters"
gains = {
    size: results.gain(
        {"arm": name_of(TSP, size)}, {"arm": name_of(RANDOM, size)}, by=["seed", "set"]
    )
    for size in SIZES
}
over = (
    f"out of domain, {results.sets()} sets, {recipe.base.steps} steps of {recipe.base.batch_size}"
)
every = f"mean of clusters of {' and '.join(map(str, SIZES))}; {over}"
helped = claims.measure_runs(HELPS, sum(gains.values()) / len(SIZES), every)
for size, gain in gains.items():
    claims.measure_runs(HELPS, gain, f"clusters of {size} alone", "exploratory")
least, most = SIZES[0], SIZES[-1]
what = f"clusters of {least} minus {most}; {over}"
more = claims.measure_runs(SMALL, gains[least] - gains[most], what)
claims.verdicts()


# %% tags=["hide-cell"]
packed = claims.apart(
    "NDCG@10 with neighbouring clusters packed together", helped, "random packing", unit="points"
)
shift = f"small instead of large clusters change this difference by {claims.shown(more)} points"
page.answer(f"{packed}; {shift}.")

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper's small setting has six layers, batches of 256 to 4,096 and clusters from 64 to millions
# of pairs, of hundreds of millions in all. At `laptop` there are 6,000 pairs, batches of 128, and
# 21 packages of 52 to 1,275 pairs as domains. The tour runs within a domain, so it has few clusters
# to choose from. The largest domain has about 80 clusters of 16, or about ten of 128, and many
# domains have a single one, so with large clusters the order could hardly matter. Packages of fewer
# pairs than a batch are not trained on, in either order. Training ends after some dozens of steps,
# and starts from a trained sentence encoder. Clusters larger than a batch are not tested, because
# their order decides about little more than the pairs that are left over. The paper does not say
# how often it ran each point.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("tsp_packing")
