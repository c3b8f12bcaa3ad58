# %% [markdown]
# # Does it matter which context documents the encoder reads, and how many?
#
# This page answers **CDE Figs. 7, 15 and 16, §7 and §10.5** {cite}`morris2024contextual`, on one
# trained encoder in many contexts. In the paper, documents move a little with the context, but stay
# nearer to themselves than to others (Fig. 15). The model is best with a full window and still
# works with an empty one (Fig. 16). A domain's own context is usually best, but for some domains
# another is as good (Fig. 7). The paper prints no number for any of this, and no test.
#
# **Our encoder embeds a text alike in every corpus.** At `laptop`, context of another corpus moves
# a document on average by less than a hundredth of the distance between two documents (the first
# section has the number); that there is a context at all matters. So this page cannot say whether
# the paper is right. It shows what these figures look like for an encoder that does not tell
# corpora apart, and much of what the paper sees in them is seen here as well.

# %%
from cde_book import charts, claims, gates, page, plots
from cde_book.parameters import Count, Layers, Long, Profile, Seed, Several, Share

page.claims_under_test("context_source")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0  # the first seed
seeds: Count | None = None  # training runs of each encoder
draws: Count | None = None  # Figs. 15 and 16: contexts drawn from each corpus, or of each size
sample: Count | None = None  # Fig. 15: documents that are embedded
shares: list[Share] | None = None  # Fig. 16: of the window; must hold 0.5 and 1
documents: Count | None = None  # Fig. 7: of each domain's corpus, at most
queries: Count | None = None  # and queries
data: str | None = None  # pairs to train on
pairs: Long | None = None
steps: Long | None = None
batch_size: Several | None = None
cluster_size: Count | None = None
context_size: Count | None = None  # the window: context documents in training
layers: Layers | None = None  # of the start's transformer, in either stage

# %%
from cde_studies import recipes

moving = {"draws": 2, "sample": 100, "neighbours": 10, "pictured": 6}
more = {"sample": 1000, "draws": 5, "shares": [0.25, 0.5, 1.0, 2.0, 4.0]}
settings = page.settings(
    globals(),
    recipes.PARAMETERS,
    laptop={
        "seeds": 3,
        "shares": [0.25, 0.5, 1.0, 2.0],
        **moving,
        "documents": 150,
        "queries": 100,
    },
    smoke={"seeds": 2, "sample": 20, "neighbours": 5, "documents": 20, "queries": 10},
    fresh={"seeds": 1, "steps": 6, "documents": 40, "queries": 20},
    gpu={**more, "documents": 5000, "queries": 300},
    paper={**more, "documents": 50_000, "queries": 1000},
)
if not {0.5, 1.0} <= set(settings.shares):
    raise ValueError(f"shares must hold 0.5 and 1; they are {settings.shares}")
settings

# %% [markdown]
# ## How far does a document move?
#
# The encoders are those of {doc}`table1` on clustered batches: attention `full`, which is the
# paper's, and `cached`. Nothing is trained again. Documents of one test set that training never saw
# are embedded in contexts from their own corpus and from that of each other test set, `draws` times
# each, and with *null tokens*, the placeholders for missing context documents.

# %%
import numpy as np
import pandas as pd

from cde.progress import progress
from cde_studies.results.context_sources import search_with_sizes
from cde_studies.results.movement import ALL_REAL, OWN_OTHER, movement_by_kind, on_axes
from cde_studies.results.squares import APART, NULL, OTHERS, Squares, search_squares

recipe = recipes.recipe_of(settings)
tests = recipe.tests()
corpora = {test.name: test.collection.documents for test in tests}
unseen = [test for test in tests if test.where == "out"]
names = [test.name for test in unseen]
own = "networkx" if "networkx" in names else names[0]
count, needed = min(settings.sample, len(corpora[own])), max(settings.neighbours, settings.pictured)
if count <= needed:
    raise ValueError(f"{count} documents are too few: more than {needed} are needed")
drawn = np.random.default_rng(seed).choice(len(corpora[own]), count, replace=False)
FULL, CACHED = "full", "cached"
jobs = [(attention, run_seed) for attention in (FULL, CACHED) for run_seed in settings.every_seed]
contexts = [*((name, draw) for name in corpora for draw in range(settings.draws)), (NULL, 0)]


def trained(attention, run_seed):
    """The model of one training run."""
    arm = {"architecture": "contextual", "attention": attention, "batches": "cluster"}
    return recipe.train(arm, run_seed).model()


def move_all():
    """Distances of every encoder and seed; the places of the first seed's documents."""
    tables, sample = [], [corpora[own][row] for row in drawn]
    for attention, run_seed in progress(jobs, "training and embedding", unit="runs"):
        model = trained(attention, run_seed)
        encoders = [model.with_context(corpora.get(name), seed=draw) for name, draw in contexts]
        embedded = np.stack([one.encode_documents(sample) for one in encoders]).astype(np.float64)
        made = [movement_by_kind(embedded, contexts, own, settings.neighbours)]
        made += [on_axes(embedded, contexts, settings.pictured)] if run_seed == seed else []
        tables += [table.assign(attention=attention, seed=run_seed) for table in made]
    return pd.concat(tables, ignore_index=True)


key = settings.only("seeds", "draws", "neighbours", "pictured", of_set=own, documents=count)
moved = page.experiment("context_moves_embeddings-distances", move_all, key, recipe)
distances = moved.query("what == 'distance'").set_index(["attention", "kind", "seed"]).sort_index()


def share_moved(*cell):
    """How far documents move, as a share of the distance between two of them, by seed."""
    return (distances.loc[cell, "moved"] / distances.loc[cell, "between"]).astype(float)


# %%
of_picture = moved[moved["attention"] == FULL]
explained = of_picture[of_picture["what"] == "axes"].iloc[0]
points = of_picture.loc[of_picture["what"] == "point", ["document", "context", "draw", "x", "y"]]
corpus_of = points["context"].map({NULL: "null tokens", own: "own corpus"}).fillna("other corpora")
labels = {"document": (points["document"] + 1).map("document {:.0f}".format), "context": corpus_of}
with plots.figure(1, 2, width=7.6, height=3.9, sharex=True, sharey=True) as (drawing, axes):
    for axis, by in zip(axes, ("document", "context"), strict=True):
        places = {label: (rows["x"], rows["y"]) for label, rows in points.groupby(labels[by])}
        charts.points(axis, places, markersize=4, alpha=0.8)
        axis.set(title=f"by {by}", xlabel=f"first axis ({explained['x']:.0%} of variance)")
        axis.legend(loc="best", fontsize=7.5)
    axes[0].set_ylabel(f"second axis ({explained['y']:.0%} of variance)")
share = page.mean_and_interval(100 * share_moved(FULL, OWN_OTHER), digits=1)
plots.show(
    drawing,
    caption=f"{settings.pictured} documents in {len(contexts)} contexts each, on the first two "
    "principal axes: the same points, coloured by document and by context. Context of another "
    f"corpus moves a document by {share} % of the distance between two documents and leaves it "
    f"{distances.loc[(FULL, OWN_OTHER), 'kept'].mean():.0%} of its nearest neighbours.",
    data=points.astype({"document": int, "draw": int}).round(4),
    answers="CDE Fig. 15",
)

# %% [markdown]
# In the paper, the points of one document lie near each other. So do ours in all real contexts, as
# they would for any encoder that uses its context little or not at all. Null tokens do move
# documents, but they say nothing about a corpus. In training a context token was null with a
# probability of 0.005, so null tokens are hardly trained, and whatever they do is an accident.
#
# ## How far must documents move for a context to matter?
#
# Claims that credit a context have a gate, a condition without which they are not tested: the
# encoder has to use its context. Its bound comes from records of encoders that were tested in the
# context of their own corpus and of another. *Changes by* is the mean absolute difference in
# NDCG@10 between the two. The bound, 1 %, separates the encoders that barely move documents from
# the others.

# %%
from cde_book.records import rows_of_record
from cde_studies.results.movement import moved_and_changed

MOVERS = ("minilm_with_context-arms", "taught_to_read-graded", "taught_to_read-sets")
records = {name: rows_of_record(name, "hours").rows for name in MOVERS}
plots.table(moved_and_changed(records).round(2))

# %% [markdown]
# ## How many documents?
#
# Each encoder searches the sets that training never saw, with fewer documents of their corpus than
# its window holds, and with more. Null tokens fill the empty places. With `full`, a short context
# is also left short.

# %%
WINDOW, SHORTER = recipe.base.context_size, "shorter"
SIZES = {share: round(share * WINDOW) for share in sorted(settings.shares)}
sizes, fewer = [0, *SIZES.values()], [size for size in (0, *SIZES.values()) if size < WINDOW]
if sizes[1] < 2:
    raise ValueError(f"shares of a window of {WINDOW} must give 2 documents or more: {sizes[1:]}")
windows = {one: [(size, NULL) for size in sizes] for one in (FULL, CACHED)}
windows[FULL] += [(size, SHORTER) for size in fewer if size]


def score_all():
    """NDCG@10 of every encoder, seed and set in every context."""
    tables = []
    for attention, run_seed in progress(jobs, "training and testing", unit="runs"):
        model = trained(attention, run_seed)
        table = search_with_sizes(model, unseen, windows[attention], settings.draws)
        tables.append(table.assign(attention=attention, seed=run_seed))
    return pd.concat(tables, ignore_index=True)


key = settings.only("seeds", "draws", shares=sorted(settings.shares))
sized = page.experiment("context_size-scores", score_all, key, recipe)
by_cell = sized.assign(points=100 * sized["ndcg"]).set_index(["attention", "fill", "size"])
places = {size: place for place, size in enumerate(sizes)}
fills = {NULL: "empty places: null tokens", SHORTER: "context left short"}

# %%
with plots.figure(1, 2, width=7.6, height=3.4, sharey=True) as (drawing, axes):
    for axis, attention in zip(axes, (FULL, CACHED), strict=True):
        lines = by_cell.loc[attention]
        series = {
            label: lines.loc[fill].pivot_table("points", ["seed", "draw"], "size")
            for fill, label in fills.items()
            if fill in lines.index
        }
        charts.curves(axis, series, places, shift=0.12)
        charts.reference(axis, x=places[WINDOW])
        axis.set(title=f"attention {attention}", xlabel=f"context documents (window: {WINDOW})")
    axes[0].set_ylabel("NDCG@10 out of domain, times 100")
    axes[0].legend(loc="best")
plots.show(
    drawing,
    caption="Retrieval by number of context documents. Small points are seeds and draws, the line "
    "is their mean, and the dotted line marks the window of training.",
    data=by_cell.groupby([*by_cell.index.names, "seed", "draw"])["points"].mean().reset_index(),
    answers="CDE Fig. 16",
)

# %% [markdown]
# With null tokens the curve rises up to the full window, as in the paper. At `laptop` it rises much
# less where a short context is left short. So most of the rise comes from fewer placeholders, not
# from more documents.
#
# ## From which corpus?
#
# A domain is here a package whose docstrings are searched. All are searched in the context of each.
# *Null* has only null tokens. *Apart* is a control, the package's own context without any document
# of the corpus that is searched: the usual draw puts documents that are searched into the context.
# (A corpus that is searched whole leaves none.) The paper's domains are forums.

# %%
from functools import partial

search = partial(search_squares, partial(trained, FULL), settings.every_seed, tests)
search = partial(search, settings.documents, settings.queries)
key = settings.only("seeds", "documents", "queries", domains=None)  # all
squares = Squares(page.experiment("context_source-packages", search, key, recipe))

# %%
from matplotlib.patches import Rectangle

table = squares.points()
size = {"width": min(7.6, 1.9 + 0.72 * len(table.columns)), "height": 1.5 + 0.46 * len(table)}
with plots.figure(**size) as (drawing, axis):
    charts.heatmap(axis, table, shades=table.sub(table[squares.names].max(axis=1), axis=0))
    look = {"fill": False, "edgecolor": plots.COLORS[1], "linewidth": 2}
    for row, column in np.argwhere(squares.within_a_point().to_numpy()):
        axis.add_patch(Rectangle((column - 0.46, row - 0.45), 0.92, 0.9, **look))
    axis.tick_params(axis="x", rotation=40)
    axis.set(xlabel="context from", ylabel="searched")
plots.show(
    drawing,
    caption="NDCG@10 times 100 by the source of the context, mean over seeds. Framed: within a "
    "point of the best domain's context in the row, as the paper marks it.",
    data=table.round(2),
    answers="CDE Fig. 7",
)

# %% [markdown]
# At `laptop` nearly all squares have a frame, as they must if the encoder ignores its context. The
# mark ignores chance, too: with a hundred queries a point can be noise. The table counts squares
# that differ from the own context by a randomisation test over queries, after Holm's correction.

# %%
from cde.intervals import table_interval


def mean_gain(gains):
    """The mean of differences by seed and set, with the interval over both."""
    return table_interval(gains) or float(gains.mean())


def gains_over(kind):
    """What the own context gains over a kind, by seed and searched domain."""
    return squares.own_minus(kind).reorder_levels(["seed", "test"])


plots.table(pd.DataFrame({"packages": squares.counts()}))

# %% [markdown]
# What does the own context gain over others, and a full window over half of one?


# %%
def by_set(attention, size, fill=NULL):
    """NDCG@10 points by seed and set, the mean over draws."""
    return by_cell.loc[(attention, fill, size)].groupby(["seed", "set"])["points"].mean()


half = by_set(FULL, SIZES[0.5], SHORTER)
minus = {"another corpus": OTHERS, "the own apart": APART, "null tokens": NULL}
gained = {f"own corpus − {over}": mean_gain(gains_over(kind)) for over, kind in minus.items()}
gained["all documents − half as many"] = mean_gain(by_set(FULL, WINDOW) - half)
charts.show_forest(
    gained,
    ["contexts"],
    "points of NDCG@10",
    "What the own corpus as context gains over others, and the full window over half of it, with "
    "intervals over seeds and corpora. The paper's figures have no numbers.",
    "CDE Figs. 7 and 16",
    lead=True,
)

# %% [markdown]
# ## Verdict
#
# *Fig. 15*: over all pairs of real contexts. A document that moves by less than a twentieth of the
# distance to another has almost the same embedding as before. *Fig. 16*: with null tokens in the
# empty places; *smaller contexts* are all below a full window, and none. *Fig. 7*: on the packages.
# All tests use the paper's attention, `full`; the rest is exploratory.

# %%
gates.of_recipe("context_source", recipe)

# %%
cells = set(distances.index.droplevel("seed"))
for attention, kind in sorted(cells, key=lambda cell: (cell != (FULL, ALL_REAL), cell)):
    role = "test" if (attention, kind) == (FULL, ALL_REAL) else "exploratory"
    what = f"{attention}; {count} documents of {own}, contexts: {kind}"
    for claim in ("cde-fig15-context-moves", "cde-fig15-documents-stay-apart"):
        claims.measure_runs(claim, share_moved(attention, kind), what, role)
BEST, PARTIAL = "cde-fig16-full-context-best", "cde-fig16-partial-context"
for attention, role in ((FULL, "test"), (CACHED, "exploratory")):
    what = f"{attention}; out of domain, {len(unseen)} sets, window of {WINDOW}"
    whole, none = by_set(attention, WINDOW), by_set(attention, 0)
    below = sum(by_set(attention, size) for size in fewer) / len(fewer)
    claims.measure_runs(BEST, whole - below, what, role)
    claims.measure_runs(PARTIAL, by_set(attention, SIZES[0.5]) - none, what, role)
    claims.measure_runs("cde-fig16-no-context", none / whole, what, role)
for size in sizes:
    if size != WINDOW:
        lost, what = by_set(FULL, WINDOW) - by_set(FULL, size), f"{FULL}; {size} documents alone"
        claims.measure_runs(BEST, lost, what, "exploratory")
claims.measure_runs(PARTIAL, half - by_set(FULL, 0), f"{FULL}; context left short", "exploratory")
OWN, CROSS = "cde-fig7-own-domain-best", "cde-fig7-crossover"
what = f"{len(squares.names)} packages"
claims.measure_runs(OWN, gains_over(OTHERS), what)
claims.measure_runs(CROSS, squares.crossover(), what)
claims.verdicts()

# %% tags=["hide-cell"]
others = mean_gain(-gains_over(OTHERS))
fewer_by = mean_gain(half - by_set(FULL, WINDOW))
alike = "; it embeds alike in every corpus"
ignores = alike if "read its context" in claims.reason(CROSS) else ""
another = "NDCG@10 with another corpus' documents"
page.answer(
    f"""{claims.apart(another, others, "that with its own", "points")};
    {claims.apart("with half as many it", fewer_by, "all", "")}{ignores}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper tests a model trained on hundreds of millions of pairs, with a window of 512 documents,
# on TREC-COVID (Fig. 15) and the full forums of CQADupStack (Fig. 7), where duplicates of a
# question are to be found. At `laptop` a model of two layers a stage has seen some dozens of steps
# on docstrings, and has a window of 32. Packages resemble each other more than forums do, and some
# were trained on. Corpora are small samples, of which a draw of the context has a larger part. Each
# square has one draw for each run, so the draw and the domain cannot be told apart in it.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("context_source")
