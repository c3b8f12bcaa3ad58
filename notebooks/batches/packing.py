# %% [markdown]
# # What does packing do to the clusters?
#
# *The answer stands here once the chapter has run.*
#
# This page answers **CDE §4.1, "Packing"** {cite}`morris2024contextual`. Clusters have any size, batches have one: large
# clusters are split, small ones share a batch with others of the same domain. The paper considers two orders in which to
# lay clusters out, random and by a greedy travelling salesman, names a benefit of cutting them up (chance from one epoch
# to the next), and leaves the effects of packing to future work. Here they are measured, by a surrogate.

# %% tags=["hide-input"]
from cde.book.page import claims_under_test

claims_under_test("packing")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: str = "laptop"
seed: int = 0
pairs_per_package: int | None = None
max_tokens: int | None = None  # texts are cut there
cluster_size: int | None = None
batch_sizes: list[int] | None = None
epochs: int | None = None  # an even number: each two in a row are compared
tours: int | None = None  # of the greedy traveller, each from another start
queries_per_batch: int | None = (
    None  # looked at in each batch, against all of its documents
)
iterations: int | None = None  # of k-means
attempts: int | None = None  # of k-means, of which the best is kept

# %% tags=["hide-input"]
from cde.book import page

laptop = {
    "pairs_per_package": 600,
    "max_tokens": 64,
    "cluster_size": 128,
    "batch_sizes": [32, 128, 512],
    "epochs": 12,
    "tours": 20,
    "queries_per_batch": 64,
    "iterations": 15,
    "attempts": 1,
}
settings = page.settings(
    profile,
    {
        "smoke": {
            **laptop, "pairs_per_package": 40, "max_tokens": 16, "cluster_size": 16, "batch_sizes": [8, 16, 64],
            "epochs": 4, "tours": 3, "iterations": 5,
        },
        "laptop": laptop,
        "gpu": {
            **laptop, "pairs_per_package": 10**6, "max_tokens": 256, "cluster_size": 256,
            "batch_sizes": [64, 256, 1024], "iterations": 100, "attempts": 3,
        },
        "paper": {
            **laptop, "pairs_per_package": 10**6, "max_tokens": 512, "cluster_size": 512,
            "batch_sizes": [256, 512, 1024, 2048, 4096], "iterations": 100, "attempts": 3,
        },
    },
    pairs_per_package=pairs_per_package, max_tokens=max_tokens, cluster_size=cluster_size, batch_sizes=batch_sizes,
    epochs=epochs, tours=tours, queries_per_batch=queries_per_batch, iterations=iterations, attempts=attempts,
)  # fmt: skip
settings

# %% [markdown]
# ## Pairs and clusters
#
# The paired k-means of Eq. 3, twice: with all of `pydocs` as one domain, which leaves room for many clusters, and within
# each package, as the paper does within each dataset.

# %%
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import cde
from cde.batching.clustering import cluster_pairs
from cde.batching.statistics import batch_objective, cluster_members
from cde.book import plots

pairs = cde.load_pairs("pydocs", split="all").sample_per_domain(
    settings.pairs_per_package, seed
)
surrogate = cde.Surrogate(max_tokens=settings.max_tokens)
queries, documents = (
    surrogate.encode_queries(pairs.queries),
    surrogate.encode_documents(pairs.documents),
)
packages = np.unique(np.asarray(pairs.domains), return_inverse=True)[1]
how = {
    "cluster_size": settings.cluster_size,
    "iterations": settings.iterations,
    "attempts": settings.attempts,
    "seed": seed,
}
DOMAINS = {"all as one domain": None, "packages": list(pairs.domains)}
THREADS = {"all as one domain": None, "packages": 1}  # small work is faster on one
labels = {}
for name, domains in DOMAINS.items():
    with threadpool_limits(THREADS[name]):
        labels[name] = cluster_pairs(queries, documents, domains=domains, **how)
members = {name: cluster_members(own) for name, own in labels.items()}
sizes = {name: np.array([len(rows) for rows in own]) for name, own in members.items()}
print(f"{len(pairs):,} pairs; fingerprint {pairs.fingerprint}")
plots.table(
    pd.DataFrame(
        {
            name: {
                "domains": 1 if DOMAINS[name] is None else len(set(pairs.domains)),
                "clusters": len(found),
                "smallest": found.min(),
                "median": int(np.median(found)),
                "largest": found.max(),
            }
            for name, found in sizes.items()
        }
    ).T.rename_axis("clusters within")
)

# %% [markdown]
# ## How near the next cluster is
#
# A batch that a cluster does not fill goes on with the next one. The greedy traveller goes on to the nearest centroid not
# yet visited; early on there are near ones left, at the end only those that it passed by. Compared are the cosines of
# centroids that stand side by side, over tours from several starts, all of `pydocs` as one domain.

# %%
from cde.batching.packing import greedy_tour
from cde.intervals import mean_interval

centroids = np.stack(
    [documents[rows].mean(axis=0) for rows in members["all as one domain"]]
)
directions = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)
generator = np.random.default_rng(seed)


def steps(order):
    """Cosine of each centroid with the next in this order."""
    return (directions[order[:-1]] * directions[order[1:]]).sum(axis=1)


count = len(centroids)
starts = generator.choice(count, min(settings.tours, count), replace=False)
ways = {
    "greedy traveller": [steps(greedy_tour(centroids, int(one))) for one in starts],
    "random order": [steps(generator.permutation(count)) for _ in starts],
}
cosines = directions @ directions.T
np.fill_diagonal(cosines, -1)
nearest = cosines.max(axis=1)
neighbours = {name: mean_interval(np.mean(ways[name], axis=1)) for name in ways}

# %% tags=["hide-input"]
parts = np.array_split(np.arange(count - 1), min(10, count - 1))
along = pd.DataFrame(
    {
        "part of the row": [(part.mean() + 1) / count for part in parts],
        **{
            name: [np.mean([found[part].mean() for found in rows]) for part in parts]
            for name, rows in ways.items()
        },
    }
)
with plots.figure() as (drawing, axes):
    for name in ways:
        axes.plot(along["part of the row"], along[name], label=name)
    axes.axhline(
        nearest.mean(),
        linestyle="--",
        color=plots.COLORS[2],
        label="nearest of all clusters",
    )
    axes.set_xlabel("part of the row laid out so far")
    axes.set_ylabel("mean cosine with the next centroid")
    axes.legend()
plots.show(
    drawing,
    alt=(
        f"Line chart of the cosine of neighbouring centroids along the row of {count:,} clusters: the greedy traveller goes "
        f"from {along['greedy traveller'].iloc[0]:.2f} to {along['greedy traveller'].iloc[-1]:.2f}, the random order stays "
        f"about {neighbours['random order'].estimate:.2f}. A cluster's nearest is at {nearest.mean():.2f}."
    ),
    caption=f"How alike neighbouring clusters are; means over {len(starts)} tours.",
    data=along.assign(**{"nearest of all clusters": nearest.mean()}),
    answers="CDE §4.1, Packing",
)

# %% [markdown]
# Over the whole row, with intervals over tours:

# %%
plots.table(
    pd.DataFrame(
        {
            "cosine with the next centroid": neighbours,
            "n": {name: len(starts) for name in ways},
        }
    ).rename_axis("order")
)

# %% [markdown]
# ## Epochs of batches
#
# Each epoch lays the clusters out anew: another start of the tour or another random order, another order of the pairs
# within a cluster, so other places where clusters are cut. What does not fill a batch at the end of a domain is dropped.

# %%
from cde.batching.packing import BatchSampler
from cde.progress import progress

ORDERS = {"tsp": "greedy traveller", "random": "random order"}


def epochs_of(domains, order, batch_size, cross=False):
    """The batches of each epoch, as training draws them."""
    sampler = BatchSampler(
        labels[domains],
        batch_size,
        order=order,
        vectors=documents,
        domains=DOMAINS[domains],
        seed=seed,
        cross_domains=cross,
    )
    with threadpool_limits(THREADS[domains]):
        return [
            [next(sampler) for _ in range(sampler.batches_per_epoch)]
            for _ in range(settings.epochs)
        ]


largest_domain = {
    "all as one domain": len(pairs),
    "packages": int(np.bincount(packages).max()),
}
arms = [
    (domains, order, batch)
    for domains in DOMAINS
    for order in ORDERS
    for batch in settings.batch_sizes
    if 2 <= batch <= largest_domain[domains]
]
if not arms:
    raise ValueError(f"no batch size of {settings.batch_sizes} fits {len(pairs)} pairs")
packed = {arm: epochs_of(*arm) for arm in progress(arms, "packing", unit="arms")}

# %% [markdown]
# ## Split and shared clusters
#
# In the first epoch: the share of clusters whose pairs are in more than one batch, the share that has a batch in common
# with another cluster, and how many clusters a batch holds. Nearly every border of a cluster falls inside some batch, so
# nearly every cluster shares one.

# %%


def cut(own, batches):
    """What packing did to the clusters, and to the pairs that were dropped."""
    batch_of = np.full(len(own), -1)
    for number, batch in enumerate(batches):
        batch_of[batch] = number
    kept = batch_of >= 0
    together = pd.DataFrame({"cluster": own[kept], "batch": batch_of[kept]})
    together = together.drop_duplicates()
    in_batch = together.groupby("batch")["cluster"].transform("count")
    return {
        "batches": len(batches),
        "clusters split": (together["cluster"].value_counts() > 1).mean(),
        "clusters that share a batch": (
            together.assign(shared=in_batch > 1).groupby("cluster")["shared"].any()
        ).mean(),
        "clusters in a batch": len(together) / len(batches),
        "pairs dropped": 1 - kept.mean(),
    }


splits = pd.DataFrame(
    [
        {
            "clusters within": domains,
            "order": ORDERS[order],
            "batch size": batch,
            **cut(labels[domains], packed[domains, order, batch][0]),
        }
        for domains, order, batch in arms
    ]
)

# %% tags=["hide-input"]
plots.table(splits.round(3))

# %% [markdown]
# ## Difficulty before and after
#
# **Uncut** are the clusters as k-means leaves them, each taken as a batch of its own; **shuffled** batches have no clusters.
# Eq. 2 is the surrogate's cosine of a query with another pair's document, over all pairs of batch-mates, so that a large
# cluster weighs more than a small one. The mean cosine is the same with equal weights for clusters or batches, with its
# interval over these. The hardest negative and the loss grow with the batch: compare them at one batch size.

# %%
from cde.batching.packing import batch_difficulty, pack_batches


def difficulties(batches):
    """Mean cosine, hardest cosine and loss of the negatives, a row for each batch."""
    return pd.DataFrame(
        [
            batch_difficulty(queries, documents, batch, settings.queries_per_batch)
            for batch in batches
        ]
    )


made = {
    (domains, "uncut", "mean"): [
        generator.permutation(rows) for rows in own if len(rows) > 1
    ]
    for domains, own in members.items()
}
for domains, order, batch in arms:
    made[domains, ORDERS[order], batch] = packed[domains, order, batch][0]
for batch in sorted({batch for _, _, batch in arms}):
    made["all as one domain", "shuffled", batch] = pack_batches(
        np.zeros(len(pairs), np.int64), batch, seed=seed
    )
measured = {arm: difficulties(batches) for arm, batches in made.items()}
equation_2 = {
    arm: batch_objective(queries, documents, batches) for arm, batches in made.items()
}

# %% tags=["hide-input"]
difficulty = pd.DataFrame(
    [
        {
            "clusters within": domains,
            "order": order,
            "batch size": f"{sizes[domains].mean():.0f} (mean)"
            if order == "uncut"
            else batch,
            "Eq. 2": round(equation_2[domains, order, batch], 3),
            "mean cosine": mean_interval(rows["mean"]),
            "hardest": rows["hardest"].mean().round(3),
            "loss, nats": rows["loss"].mean().round(3),
            "n (batches)": len(rows),
        }
        for (domains, order, batch), rows in measured.items()
    ]
)
plots.table(difficulty)

# %% [markdown]
# ## Batch-mates met again
#
# For each pair that is in a batch in two epochs in a row: the share of its batch-mates in the first that are its
# batch-mates in the second. An interval is over pairs of epochs that have no epoch in common. Were batches drawn at
# random, the share would be about the batch size divided by the size of the domain. Shuffled batches are that baseline.


# %%
def met_again(first, second, n):
    """Mean share of a pair's batch-mates of one epoch that it meets again in the next."""
    batch_of = np.full((2, n), -1)
    for row, batches in zip(batch_of, (first, second), strict=True):
        for number, batch in enumerate(batches):
            row[batch] = number
    both = (batch_of >= 0).all(axis=0)
    _, cell, size = np.unique(
        batch_of[:, both], axis=1, return_inverse=True, return_counts=True
    )
    return float(((size[cell.ravel()] - 1) / (len(first[0]) - 1)).mean())


def over_epochs(epochs):
    """`met_again` for epochs 0 and 1, 2 and 3, and so on."""
    return mean_interval(
        [
            met_again(first, second, len(pairs))
            for first, second in zip(epochs[::2], epochs[1::2], strict=False)
        ]
    )


again = {arm: over_epochs(epochs) for arm, epochs in packed.items()}
baseline = {}
for batch in sorted({batch for _, _, batch in arms}):
    no_clusters = np.zeros(len(pairs), np.int64)
    baseline[batch] = over_epochs(
        [
            pack_batches(no_clusters, batch, seed=seed + epoch)
            for epoch in range(settings.epochs)
        ]
    )

# %% tags=["hide-input"]
from cde.book import claims
from cde.provenance import account

curves = pd.DataFrame(
    [
        {
            "clusters within": domains,
            "order": ORDERS.get(order, order),
            "batch size": batch,
            "batch size / cluster size": batch / settings.cluster_size,
            "share met again": interval.estimate,
            "low": interval.low,
            "high": interval.high,
            "n": interval.n,
        }
        for (domains, order, batch), interval in [
            *again.items(),
            *(
                (("all as one domain", "shuffled", batch), interval)
                for batch, interval in baseline.items()
            ),
        ]
    ]
)
RANDOMNESS = "cde-s41-packing-randomness"
bound = claims.ledger()[RANDOMNESS].expect["below"]
with plots.figure(1, 2, width=7.6, height=3.6, sharey=True) as (drawing, axes):
    for axis, domains in zip(axes, DOMAINS, strict=True):
        some = curves[curves["clusters within"] == domains]
        for name, rows in some.groupby("order", sort=False):
            spread = [
                rows["share met again"] - rows["low"],
                rows["high"] - rows["share met again"],
            ]
            axis.errorbar(
                rows["batch size / cluster size"],
                rows["share met again"],
                yerr=spread,
                label=name,
            )
        axis.axhline(
            bound, linestyle="--", color=plots.COLORS[4], label="the claim's bound"
        )
        axis.set_xscale("log", base=2)
        axis.set_ylim(0, 1.02)
        axis.set_xlabel("batch size / cluster size")
        axis.set_title(f"clusters within: {domains}")
    axes[0].set_ylabel("share of batch-mates met again")
    axes[0].legend(loc="upper left", bbox_to_anchor=(0, 0.88))
ranges = curves[curves["order"] != "shuffled"].groupby("clusters within")
reach = ranges["share met again"].agg(["min", "max"])
plots.show(
    drawing,
    alt=(
        "Two line charts of the share of batch-mates met again in the next epoch over the ratio of batch to cluster size. "
        + "; ".join(
            f"{name}: from {row['min']:.2f} to {row['max']:.2f}"
            for name, row in reach.iterrows()
        )
        + f". A dashed line marks the claim's bound, {bound}."
    ),
    caption="Share of a pair's batch-mates that it meets again in the next epoch, with 95 % intervals over pairs of epochs.",
    data=curves,
    answers="CDE §4.1, Packing",
)

# %% [markdown]
# ## Within domains, or across their borders
#
# The paper packs within a domain. The authors' code lays the clusters of all domains end to end and cuts them as one row,
# so that some batches straddle a border, and next to nothing is dropped. Domains are the packages.

# %%
batch_domains = []
for order, title in ORDERS.items():
    for batch in settings.batch_sizes:
        if not 2 <= batch <= len(pairs):
            continue
        own = {"across (the authors' code)": epochs_of("packages", order, batch, True)}
        if ("packages", order, batch) in packed:
            own["within (the paper)"] = packed["packages", order, batch]
        for name, epochs in own.items():
            straddling = [
                np.mean([len(set(packages[rows])) > 1 for rows in batches])
                for batches in epochs
            ]
            batch_domains.append(
                {
                    "order": title,
                    "batch size": batch,
                    "packing": name,
                    "straddling": mean_interval(straddling),
                    "n (epochs)": len(epochs),
                    "batches an epoch": len(epochs[0]),
                    "pairs dropped": 1 - len(epochs[0]) * batch / len(pairs),
                    "mean cosine": mean_interval(difficulties(epochs[0])["mean"]),
                }
            )
borders = pd.DataFrame(batch_domains)

# %% tags=["hide-input"]
plots.table(borders.round(3))

# %% [markdown]
# ## Verdict
#
# The claim is tested in both orders at every batch size at which a domain holds, on average, eight batches or more. In a
# domain that holds fewer there are few others to meet, whatever the packing: what is measured there is the size of our
# packages, and it is exploratory. (The bound is the ledger's; the paper gives no number. Shuffled batches are the
# baseline, and exploratory.)

# %% tags=["hide-input"]
BATCHES_IN_A_DOMAIN = 8


def batches_in_a_domain(domains, order, batch):
    """How many batches the pairs of a domain would fill, on average."""
    return len(pairs) / (1 if DOMAINS[domains] is None else len(set(packages))) / batch


for (domains, order, batch), interval in again.items():
    enough = batches_in_a_domain(domains, order, batch) >= BATCHES_IN_A_DOMAIN
    claims.measure(
        RANDOMNESS,
        interval,
        f"{domains}, {ORDERS[order]}, batches of {batch:,}, clusters of {settings.cluster_size:,}",
        role=settings.role if enough else "exploratory",
    )
for batch, interval in baseline.items():
    claims.measure(
        RANDOMNESS,
        interval,
        f"shuffled pairs (baseline), batches of {batch:,}",
        role="exploratory",
    )
claims.verdicts()

# %% tags=["hide-cell"]
verdict = claims.decide(claims.ledger()[RANDOMNESS], account.measured)
WHOLE = "all as one domain"
batch = min(
    (size for domains, _, size in arms if domains == WHOLE),
    key=lambda size: abs(size - settings.cluster_size),
)
mean = {name: equation_2[WHOLE, name, batch] for name in (*ORDERS.values(), "shuffled")}
across = borders[
    (borders["order"] == ORDERS["tsp"]) & borders["packing"].str.startswith("across")
]
row = across.loc[across["batch size"] == batch].iloc[0]
split = splits.query("`clusters within` == @WHOLE and `batch size` == @batch")
worst = max(again, key=lambda arm: again[arm].estimate)
worst_role = (
    f"a domain fills {batches_in_a_domain(*worst):.1f} batches there, so this is exploratory"
    if batches_in_a_domain(*worst) < BATCHES_IN_A_DOMAIN
    else "counted"
)
page.answer(
    f"""**{verdict.verdict.capitalize()} ({verdict.reason}).** With clusters of {settings.cluster_size:,} and batches of
    {batch:,}, a pair meets {again[WHOLE, "tsp", batch].estimate:.0%} of its batch-mates again in the next epoch if a
    greedy traveller lays the clusters out, {again[WHOLE, "random", batch].estimate:.0%} in random order, and
    {baseline[batch].estimate:.1%} in shuffled batches. The largest share, {again[worst].estimate:.0%}, is that of
    batches of {worst[2]:,} ({worst[0]}, {ORDERS[worst[1]]}; {worst_role}). Packing splits {split["clusters split"].min():.0%} to
    {split["clusters split"].max():.0%} of the clusters at this size; the mean cosine of negatives (Eq. 2) is
    {equation_2[WHOLE, "uncut", "mean"]:.3f} in uncut clusters, {mean["greedy traveller"]:.3f} after packing
    by the traveller, {mean["random order"]:.3f} in random order, {mean["shuffled"]:.3f} in shuffled batches. Across domain
    borders, as in the authors' code, {row["straddling"].estimate:.0%} of the batches straddle two packages or more."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper's datasets have up to hundreds of millions of pairs; our packages have hundreds, so that a domain holds few
# batches, much is dropped at its end, and a batch that crosses borders is a common thing. That is why most of this page
# takes all of `pydocs` as one domain. With few clusters the traveller soon runs out of near ones; among hundreds of
# thousands the next one is nearer. The shares of batch-mates met again depend on the ratios of batch, cluster and domain,
# and on how unequal the clusters are. All clusters come from one run of k-means: the intervals speak of the chance in
# packing, or of the batches of one epoch, not of other clusters or texts. At the profile `laptop` k-means has fewer
# iterations and one start (the settings above say how many), against the paper's 100 and 3. That more chance between epochs helps training
# is the paper's reason for valuing it; nothing is trained on this page.
#
# ## Run it again
#
# {rerun}
