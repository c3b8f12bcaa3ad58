# %% [markdown]
# # Do batches from one cluster make better embeddings?
#
# This page answers **Tables 1 and 2 and Fig. 2** of the clustering paper
# {cite}`merrick2024embedding`. The paper divides half a million pairs of one source into ten
# clusters, by passages or by queries, and fills each batch from one cluster. The training loss is
# then higher, and the model scores about two per cent higher on its own source and slightly higher
# elsewhere.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, CountOrZero, Long, Positive, Profile, Rate, Seed, Several

page.claims_under_test("stratified_batches")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0  # the first seed
seeds: Count | None = None  # training runs of each arm
clusters: Several | None = None  # that the pairs are cut into
draws: Several | None = None  # of other pairs, whose clusters are looked at with long_run
draw_pairs: Long | None = None  # pairs in each of these
amounts: list[Long] | None = None  # of pairs, in clusters of one size
amount_cluster: Several | None = None  # pairs in each of these, on average
data: str | None = None  # pairs to train on, as one source
pairs: Long | None = None
epochs: Positive | None = None
batch_size: Several | None = None
layers: CountOrZero | None = None  # of the start's transformer; 0 leaves word embeddings
learning_rate: Rate | None = None
long_run: bool = False  # train and test on $CDE_DATA, for an hour

# %%
from cde_studies.clustering.clustering_recipe import PARAMETERS, clustering_recipe, long_recipe

several = {"draws": 8, "draw_pairs": 2000, "amounts": [1000, 6000], "amount_cluster": 200}
settings = page.settings(
    globals(),
    PARAMETERS,
    laptop={"seeds": 5, "clusters": 10} | several,
    smoke={"seeds": 2, "clusters": 4, "amounts": [120, 300], "amount_cluster": 30},
    fresh={"seeds": 1, "epochs": 0.2, "amounts": [500, 2000]},
    gpu={"seeds": 3, "clusters": 10, "amounts": [40_000, 400_000], "amount_cluster": 10_000},
    paper={"seeds": 1, "clusters": 10, "amounts": [500_000, 10**8], "amount_cluster": 50_000},
)
settings

# %% [markdown]
# ## Three arms and a control
#
# All arms have the same pairs, encoder and optimiser (that of the paper's appendix A). They differ
# in what a batch is drawn from: *all pairs*, one cluster of *passages*, or one cluster of
# *queries*. Clusters come from spherical k-means on the vectors of an encoder that is already
# trained (the surrogate). At `laptop` our encoder is a mean of word embeddings, which learns fast.
#
# A fourth arm is a control that the paper, with its single source, cannot have. Clusters of our
# pairs follow the sources in part, so shuffled batches from one *source* each may have the same
# effect.

# %%
import math

import numpy as np
import pandas as pd

from cde.batching.clustering import cluster_vectors
from cde.lexical import BM25
from cde.training import build_model
from cde_studies.batches.statistics import cluster_statistics, mean_pairwise_cosine
from cde_studies.clustering.amounts import PASSAGES, SHUFFLED, nearness, train_on_amounts
from cde_studies.motivation.word_counts import sparse_vectors
from cde_studies.recipes import training_pairs
from cde_studies.sweeps import Sweep, evaluate_in_contexts, score_references

QUERIES, SOURCES = "query clusters", "one source"
LEXICAL, START = "BM25", "start, untrained"
SIDES, WORDS = ("queries", "passages"), "word counts"
recipe = clustering_recipe(profile, settings)
if settings.amount_cluster < 2 * recipe.base.batch_size:
    raise ValueError(
        f"amount_cluster must hold two batches of {recipe.base.batch_size} or more; it is "
        f"{settings.amount_cluster}"
    )


def cluster_size(of):
    """Pairs a cluster, on average."""
    return math.ceil(len(of.pairs) / settings.clusters)


def arms_of(of):
    """What the arms change in a recipe."""
    cluster = {"batches": "stratum", "cluster_size": cluster_size(of)}
    return {
        SHUFFLED: {"batches": "random"},
        PASSAGES: cluster | {"cluster_by": "documents"},
        QUERIES: cluster | {"cluster_by": "queries"},
    }


def train_and_test(of):
    """NDCG@10 of every arm on every set, beside what is not trained."""
    tests, references = of.tests(), {START: build_model(of.base), LEXICAL: BM25()}
    work = of.as_one_source, arms_of(of), settings.every_seed
    scores = of.train_all(*work, lambda run: evaluate_in_contexts(run.model(), tests))
    before = score_references(references, tests, settings.every_seed)
    return pd.concat([scores, before], ignore_index=True)


def train_by_source(of):
    """NDCG@10 of batches from one source each."""
    tests, by_source = of.tests(), {SOURCES: {"batches": "domain"}}
    work = of.pairs, by_source, settings.every_seed
    return of.train_all(*work, lambda run: evaluate_in_contexts(run.model(), tests))


def losses(of):
    """The loss of each step of every run."""
    work = of.as_one_source, arms_of(of), settings.every_seed
    return of.train_all(*work, lambda run: run.metrics[["step", "loss"]])


def densities_in(pairs, vectors, number):
    """Size and density of the clusters of either side; the whole set is cluster −1."""
    found, size = [], math.ceil(len(pairs) / settings.clusters)
    counts = sparse_vectors(pairs.queries, pairs.documents)
    for side, own, counted in zip(SIDES, vectors, counts, strict=True):
        labels = cluster_vectors(own, size, seed=number)
        for judge, judged in (("surrogate", own), (WORDS, counted)):
            table = cluster_statistics(judged, labels).reset_index()
            whole = {"cluster": -1, "size": len(judged), "similarity": mean_pairwise_cosine(judged)}
            table = pd.concat([table, pd.DataFrame([whole])])
            found.append(table.assign(side=side, judge=judge))
    return pd.concat(found, ignore_index=True)


def densities(of):
    """Those of the pairs that all runs train on."""
    return densities_in(of.pairs, of.vectors, settings.seed)


def densities_of_draws(of):
    """Those of other pairs, in draws that share none, each clustered from another start."""
    every = training_pairs(of.base.data)
    others = np.flatnonzero(~np.isin(every.ids, of.pairs.ids))
    drawn = np.random.default_rng(settings.seed).permutation(others)
    found = []
    for draw in range(settings.draws):
        one = drawn[draw * settings.draw_pairs : (draw + 1) * settings.draw_pairs]
        pairs = every.select(np.sort(one))
        found.append(densities_in(pairs, of.vectors_of(pairs), draw).assign(draw=draw))
    return pd.concat(found, ignore_index=True)


def nearest(of):
    """How near each collection is to a cluster of the pairs."""
    return nearness(of, cluster_size(of), settings.seed)


# %% [markdown]
# `cde run stratified_batches --record hours/stratified_batches-arms -p long_run true`, with
# $CDE_DATA, trains on pairs of 28 sources and tests on nine judged collections; `"day/*"` does so
# with two layers, for 1,000 steps of 128 pairs. `hours/stratified_batches-draws` trains nothing,
# and clusters other pairs again and again. `day/stratified_batches-amounts` trains on 10,000 pairs
# and on all, in clusters of 1,000.

# %%
from functools import partial
from itertools import product

from cde_book.differences import difference, difference_table, sweeps_at_profiles
from cde_book.records import rows_of_record
from cde_book.run_mode import this_run
from cde_book.verdicts import SCALES

PAGE, RECORDS = "stratified_batches-", {"densities": ["draws"]}
EXPERIMENTS = {"arms": train_and_test, "sources": train_by_source, "losses": losses}
EXPERIMENTS |= {"densities": densities}
key, clustered = settings.only("seeds", "clusters"), settings.only("clusters")


def made(name, compute, key, of, scale=profile):
    """The rows of one of this page's experiments at a scale."""
    proves = [PAGE + one for one in RECORDS.get(name, ())]
    return page.experiment(PAGE + name, partial(compute, of), key, of, proves=proves, profile=scale)


def amounts_at(scale, of, amounts, size):
    """NDCG@10 with clusters and without, by the amount of pairs."""
    shape = settings.only("seeds", amounts=amounts, amount_cluster=size)
    given = {"amounts": amounts, "cluster_size": size, "seeds": settings.every_seed}
    return made("amounts", partial(train_on_amounts, **given), shape, of, scale)


page.need_pairs(long_run)
if long_run:
    scales = {"hours": clustering_recipe("hours"), "day": long_recipe()}
    for (scale, of), (name, run) in product(scales.items(), EXPERIMENTS.items()):
        made(name, run, key, of, scale)
    amounts_at("day", scales["day"], [10_000, None], 1000)
    made("nearness", nearest, clustered, scales["day"], "day")
    of_draws = settings.only("clusters", "draws", "draw_pairs")
    made("draws", densities_of_draws, of_draws, scales["hours"], "hours")
rows = {name: made(name, run, key, recipe) for name, run in EXPERIMENTS.items()}
sweeps = {name: sweeps_at_profiles(PAGE + name, one) for name, one in rows.items()}
own = amounts_at(profile, recipe, settings.amounts, settings.amount_cluster)
by_amount = sweeps_at_profiles(f"{PAGE}amounts", own)
near = sweeps_at_profiles(f"{PAGE}nearness", made("nearness", nearest, clustered, recipe))
runs = sweeps["arms"]
for of, one in sweeps["sources"].items():
    runs[of] = Sweep(pd.concat([runs[of].rows, one.rows], ignore_index=True))
lead = min(set.intersection(*map(set, sweeps.values())), key=SCALES.index)

# %% [markdown]
# ## Table 2: retrieval with and without clusters
#
# NDCG@10 times 100, averaged over seeds. The held-out pairs are in domain, as MS MARCO is in the
# paper. *Change* is relative to the shuffled arm, in per cent.

# %%
PAPER = {SHUFFLED: 39.23, PASSAGES: 39.50, QUERIES: 39.28}
PAPER_IN = {SHUFFLED: 32.86, PASSAGES: 33.58, QUERIES: 33.48}
table = runs[lead].rows.pivot_table("ndcg", ["where", "set"], "arm") * 100
table = table[[one for one in (*arms_of(recipe), SOURCES, START, LEXICAL) if one in table]]
table.loc[("out", "mean"), :] = table.loc["out"].mean()
for arm in (PASSAGES, QUERIES):
    table[f"{arm}, change"] = 100 * (table[arm] / table[SHUFFLED] - 1)
plots.table(table.round(2).rename_axis(columns=None).reset_index())

# %%
DIFFERENCES = {
    f"{arm} − {SHUFFLED}": ({"arm": arm}, {"arm": SHUFFLED}) for arm in (PASSAGES, QUERIES, SOURCES)
} | {f"{PASSAGES} − {SOURCES}": ({"arm": PASSAGES}, {"arm": SOURCES})}
plots.table(difference_table(runs, DIFFERENCES))


# %% tags=["hide-input"]
from cde.intervals import table_interval


def relative_gain(of, arm, where, by="seed"):
    """Per cent that an arm has more than the shuffled one."""
    score = {one: runs[of].score(where=where, by=by, arm=one) for one in (arm, SHUFFLED)}
    return 100 * (score[arm] / score[SHUFFLED] - 1)


HELD_OUT, OVER_SETS = "held-out pairs", "mean of the other sets"
dots = {HELD_OUT: {}, OVER_SETS: {}}
ARMS_SHOWN = (PASSAGES, QUERIES, SOURCES)
for arm in ARMS_SHOWN:
    dots[OVER_SETS][arm] = relative_gain(lead, arm, "out")
    for name, values in relative_gain(lead, arm, None, ["set", "seed"]).groupby("set"):
        dots.setdefault(name, {})[arm] = values
# the paper's own: MS MARCO is in domain, and its mean is over 15 collections
of_paper = {
    name: {arm: 100 * (values[arm] / values[SHUFFLED] - 1) for arm in (PASSAGES, QUERIES)}
    for name, values in {HELD_OUT: PAPER_IN, OVER_SETS: PAPER}.items()
}
means = {
    arm: table_interval(relative_gain(lead, arm, "out", ["seed", "set"])) for arm in ARMS_SHOWN
}
bars = {OVER_SETS: {arm: one for arm, one in means.items() if one is not None}}
with plots.figure(width=8.2, height=0.9 + 0.36 * len(dots)) as (drawing, axis):
    charts.reference(axis, x=0)
    charts.seed_dots(
        axis, dots, "NDCG@10, per cent more than shuffled", marks=of_paper, intervals=bars
    )
plots.show(
    drawing,
    caption="Change of NDCG@10 with batches from one cluster, and from one source, by set. Each "
    "dot is a seed; bars are means over seeds and sets with 95 % intervals. Hollow diamonds are "
    "the paper's values, on MS MARCO and averaged over 15 collections.",
    data=pd.DataFrame(
        [
            {"set": f"{name}{whose}", "arm": arm, "change": value}
            for whose, every in (("", dots), (", the paper", of_paper))
            for name, some in every.items()
            for arm, values in some.items()
            for value in pd.Series(values)
        ]
    ),
    answers="Clustering Table 2",
    lead=True,
)

# %% [markdown]
# ## Fig. 2: the loss in training
#
# Are batches from one cluster harder? The figure shows the loss of one seed.

# %% tags=["hide-input"]
shown = sweeps["losses"][lead].rows.query("seed == seed.min()")
by_arm = shown.pivot_table("loss", "step", "arm")[list(arms_of(recipe))]
with plots.figure(width=7.0, height=3.2) as (drawing, axis):
    for arm, color in zip(by_arm, plots.COLORS, strict=False):
        axis.plot(by_arm[arm], color=color, marker="", alpha=0.2, linewidth=0.8)
    charts.curves(axis, dict(by_arm.rolling(10).mean()))
    axis.set(xlabel="step", ylabel="training loss (nats)")
    axis.legend()
plots.show(
    drawing,
    caption="Training loss: single steps faded, rolling means of ten steps as lines.",
    data=shown,
    answers="Clustering Fig. 2",
)

# %% [markdown]
# ## Table 1: size and density of the clusters
#
# *Similarity* is the mean cosine of two members, by the surrogate that made the clusters (as in the
# paper) and by tf-idf vectors of fewer dimensions that did not make them. The paper's clusters have
# 30,173 to 90,862 passages. Their similarity is 0.263 to 0.493 for passages (0.305 over all of
# them) and 0.633 to 0.769 for queries (0.670 over all of them).

# %%
table = sweeps["densities"][lead].rows.pivot_table(
    "similarity", ["side", "cluster", "size"], "judge"
)
table = table.rename_axis(columns=None).reset_index()
plots.table(table.round(3).replace({"cluster": {-1: "all"}}))

# %% [markdown]
# ## Does more data gain more?
#
# The paper reports, as an anecdote, gains of up to about a point with over a hundred million
# passages in hundreds of clusters. Here the same number of updates is trained on few pairs and on
# many, in clusters of one size, so that few pairs are fewer clusters and more epochs (at `laptop` 5
# clusters and 30). A cluster's last pairs, too few for a batch, are left out in each epoch;
# shuffled batches lose none. The table has the points that batches of passage clusters gain, with
# an interval for other seeds and sets.

# %%
CLUSTERED = {"arm": PASSAGES}, {"arm": SHUFFLED}
plots.table(
    pd.DataFrame(
        [
            {
                "profile": of,
                "pairs": pairs,
                "gain": claims.shown(difference(one, CLUSTERED, pairs=pairs)),
            }
            for of, one in by_amount.items()
            for pairs in sorted(one.rows["pairs"].unique())
        ]
    )
)

# %% [markdown]
# ## Verdict
#
# The rules were in the ledger before the first run. Intervals are over seeds for a single set and
# for losses, over both seeds and sets where there are several sets, and over clusters for their
# density and size.
#
# The first five seeds of `hours` decided nothing, so more were added. Adding seeds until an
# interval excludes zero would claim an effect too often, so only the later seeds are a test. All
# seeds together are exploratory. Ten clusters of queries decided nothing either. So eight draws of
# other pairs test whether these are denser and whether small clusters are looser, with intervals
# over draws, and the ten clusters that had been looked at are exploratory.
#
# The paper guesses that a collection gains where a cluster of the training data resembles it. So we
# compare, over collections, the gain with how much nearer the mean vector of the collection's
# documents is to the nearest cluster's mean than to the mean of all passages.
#
# Whether clusters of passages do better than those of queries is tested with layers alone (`day`):
# without them, both means were on this page before. Three runs of each arm were planned there. Two
# of them suggested that batches of one source do better than clusters of passages; runs of later
# seeds test this, on the same collections.

# %%
from cde.intervals import run_interval
from cde_studies.intervals import correlation_interval, share_interval

# seeds that test: those after a first look, and at `day` the three that were planned
TESTED = {"hours": range(5, 1000), "day": range(3)}
RIVAL, RIVALS = "ours-one-source-over-clusters", (SOURCES, PASSAGES)
SIDES_CLAIM = "clustering-table2-passages-over-queries"
AVERAGE, MOST = "clustering-table2-average", "clustering-table2-most-datasets"
LOSSES_CLAIM = "clustering-table2-losses"
IN_DOMAIN = {
    PASSAGES: "clustering-table2-in-domain-passages",
    QUERIES: "clustering-table2-in-domain-queries",
}
RISES, VARIES = "clustering-fig2-loss-rises", "clustering-fig2-loss-varies"
DENSER = {
    "queries": "clustering-table1-query-density",
    "passages": "clustering-table1-passage-density",
}
LOOSE = "clustering-s73-small-clusters-loose"

by_passages, by_source = {}, {}
for of, one in runs.items():
    named, scale = f"profile {of}, {one.sets()} sets", of
    own = f"profile {of}, held-out pairs"
    seeds_of = sorted(one.rows.loc[one.rows["arm"] == PASSAGES, "seed"].unique())
    later = [number for number in seeds_of if number in TESTED.get(of, seeds_of)]
    points = {
        arms: one.gain({"arm": arms[0]}, {"arm": arms[1]}, by=["seed", "set"]).dropna()
        for arms in ((PASSAGES, SHUFFLED), (PASSAGES, QUERIES), (SOURCES, SHUFFLED), RIVALS)
    }
    tested = {
        arms: gains[gains.index.get_level_values("seed").isin(later)]
        for arms, gains in points.items()
    }
    for arm, claim in IN_DOMAIN.items():
        claims.measure_runs(claim, relative_gain(of, arm, "in").loc[later], own, scale=scale)
    tests = tested[PASSAGES, SHUFFLED]
    by_passages[of] = claims.measure_runs(AVERAGE, tests, named, scale=scale)
    by_source[of] = table_interval(tested[SOURCES, SHUFFLED])
    # without layers, the means of both sides had been seen before there was a rule
    sides = "exploratory" if scale in ("laptop", "hours") else "test"
    claims.measure_runs(SIDES_CLAIM, tested[PASSAGES, QUERIES], named, sides, scale)
    if len(later) < len(seeds_of):
        for claim, arms in ((AVERAGE, (PASSAGES, SHUFFLED)), (SIDES_CLAIM, (PASSAGES, QUERIES))):
            claims.measure_runs(claim, points[arms], f"{named}, all seeds", "exploratory", scale)
    unseen = points[RIVALS][points[RIVALS].index.get_level_values("seed") > 1]
    if len(points[RIVALS]):
        claims.measure_runs(RIVAL, points[RIVALS], f"{named}, all seeds", "exploratory", scale)
    if len(unseen) and scale == "day":
        claims.measure_runs(RIVAL, unseen, f"{named}, later seeds", scale=scale)
    ahead = tests.groupby("set").mean() > 0
    claims.measure(MOST, share_interval(ahead, "sets"), named, scale=scale)
    those = [name for name in ("scifact", "climate-fever-evidence") if name in ahead.index]
    if those:
        others = one.gain({"arm": QUERIES}, {"arm": SHUFFLED}, by=["seed", "set"])
        both = ((points[PASSAGES, SHUFFLED] + others) / 2).loc[:, those].groupby("seed").mean()
        what = f"{named}: {' and '.join(those)}, without SCIDOCS"
        claims.measure_runs(LOSSES_CLAIM, both, what, "exploratory", scale)


for of, one in by_amount.items():
    few, many = one.rows["pairs"].min(), one.rows["pairs"].max()
    if few < many:  # where there are fewer pairs than were asked for, they are one amount
        of_many, of_few = (
            one.gain(*CLUSTERED, by=["seed", "set"], pairs=pairs) for pairs in (many, few)
        )
        named = f"profile {of}, {many:,} pairs minus {few:,}, {one.sets()} sets"
        claims.measure_runs("clustering-s33-scale", of_many - of_few, named, scale=of)
for of in [one for one in near if one in runs]:
    both = near[of].rows.set_index("set")[["nearer"]]
    both["gain"] = runs[of].gain(*CLUSTERED, by="set")
    if len(both) > 4:
        follows = correlation_interval(both["gain"], both["nearer"], "spearman")
        claims.measure("clustering-s33-clusters-like-the-test", follows, f"profile {of}", scale=of)


# %%
def second_half(of):
    """Mean loss, and variance from step to step, of each run's second half."""
    late = sweeps["losses"][of].rows.query("step > step.max() / 2").groupby(["arm", "seed"])["loss"]
    # of neighbouring steps: what the loss falls by in training does not count
    both = late.mean(), late.apply(lambda one: one.diff().var() / 2)
    return [one.reset_index().pivot_table("loss", "arm", "seed") for one in both]


record = None if this_run().fresh else rows_of_record(f"{PAGE}draws", "hours")
# what draws test in place of clusters
by_draws = {of: {DENSER["queries"]} for of in ("hours", "day")} if record else {}
for of, of_clusters in sweeps["densities"].items():
    level, jumps = second_half(of)
    for arm, role in ((PASSAGES, "test"), (QUERIES, "exploratory")):
        what = f"profile {of}, {arm}"
        claims.measure_runs(RISES, level.loc[arm] - level.loc[SHUFFLED], what, role, of)
        claims.measure_runs(VARIES, jumps.loc[arm] / jumps.loc[SHUFFLED], what, role, of)
    for judge, role in ((WORDS, "test"), ("surrogate", "exploratory")):
        what, follows = f"profile {of}, by {judge}", []
        for side, some in of_clusters.rows.query("judge == @judge").groupby("side"):
            every = some.set_index("cluster")
            inside = every.drop(-1).dropna()
            if judge == WORDS:
                denser = inside["similarity"] - every.loc[-1, "similarity"]
                counts = "exploratory" if DENSER[side] in by_draws.get(of, ()) else "test"
                claims.measure(DENSER[side], run_interval(denser, "clusters"), what, counts, of)
            if inside["size"].nunique() > 3:  # fewer have no interval
                both = inside["size"], inside["similarity"]
                follows.append((correlation_interval(*both, "spearman"), side))
        if len(follows) == len(SIDES):
            found, side = min(follows, key=lambda one: one[0].estimate)
            counts = "exploratory" if of in by_draws else role
            claims.measure(LOOSE, found, f"{what}, {side}", counts, of)

if record:
    rows = record.rows.query("judge == @WORDS").set_index(["side", "draw"])
    inside, whole = rows[rows["cluster"] >= 0], rows[rows["cluster"] < 0]["similarity"]
    by_draw = inside.groupby(["side", "draw"])
    denser = by_draw["similarity"].mean() - whole
    follow = by_draw.apply(lambda one: one["size"].corr(one["similarity"], method="spearman"))
    number = record.settings["draw_pairs"]
    what = f"{record.settings['draws']} draws of {number:,} other pairs, by {WORDS}"
    for side, values in denser.groupby("side"):
        role = "test" if DENSER[side] in by_draws["hours"] else "exploratory"
        claims.measure(DENSER[side], run_interval(values, "draws"), what, role, "hours")
    intervals = {side: run_interval(values, "draws") for side, values in follow.groupby("side")}
    side = min(intervals, key=lambda one: intervals[one].estimate)
    claims.measure(LOOSE, intervals[side], f"{what}, {side}", scale="hours")
claims.verdicts()

# %% tags=["hide-cell"]
shown = {"clusters of passages": by_passages[lead]}
if by_source[lead]:
    shown["batches of one source"] = by_source[lead]
gains_of = ", ".join(f"{name} {claims.shown(found)}" for name, found in shown.items())
kind = "with two layers" if lead == "day" else "without layers"
page.answer(f"NDCG@10 points over shuffled batches, {kind}: {gains_of}.")

# %% [markdown]
# ## What this teaches
#
# Clusters make batches harder, here as in the paper. With two layers and a thousand updates (`day`)
# clusters of passages gain about a point on other collections in each of four runs; the interval of
# the three that were planned just excludes zero, and no longer does after the correction for all
# claims. No difference shows there between clusters of passages and clusters of queries. Shuffled
# batches of one source need no clusters and gain about twice as much. Two runs had suggested that
# they are ahead of clusters, and two more show it again, on the same collections; this too does not
# survive the correction. On held-out pairs of all sources it is the other way around: clusters of
# passages score highest, and batches of one source lowest. {doc}`../results/controls` has clusters
# within a source; beside batches of that source no difference shows.
#
# Without layers clusters of passages gain about half a point over the seeds of `hours` that test
# it. Single seeds differ by as much, so that a single run of each arm, which is what the paper has,
# cannot distinguish the change from chance. The paper's larger clusters tend to be its denser ones.
# Ours, of several sources, are the looser ones by word counts.
#
# ## What differs from the paper's setting
#
# The paper trains BERT base with [CLS] vectors on half a million pairs of MS MARCO, once per arm,
# in batches of 4,096. Here two layers of MiniLM are trained on 100,000 pairs in batches of 128, in
# four runs, of which the first three test the paper's claims; at `laptop` and `hours` it is a mean
# of word embeddings in batches of 64, with more. A cluster has about 9 batches per epoch at
# `laptop`, 19 at `hours` and 78 at `day`; in the paper about 12. The pairs come from many packages
# or sources and count as one source, as MS MARCO's topics do. FiQA and SCIDOCS are not available
# here; SciFact and a part of Climate-FEVER are. `-p layers 2` uses an encoder with two layers, and
# `gpu` one with six layers and [CLS].
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("stratified_batches")
