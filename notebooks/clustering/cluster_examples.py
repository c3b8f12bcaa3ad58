# %% [markdown]
# # What do clusters of training pairs have in common?
#
# This page answers **App. B and §4.4** of the clustering paper {cite}`merrick2024embedding`. The
# paper lists some members of its clusters, ten of queries and ten of passages, and finds topics in
# them. One cluster of queries has a kind of question: those that ask for a quantity. Here we list
# clusters of other texts, and measure whether they follow topic or form.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Profile, Seed, Several, Tokens

page.claims_under_test("cluster_examples")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
data: str | None = None  # pairs of many sources; by default pairs/* of $CDE_DATA, else pydocs
questions: str | None = None  # pairs of one source, whose queries are questions
pairs: Several | None = None  # that are drawn of each
clusters: Several | None = None  # that they are cut into
starts: Several | None = None  # of k-means, over which all is averaged
max_tokens: Tokens | None = None  # texts are cut there
members: Count | None = None  # of each cluster that are shown

# %%
settings = page.settings(
    globals(),
    laptop={
        "data": None,
        "questions": "pairs/squad-question-sentence",
        "pairs": 4000,
        "clusters": 10,
        "starts": 10,
        "max_tokens": 48,
        "members": 10,
        "first_words": 20,
        "sparse_dim": 128,
    },
    smoke={
        "data": "pydocs",
        "questions": "pydocs/networkx",
        "pairs": 200,
        "clusters": 4,
        "starts": 2,
        "max_tokens": 16,
        "members": 3,
    },
    fresh={"pairs": 600, "starts": 3},
    gpu={"pairs": 100_000, "max_tokens": 256},
    paper={"pairs": 500_000, "max_tokens": 256},
)
settings

# %% [markdown]
# ## Two clusterings of the same pairs
#
# Spherical k-means clusters a sample of pairs by the vectors of its passages, and by those of its
# queries. One sample is mixed from many sources. The other has questions from one source alone,
# like the paper's MS MARCO. K-means depends on its random start, so measurements are over several
# starts; the tables show the first.

# %%
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd

import cde
from cde.batching.clustering import cluster_vectors
from cde.data import is_available

surrogate = cde.Surrogate(max_tokens=settings.max_tokens)


def cut(vectors):
    """The cluster of each pair, from each start of k-means."""
    size, seeds = -(-len(vectors) // settings.clusters), range(settings.starts)
    return [cluster_vectors(vectors, size, seed=settings.seed + one) for one in seeds]


def clustered(name):
    """A sample of pairs: the texts of both sides, their vectors, and the clusters by either."""
    drawn = cde.load_pairs(name).sample(settings.pairs, settings.seed)
    texts = {"passages": drawn.documents, "queries": drawn.queries}
    vectors = {
        "passages": surrogate.encode_documents(drawn.documents),
        "queries": surrogate.encode_queries(drawn.queries),
    }
    cuts = {side: cut(own) for side, own in vectors.items()}
    labels = {side: first for side, (first, *_) in cuts.items()}
    return SimpleNamespace(pairs=drawn, texts=texts, vectors=vectors, cuts=cuts, labels=labels)


MIXED, ALONE = "many sources", "questions alone"
every = "pairs/*" if is_available("pairs/*") else "pydocs"
samples = {MIXED: clustered(settings.data or every)}
if is_available(settings.questions):
    samples[ALONE] = clustered(settings.questions)
mixed = samples[MIXED]

# %% [markdown]
# ## What clusters tell of a pair
#
# How well does a pair's cluster predict which source the pair comes from, and which word its query
# begins with? That word (*what*, *how*, *is*) represents the form of a question. The measure is
# adjusted mutual information: 1 if the cluster determines the answer, 0 if it tells no more than
# random groups of the same sizes. Intervals cover both other pairs (by jackknife) and other starts
# of k-means.

# %%
import numpy as np
from sklearn.metrics import adjusted_mutual_info_score as agreement

from cde.intervals import crossed_interval, run_interval

GROUPS = 20
OTHER = "any other word"


def openings(queries):
    """The first word of each query, if it is among the most common ones."""
    words = pd.Series(queries).str.lower().str.extract(r"(\w+)", expand=False).fillna("")
    return words.where(words.isin(words.value_counts().index[: settings.first_words]), OTHER)


def without_each_group(known, labels):
    """How much clusters tell of what is known of each pair: jackknife values, one a group."""
    group = np.random.default_rng(settings.seed).permutation(len(known)) % GROUPS
    left = np.array([agreement(known[group != g], labels[group != g]) for g in range(GROUPS)])
    return GROUPS * agreement(known, labels) - (GROUPS - 1) * left


def values(known, cuts):
    """These for each start of k-means: a row for each."""
    codes = pd.factorize(np.asarray(known))[0]
    return np.array([without_each_group(codes, labels) for labels in cuts])


def over_both(table):
    """Their mean, with an interval over starts and over groups of pairs."""
    method = "jackknife over pairs, crossed with starts of k-means"
    return replace(crossed_interval(table), method=method)


# %%
SOURCE, WORD = "source", "first word of the query"
for sample in samples.values():
    sample.words = openings(sample.pairs.queries)
asked = {(SOURCE, MIXED): mixed.pairs.domains}
asked |= {(WORD, name): sample.words for name, sample in samples.items()}
measured = {
    (what, name, side): values(known, cuts)
    for (what, name), known in asked.items()
    for side, cuts in samples[name].cuts.items()
}
estimates = {which: over_both(found) for which, found in measured.items()}

# %%
lowest = min(0, *(one.low for one in estimates.values()))
highest = max(one.high for one in estimates.values())
with plots.figure(1, len(asked), width=7.6, height=2.2, sharey=True) as (drawing, axes):
    for axis, (what, name) in zip(axes, asked, strict=True):
        shown = {f"clusters of {side}": estimates[what, name, side] for side in mixed.labels}
        charts.forest(axis, shown, "adjusted information", bound=0)
        axis.set_title(f"{what},\n{name}", fontsize=9)
        axis.set_xlim(lowest - 0.03, highest + 0.05)
plots.show(
    drawing,
    caption=f"How well {settings.clusters} clusters predict a pair's source and its query's form "
    "(adjusted mutual information: 0 is chance, 1 is perfect).",
    data=charts.interval_table(estimates, ["asked", "sample", "clusters of"], "information"),
    answers="Clustering App. B",
    lead=True,
)

# %% [markdown]
# ## The clusters and their names
#
# Three words that many texts of a cluster and few others contain name it. *Density* is the mean
# cosine of two members, as in the paper's Table 1. The last columns give the commonest source, the
# commonest first word of the queries, and the cluster of the other side that has most of its pairs,
# each with its share. The questions alone follow, if they are available.

# %%
from cde_studies.batches.naming import telling_terms
from cde_studies.batches.statistics import cluster_members, cluster_statistics

OTHER_SIDE = {"passages": "queries", "queries": "passages"}
for sample in samples.values():
    sample.terms = {
        side: telling_terms(texts, sample.labels[side]) for side, texts in sample.texts.items()
    }
    sample.names = {
        side: np.array([f"{one}: {', '.join(terms[:3])}" for one, terms in enumerate(found, 1)])
        for side, found in sample.terms.items()
    }


def commonest(values):
    """The commonest of some values, and its share."""
    shares = values.value_counts(normalize=True).drop(OTHER, errors="ignore")
    return f"{shares.index[0]} ({shares.iloc[0]:.0%})" if len(shares) else ""


def described(sample, side):
    """What each cluster of one side is like."""
    labels, other = sample.labels[side], OTHER_SIDE[side]
    known = {"source": sample.pairs.domains, "first word": sample.words}
    known[f"cluster of {other}"] = sample.names[other][sample.labels[other]]
    found = pd.DataFrame(known).groupby(labels).agg(commonest)
    table = cluster_statistics(sample.vectors[side], labels).set_axis(["pairs", "density"], axis=1)
    table["further words"] = [", ".join(terms[3:]) for terms in sample.terms[side]]
    return table.join(found).set_axis(pd.Index(sample.names[side], name=f"cluster of {side}"))


def show(tables):
    """Show tables of texts as they stand: in full, and with nothing read as a formula."""
    with pd.option_context("display.max_colwidth", None, "display.html.use_mathjax", False):
        for table in tables:
            display(plots.table(table))


show(described(sample, side) for sample in samples.values() for side in OTHER_SIDE)

# %% [markdown]
# ## Random members
#
# Members of each cluster, drawn at random, as in the paper's appendix. The texts belong to their
# authors: no stored record contains them, and only a build with the data shows them.


# %%
def shortened(text):
    """A text in one line of at most 90 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 90 else line[:89] + "…"


def listed(sample, side):
    """Random members of each cluster of one side."""
    drawn = np.random.default_rng(settings.seed)
    each = cluster_members(sample.labels[side])
    rows = np.concatenate([drawn.permutation(some)[: settings.members] for some in each])
    names = sample.names[side][sample.labels[side][rows]]
    sources = [sample.pairs.domains[row] for row in rows]
    index = pd.MultiIndex.from_arrays([names, sources], names=[f"cluster of {side}", "source"])
    return pd.DataFrame({side: [shortened(sample.texts[side][row]) for row in rows]}, index)


# %% tags=["hide-output"]
show(listed(sample, side) for side in ("queries", "passages") for sample in samples.values())

# %% [markdown]
# ## Verdict
#
# In the mixed sample, sources represent topics. Sources differ in form too, so the sites of Stack
# Exchange, which differ only in topic, are also measured separately. The form of a question is
# tested on both samples. The questions alone are the fairer test, because in the mixed sample a
# query's first word depends on its source. Words in common are measured with tf-idf vectors of
# fewer dimensions, which did not make the clusters and in which texts with related words are
# similar too; intervals are over the clusters of the first start.

# %%
TOPICS, FORM = "clustering-appb-topics", "clustering-appb-query-form"
for side, role in (("passages", "test"), ("queries", "exploratory")):
    what = f"clusters of {side}, sources of {len(mixed.pairs):,} pairs"
    claims.measure(TOPICS, estimates[SOURCE, MIXED, side], what, role)
sites = pd.Series(mixed.pairs.domains).str.startswith("stackexchange").to_numpy()
if sites.any():
    inside = [labels[sites] for labels in mixed.cuts["passages"]]
    found = over_both(values(np.array(mixed.pairs.domains)[sites], inside))
    what = f"clusters of passages, sites of Stack Exchange, {sites.sum()} pairs"
    claims.measure(TOPICS, found, what, "exploratory")
for name, sample in samples.items():
    more = over_both(measured[WORD, name, "queries"] - measured[WORD, name, "passages"])
    claims.measure(FORM, more, f"{name}, {len(sample.pairs):,} pairs")

# %%
from cde_studies.batches.statistics import mean_pairwise_cosine
from cde_studies.motivation.word_counts import sparse_vectors

SHARED_WORDS = "clustering-appb-shared-words"
for name, sample in samples.items():
    texts = sample.pairs.queries, sample.pairs.documents
    of = sparse_vectors(*texts, settings.sparse_dim, settings.seed)
    for side, vectors in zip(("queries", "passages"), of, strict=True):
        inside = cluster_statistics(vectors, sample.labels[side])["similarity"].dropna()
        more = run_interval(inside - mean_pairwise_cosine(vectors), "clusters")
        claims.measure(SHARED_WORDS, more, f"{name}, clusters of {side}")
claims.verdicts()

# %% tags=["hide-cell"]
topic, form = (
    " and ".join(f"{estimates[what, MIXED, side].estimate:.2f}" for side in ("passages", "queries"))
    for what in (SOURCE, WORD)
)
page.answer(
    f"""Mostly their source: clusters of passages and of queries tell it at {topic} (adjusted
    mutual information), the query's first word at {form}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper cuts half a million pairs of MS MARCO, embeds them with Arctic Embed M, and reads its
# lists by eye. Here samples are small and of other texts, and MiniLM embeds them. The questions
# alone are about few subjects, so that topics separate them easily. The first word is a coarse sign
# of a question's form: *how much* and *how to* count as the same.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("cluster_examples")
