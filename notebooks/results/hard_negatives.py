# %% [markdown]
# # Do hard negatives still help when batches are clustered?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **CDE Fig. 11, §10.5** {cite}`morris2024contextual`. In supervised training,
# which follows unsupervised training, the paper adds mined hard negatives to each query and sees
# that scores fall in general. It gives no numbers, and its best model has one hard negative per
# query.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, CountOrZero, Layers, Long, Profile, Rate, Seed, Several

page.claims_under_test("hard_negatives")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0  # the first seed
seeds: Count | None = None  # training runs of each arm
hard_negatives: list[CountOrZero] | None = None  # a query; two numbers or more
supervised_batch_size: Several | None = None  # of the second phase, and its cluster size
epochs: Count | None = None  # of the second phase
data: str | None = None  # pairs to train on
pairs: Long | None = None
steps: Long | None = None
batch_size: Several | None = None  # of the first phase, as the settings above
cluster_size: Count | None = None
context_size: Count | None = None  # of the recipe; a bi-encoder has no context
layers: Layers | None = None  # of the start's transformer
learning_rate: Rate | None = None

# %%
from cde_studies import recipes

counts = {"hard_negatives": [0, 1, 2, 4]}
settings = page.settings(
    globals(),
    recipes.PARAMETERS,
    laptop={"seeds": 3, "hard_negatives": [0, 1, 3], "supervised_batch_size": None, "epochs": None},
    smoke={"seeds": 2, "hard_negatives": [0, 1]},
    fresh={"seeds": 1, "steps": 6, "epochs": 1},
    gpu=counts,
    paper=counts,
)
settings

# %% [markdown]
# ## Two phases
#
# The first phase is that of the chapter on Table 1: a bi-encoder on clustered batches, with
# in-batch negatives only. Each arm continues from the first phase with the same seed, on pairs that
# this phase has not seen and again in clustered batches. The arms differ only in the number of hard
# negatives. With `pydocs` the second phase's pairs are more docstrings, because no written
# questions are available offline.
#
# A query's hard negatives are the documents of its domain that the surrogate, a model that is
# already trained, scores highest. Those that score as high as the query's own document are left
# out, by the rule of the filter for false negatives. Hard negatives are added to the documents of
# the batch as negatives of *all* its queries, and the filter checks them again for each query. So
# an arm with more hard negatives also has more negatives in total, and its steps cost more.

# %%
import pandas as pd

from cde_studies.sweeps import Sweep, sweep

recipe = recipes.recipe_of(settings)
FIRST_PHASE = {"architecture": "bi-encoder", "batches": "cluster"}
second = {**recipe.second}
if settings.supervised_batch_size is not None:
    second |= dict.fromkeys(("batch_size", "cluster_size"), settings.supervised_batch_size)
if settings.epochs is not None:
    second["epochs"] = settings.epochs
plots.table(pd.DataFrame({"second phase": second}))

# %%
COUNTS = sorted(set(settings.hard_negatives))
if len(COUNTS) < 2:
    raise ValueError(f"hard_negatives must be two different numbers or more; they are {COUNTS}")
BEFORE = "first phase alone"
NAMES = {BEFORE: BEFORE, **{count: f"{count} a query" for count in COUNTS}}
arms = {NAMES[count]: {**second, "hard_negatives": count} for count in COUNTS}


def train_all():
    """Every arm with every seed, each after the first phase of its seed, which is tested too."""
    tests = [test for test in recipe.tests() if test.where == "out"]
    before = sweep({BEFORE: FIRST_PHASE}, settings.every_seed, recipe, tests=tests)
    then = sweep(arms, settings.every_seed, recipe, tests=tests, after=FIRST_PHASE)
    return pd.concat([before, then])


key = settings.only("seeds", counts=COUNTS, second=second)
results = Sweep(page.experiment("hard_negatives-arms", train_all, key, recipe))

# %% [markdown]
# ## Score by hard negatives
#
# Does NDCG@10 change with the number of hard negatives? It is given times 100, as the mean over
# sets that training never saw. Loss (nats) and accuracy (per cent of the queries) are those of the
# last tenth of the steps, over all negatives of the arm, so they also depend on how many negatives
# there are. The table has means over seeds, with their standard deviation. The first phase alone
# has different batches, so its loss and accuracy cannot be compared with the others.

# %%
scores = {count: results.score(arm=name) for count, name in NAMES.items()}


def line(count):
    """A line of the table: the first phase alone, or a number of hard negatives."""
    of_runs = {column: results.of_run(column, arm=NAMES[count]) for column in ("loss", "accuracy")}
    return {
        "hard negatives a query": count,
        "documents a batch": "" if count == BEFORE else second["batch_size"] * (1 + count),
        "loss": page.mean_and_spread(of_runs["loss"]),
        "accuracy": page.mean_and_spread(100 * of_runs["accuracy"]),
        "NDCG@10": page.mean_and_spread(scores[count]),
    }


plots.table(pd.DataFrame([line(count) for count in NAMES]))

# %%
with plots.figure(width=4.8, height=3.0) as (drawing, axis):
    charts.curves(axis, {"second phase": pd.DataFrame({count: scores[count] for count in COUNTS})})
    charts.reference(axis, y=scores[BEFORE].mean(), name=BEFORE)
    axis.set_xticks(COUNTS)
    axis.set_xlabel("hard negatives per query")
    axis.set_ylabel("NDCG@10 out of domain, × 100")

# %% tags=["hide-input"]
plots.show(
    drawing,
    caption="NDCG@10 by the number of hard negatives; small points are seeds, the line is their "
    "mean, the dotted line the mean before the second phase.",
    data=results.rows.groupby(["arm", "seed"], sort=False)[["ndcg", "loss"]].mean().reset_index(),
    answers="CDE Fig. 11",
    lead=True,
)

# %% [markdown]
# ## Verdict
#
# We test the score with the most hard negatives minus that with the fewest, between runs with the
# same seed and therefore the same batches. Each other number minus the fewest is exploratory.
# Intervals are for other seeds and other collections at once.

# %%
from cde_book import gates

gates.of_recipe("hard_negatives", recipe, results)

# %%
WORSE = "cde-fig11-more-hard-negatives"
fewest, most = COUNTS[0], COUNTS[-1]
changed = {
    count: results.gain({"arm": NAMES[count]}, {"arm": NAMES[fewest]}, by=["seed", "set"])
    for count in COUNTS[1:]
}
phases = (
    f"{second['epochs']} epoch(s) of {len(recipe.supervised_pairs):,} pairs after "
    f"{recipe.base.steps} steps of {recipe.base.batch_size}"
)
found = {}
for count, values in changed.items():
    what = f"{count} minus {fewest} a query; out of domain, {results.sets()} sets, {phases}"
    role = "test" if count == most else "exploratory"
    found[count] = claims.measure_runs(WORSE, values, what, role)
claims.verdicts()

# %% tags=["hide-cell"]
many = f"On clustered batches, a bi-encoder fine-tuned with {most} hard negatives per query"
page.answer(f"{claims.apart(many, found[most], f'one with {fewest}')}.")

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper's supervised phase has 1.8 million pairs written by people, and negatives mined
# beforehand by the makers of the data; it follows a long unsupervised phase. With `pydocs` the
# second phase has other docstrings of the same packages, the surrogate mines within a package, and
# the first phase has some dozens of steps. A hard negative that is already in the clustered batch
# counts twice; packages with fewer pairs than a batch are not trained on. Some of the
# highest-ranked documents may answer the query as well, and those that the surrogate overlooks are
# false negatives. The paper's figure pools all its supervised models, and its text does not say
# which encoders they are; this page has only the bi-encoder. All arms take the same number of
# steps, so those with more negatives need more computation.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("hard_negatives")
