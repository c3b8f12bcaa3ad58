# %% [markdown]
# # What does a contextual encoder read in its corpus?
#
# The idea behind **CDE §1 and §4.2** {cite}`morris2024contextual` is that of word statistics: a
# word that many documents of a corpus contain says little there, and should weigh little. This page
# looks inside encoders of {doc}`does_reading_help` and {doc}`taught_to_read`. Does the encoder know
# how common a word is? Does a word weigh less where it is common? And which queries gain from it?

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Layers, Long, Profile, Seed, Several

page.claims_under_test("reading_context")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 10  # the first seed
seeds: Count | None = None  # training runs
texts: Count | None = None  # documents of each test set whose words are weighed
packages: list[str] | None = None  # of pydocs, for lessons; every fifth is kept for the test
layers: Layers | None = None  # of MiniLM; by default all
pairs: Long | None = None  # to train on
steps: Long | None = None
batch_size: Several | None = None
context_size: Several | None = None
long_run: bool = False  # search judged collections of $CDE_DATA in every context, for hours

# %%
from cde_studies.results.frozen_encoder import PARAMETERS, with_reader

settings = page.settings(
    globals(),
    (*PARAMETERS, "packages"),
    laptop={"seeds": 3, "texts": 30},
    smoke={"seeds": 2, "texts": 5},
    fresh={"seeds": 1, "steps": 6, "texts": 5},
    gpu={"texts": 200},
    paper={"texts": 200},
)
settings

# %% [markdown]
# ## How a word is weighed
#
# If one word is left out of a document, the document's vector moves. The cosine distance that it
# moves is the word's *weight* in that document (`cde_studies.results.word_weights`). We weigh the
# words of the same documents in the context of their *own* corpus, of *another* one, and with *no*
# context, so that encoder and text stay the same and only the corpus changes. A word's *document
# share* is the share of a corpus' documents that contain it.
#
# If the encoder uses its corpus as word statistics do, words that are more common in the own corpus
# than in the other one lose weight there. We measure this by Spearman's correlation of the two
# changes: −1 for an encoder whose weights always follow the document shares, 0 for one that ignores
# its context.

# %%
import numpy as np
import pandas as pd

from cde.models import ContextualEncoder
from cde_studies.results.word_weights import document_shares, shares_read, word_weights

of = with_reader(profile, settings)
LEAST = 1e-5  # cosine distance: below it there is only rounding


def weighed(model, own, other):
    """Every word of some documents: its weight in three contexts, and how much commoner it is."""
    some = own.documents[: settings.texts]
    contexts = {"own": own.documents, "other": other.documents, "none": None}
    tables = {name: word_weights(model.with_context(one), some) for name, one in contexts.items()}
    words = tables["own"].rename(columns={"weight": "own"})
    words = words.assign(other=tables["other"]["weight"], none=tables["none"]["weight"])
    words = words[(words[list(contexts)] > LEAST).all(axis=1)]
    here, there = (document_shares(contexts[one])(words["word"]) for one in ("own", "other"))
    commoner, change = np.log2(here / there), np.log2(words["own"] / words["other"])
    return words.assign(share=here, commoner=commoner, change=change)


# %% [markdown]
# Search is scored query by query. A query's *drift* is how much more common or rarer its words are
# in the own corpus than in the other, as the mean of the absolute differences.

# %%
from cde.retrieval import rank, score_queries


def gained(model, own, other):
    """NDCG@10 points that each query gains from its own corpus' context, and its drift."""
    encoders = [model.with_context(corpus.documents) for corpus in (own, other)]
    here, there = (score_queries(rank(one, own), own)["ndcg@10"].to_numpy() for one in encoders)
    shares = [document_shares(corpus.documents) for corpus in (own, other)]
    drift = []
    for query in own.queries:
        own_share, other_share = (one(query.split()) for one in shares)
        drift.append(float(np.abs(np.log2(own_share / other_share)).mean()))
    return pd.DataFrame({"gain": 100 * (here - there), "drift": drift})


# %% [markdown]
# Does a word weigh less where it is common? We compare three encoders in the same contexts. The
# first two are those of {doc}`does_reading_help`, a frozen MiniLM with a *reader*, a small trained
# part that looks at documents of the corpus. One reader was trained on batches of one source; the
# other, the control, with one *fixed context*, so that it could learn nothing about corpora. The
# third encoder is that of {doc}`taught_to_read`. Its reader was also trained on *lessons*:
# synthetic text whose corpora differ in boilerplate, which cannot be searched well without the
# context (here the graded ones). The rule was written for the first encoder. It uses its context
# little, so the third shows best how a context changes the weight of words.

# %%
from cde.progress import progress
from cde_studies.motivation.corpus_statistics import Counts
from cde_studies.results.frozen_encoder import taught_recipe

READS, FIXED, TAUGHT = "reads the batch", "fixed context", "taught to read"
taught = taught_recipe(profile, settings, "graded")
ARMS = {READS: (of, {}), FIXED: (of, {"context_from": "fixed"}), TAUGHT: (taught, {})}
EDGES = [-np.inf, -4, -2, -1, 1, 2, 4, np.inf]


def spearman(table, one, other):
    """Spearman's correlation of two columns; of a constant one there is none."""
    return float(table[[one, other]].corr("spearman").iloc[0, 1])


def looks_up(model, corpus):
    """Correlation of what the reader reads of a word piece and the documents that hold it."""
    read = shares_read(model, corpus.documents[:200], corpus.documents)
    counts = Counts.of(corpus.documents, model.tokenizer, model.config.max_tokens)
    return spearman(read.assign(held=counts.pieces[read["piece"]]), "read", "held")


# %%
def look(arm, run_seed, test, other):
    """What one encoder makes of one corpus: a summary, and the change of weight by commonness."""
    recipe, change = ARMS[arm]
    folder = recipe.train(change, run_seed).folder / "model"
    model = ContextualEncoder.from_pretrained(folder, precision="float32")
    own, foreign = test.collection, other.collection
    words, queries = weighed(model, own, foreign), gained(model, own, foreign)
    key = {"arm": arm, "seed": run_seed, "set": test.name}
    summary = {
        **key,
        "what": "summary",
        "follows": spearman(words, "commoner", "change"),
        "without": spearman(words, "share", "none"),
        "within": spearman(words, "share", "own"),
        "looks_up": looks_up(model, own),
        "gain": float(queries["gain"].mean()),
        "drifted": spearman(queries, "drift", "gain"),
        "words": len(words),
    }
    bins = words.groupby(pd.cut(words["commoner"], EDGES, labels=False))
    binned = bins.agg(commoner=("commoner", "mean"), change=("change", "mean")).reset_index(
        drop=True
    )
    return pd.concat([pd.DataFrame([summary]), binned.assign(**key, what="bin")])


def look_at_all():
    """Every encoder on every set out of domain."""
    tests = of.out_of_domain()
    pairs = list(zip(tests, [*tests[1:], tests[0]], strict=True))
    jobs = [(arm, one, *pair) for arm in ARMS for one in settings.every_seed for pair in pairs]
    shown = progress(jobs, "weighing words", unit="sets")
    return pd.concat([look(*job) for job in shown], ignore_index=True)


rows = page.experiment(
    "reading_context-words", look_at_all, settings.only("seeds", "texts"), taught
)

# %%
binned = rows[rows["what"] == "bin"]
with plots.figure(width=7.0, height=3.8) as (drawing, axis):
    means = {}
    for number, arm in enumerate(ARMS):
        of_arm = binned[binned["arm"] == arm]
        look_of = {"color": plots.COLORS[number], "linewidth": 0.6, "marker": "o", "markersize": 3}
        for _, line in of_arm.groupby(["seed", "set"]):
            axis.plot(line["commoner"], 100 * (2 ** line["change"] - 1), alpha=0.3, **look_of)
        commoner = pd.cut(of_arm["commoner"], EDGES, labels=False)
        mean = of_arm.groupby(commoner)[["commoner", "change"]].mean()
        means[arm] = 100 * (2 ** mean.set_index("commoner")["change"] - 1)
    charts.curves(axis, means)
    charts.reference(axis, y=0, linestyle="-")
    axis.set_xlabel("how much more common in the own corpus, powers of two")
    axis.set_ylabel("weight in the own context, % more")
    axis.legend(loc="upper right")

# %% tags=["hide-input"]
from cde.intervals import table_interval

summary = rows[rows["what"] == "summary"]


def mean_of(arm, column):
    """The mean over sets and seeds with its interval; None without two numbers.

    Sets in which no query gains anything have no correlation, and are left out.
    """
    table = summary[summary["arm"] == arm].pivot_table(column, "seed", "set").dropna(axis=1)
    return table_interval(table)


follows = {arm: mean_of(arm, "follows") for arm in ARMS}
plots.show(
    drawing,
    caption="Do words weigh less where they are common? Each thin line is one encoder on one "
    "corpus, each thick line a mean.",
    data=binned[["arm", "seed", "set", "commoner", "change"]],
    answers="CDE §1 and §4.2",
    lead=True,
)

# %% [markdown]
# ## What the reader knows, and how it uses that
#
# All lines but the last two are Spearman's correlations. Intervals are over seeds and sets.

# %%
LINES = {
    "follows": "change of weight and of document share, own against another corpus",
    "without": "weight and document share, without context",
    "within": "weight and document share, in the own context",
    "looks_up": "what the reader reads of a word piece, and the documents that hold it",
    "drifted": "gain of a query, and the drift of its words",
    "gain": "gain of a query, in points of NDCG@10",
    "words": "words weighed in a set",
}
table = {LINES[one]: {arm: str(mean_of(arm, one)) for arm in ARMS} for one in LINES}
plots.table(pd.DataFrame(table).T.replace("None", "undefined"))

# %% [markdown]
# ## Does a context help where its statistics help?
#
# BM25 scores higher with the document frequencies of some corpora than with those of others. If an
# encoder uses a context as word statistics, the same corpora should help it. Here each set is
# searched by the encoder in the context of every set, and by BM25 with the document frequencies of
# every set. For each searched set, we take Spearman's correlation of the two scores over these
# sources.
# `cde run reading_context --record hours/reading_context-sources -p long_run true`, with $CDE_DATA,
# does so on nine judged collections.

# %%
from cde_book.differences import sweeps_at_profiles
from cde_studies.results.context_sources import follows_statistics, search_in_every_context


def search_everywhere(scale):
    """Every encoder with every seed, on every set out of domain, in the context of every set."""
    plain, lessons = with_reader(scale, settings), taught_recipe(scale, settings, "graded")
    trained = {
        READS: lambda one: plain.train({}, one),
        FIXED: lambda one: plain.train({"context_from": "fixed"}, one),
        TAUGHT: lambda one: lessons.train({}, one),
    }
    sources = plain.tests()
    searched = [test for test in sources if test.where == "out"]
    rows = [
        search_in_every_context(train(one).model(), searched, sources).assign(arm=arm, seed=one)
        for arm, train in trained.items()
        for one in settings.every_seed
    ]
    return pd.concat(rows, ignore_index=True)


NAME, key = "reading_context-sources", settings.only("seeds")
page.need_pairs(long_run)
if long_run:
    hours = taught_recipe("hours", settings, "graded")
    page.experiment(NAME, lambda: search_everywhere("hours"), key, hours, profile="hours")
found = page.experiment(NAME, lambda: search_everywhere(profile), key, taught)
everywhere = {scale: one.rows for scale, one in sweeps_at_profiles(NAME, found).items()}


# %%
def correlations(scale, arm):
    """A row for each seed, a column for each searched set."""
    of_arm = everywhere[scale].query("arm == @arm")
    each = {one: follows_statistics(rows) for one, rows in of_arm.groupby("seed")}
    return pd.DataFrame(each).T.dropna(axis=1)


together = {(of, arm): table_interval(correlations(of, arm)) for of in everywhere for arm in ARMS}
lines = {of: {arm: str(together[of, arm]) for arm in ARMS} for of in everywhere}
plots.table(pd.DataFrame(lines).T.replace("None", "undefined").rename_axis("profile"))

# %%
widest = list(everywhere)[-1]
with plots.figure(1, len(ARMS), width=7.4, height=2.8, sharex=True) as (drawing, axes):
    for axis, arm in zip(axes, ARMS, strict=True):
        scores = everywhere[widest].query("arm == @arm").groupby(["searched", "source"])
        points = 100 * scores[["bm25", "ndcg"]].mean()
        points = (points - points.groupby("searched").transform("mean")).reset_index()
        own = points["searched"] == points["source"]
        kinds = {"another corpus": points[~own], "own corpus": points[own]}
        dots = {kind: (rows_of["bm25"], rows_of["ndcg"]) for kind, rows_of in kinds.items()}
        charts.points(axis, dots, markersize=3)
        axis.set(title=arm, xlabel="BM25, points")
    axes[0].set_ylabel("encoder, points")
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plots.show(
    drawing,
    caption="Scores of an encoder with each corpus as context, and of BM25 with the document "
    "frequencies of that corpus, both minus the mean of the searched set.",
    data=everywhere[widest],
    answers="CDE §1 and §4.2",
)

# %% [markdown]
# ## Verdict
#
# The rules were fixed before the first run. Words that are more common in the own corpus lose
# weight there if the correlation of the two changes is below 0. This is one claim for readers
# trained on real text alone, and another for readers trained on lessons too. A reader trained on
# lessons uses contexts as word statistics if the correlation of the last section is above 0.

# %%
FOLLOWS, LEARNED = "ours-common-words-weigh-less", "ours-taught-words-weigh-less"
sets = summary["set"].nunique()
what = f"{sets} sets, {of.base.steps} steps of {of.base.batch_size}"
if all(follows.values()):
    claims.measure(FOLLOWS, follows[READS], what)
    claims.measure(FOLLOWS, follows[FIXED], f"{FIXED}, {what}", "exploratory")
    what = f"{sets} sets, {taught.base.steps} steps of {taught.base.batch_size}, half of lessons"
    claims.measure(LEARNED, follows[TAUGHT], what)
STATISTICS = "ours-context-follows-statistics"
for scale in everywhere:
    for arm, role in ((TAUGHT, "test"), (READS, "exploratory"), (FIXED, "exploratory")):
        if together[scale, arm]:
            searched = correlations(scale, arm).shape[1]
            what = f"{arm}, profile {scale}, {searched} sets searched"
            claims.measure(STATISTICS, together[scale, arm], what, role, scale=scale)
claims.verdicts()

# %% tags=["hide-cell"]
looked = [mean_of(arm, "looks_up") for arm in (READS, FIXED)]
known, fixed = (f"{one.estimate:.2f}" if one else "not defined" for one in looked)
weigh = claims.shown(follows[READS], 2) if follows[READS] else "not defined"
page.answer(
    f"""Lookups follow how common a word is (correlation {known}; fixed context {fixed}); how much
    commoner and how much lighter words get correlates at {weigh}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper does not look at weights of words. The reader is ours, and the encoder under it is
# frozen. Queries and keys of the reader's attention start equal, so a word finds itself in the
# context before any training. Leaving a word out also changes how its neighbours are embedded, and
# the weight includes that. Test sets are packages of one language, so their document shares differ
# less than those of real collections.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("reading_context")
