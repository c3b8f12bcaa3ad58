# %% [markdown]
# # What does reading a corpus give an encoder that is not trained?
#
# This page answers **CDE §1 and §4.2** {cite}`morris2024contextual` without training an encoder
# (one way, the *linear reader*, fits a matrix to other manuals): a finished one is adapted to a
# corpus by the mean and the directions of the corpus' own vectors. The text is manuals of web
# services, each a small corpus.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Positive, Profile, Seed, Tokens

page.claims_under_test("training_free")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
manuals: Count | None = None  # searched, of each part, of those with 200 pairs
documents: Count | None = None  # of each collection
queries: Count | None = None
fitted_on: Count | None = None  # pairs of each training manual that has 64
max_tokens: Tokens | None = None
ridge: Positive | None = None
draws: Count | None = None  # of context documents
long_run: bool = False  # search all such manuals, and other text, for 15 minutes, with $CDE_DATA

# %%
small = {"manuals": 20, "documents": 150, "queries": 50, "fitted_on": 8, "max_tokens": 64}
least = {"manuals": 3, "documents": 40, "queries": 20, "fitted_on": 2, "max_tokens": 16}
whole = {"manuals": None, "documents": 300, "queries": 100, "fitted_on": 32, "max_tokens": 128}
settings = page.settings(
    globals(),
    laptop={**small, "ridge": 0.03, "draws": 5},
    smoke={**least, "draws": 2},
    fresh={"manuals": 8, "fitted_on": 4},
    gpu=whole,
    paper={**whole, "documents": 1000},
)
settings

# %% [markdown]
# ## The idea
#
# Every document in the manual of a queue service is about queues, so their vectors share a
# direction. It tells no document from another, yet it takes part in every cosine; subtracting the
# mean $m_d$ leaves what differs. Queries share a direction too, but another one: they are short
# names. What *half* of the documents have in common, say messages, tells little as well, and makes
# a direction in which the vectors vary much. With the documents' covariance $C$, *whitening* by
# $C^{-1/2}$ gives all directions the same variance. *Tempered* goes half of the way there, by
# $C^{-1/4}$. ($C$ itself is shrunk half-way to equal variances.)
#
# $$\psi(q; D) = \frac{W(\psi(q) - m_q)}{\lVert W(\psi(q) - m_q)\rVert}, \qquad
# \phi(d; D) = \frac{W(\phi(d) - m_d)}{\lVert W(\phi(d) - m_d)\rVert}, \qquad
# W = C^{-1/4}$$
#
# When an index is built, the documents are there but the queries are not. Somebody may write down
# *sample queries*. Or the **linear reader** guesses $m_q$ from $m_d$ by a matrix that ridge
# regression has fitted to hundreds of other manuals whose queries are known. Like CDE's encoder it
# reads documents of a corpus that it has never seen. Its controls are those of CDE, too: documents
# of *another* corpus, or random letters; and one $W$ for all corpora.

# %% [markdown]
# ## The text
#
# `manuals` are the descriptions of operations, types and fields of web services, from two packages.
# The query is a name, its words apart; the document is the description. Manuals are split by
# *families*, so that no service is searched whose sister was trained on
# (`cde_studies.collections.manuals`). Duplicates within a manual are left out.

# %%
import pandas as pd

from cde_studies.collections import manuals as collection

table = collection.table()
kept = table[table["repeats"] == ""].groupby("part")
counts = {"manuals": ("corpus", "nunique"), "families": ("family", "nunique")}
plots.table(kept.agg(**counts, pairs=("corpus", "size")).reset_index())

# %% [markdown]
# ## Searching in every way
#
# Manuals with fewer than 200 pairs are not searched; each other one is cut to some hundred
# documents and queries. The mean document is that of all its documents; the linear reader reads 64
# of them, several draws of which are averaged; $C$ is that of 256. `cde run training_free --record
# hours/training_free-rows -p long_run true`, with $CDE_DATA, makes the record; it also searches the
# same manuals by first sentences, sources of public pairs and collections that people judged, whose
# queries are of other kinds: questions, titles, claims.

# %%
from cde.data import is_available
from cde.surrogate import Surrogate
from cde_studies.motivation import training_free

if long_run and not is_available("pairs/*", *training_free.JUDGED):
    raise ValueError("long_run needs $CDE_DATA with pairs/ and beir/")


def search(seed, manuals, documents, queries, fitted_on, max_tokens, ridge, draws, wide=False):
    """NDCG@10 of every collection with every shift; wide: also of other kinds of text."""
    sizes, encoder = (documents, queries), Surrogate(max_tokens=max_tokens)
    means = training_free.corpus_means(encoder, fitted_on, seed)
    asked = [
        one
        for part in ("validation", "test")
        for one in training_free.manuals_of(part, sizes, seed, manuals)
    ]
    of_kinds = {}
    if wide:
        asked += training_free.manuals_of("test", sizes, seed, kind="sentences")
        asked += training_free.sources_of_pairs(sizes, seed)
        asked += training_free.judged(sizes, seed)
        of_kinds = {
            kind: training_free.corpus_means(encoder, fitted_on, seed, kind, 240)
            for kind in ("sentences", "questions")
        }
    return training_free.search_all(
        asked, encoder, means, ridge, draws, seed=seed, of_kinds=of_kinds
    )


record, own = "training_free-rows", settings.only(*whole, "ridge", "draws")
rows = page.experiment(record, lambda: search(**own), own)
long = {"seed": settings.seed, **whole, "ridge": 0.03, "draws": 5}
longer = page.experiment(
    record, lambda: search(**long, wide=True), long, can_run=long_run, profile="hours"
)
scale = None if longer is None else "hours"
rows = rows if longer is None else longer

# %% [markdown]
# ## What each way gains
#
# Manuals of the test part. A gain is over MiniLM as it is, in points of NDCG@10; its interval is
# over manuals as a sample of manuals like them.

# %%
from cde.intervals import mean_interval

# in points, a line a collection and a column a way
scores = 100 * rows.pivot_table("ndcg", ["part", "collection"], ["way", "context"], sort=False)
searched = dict.fromkeys(scores.index.get_level_values("part"))
OF_A_VENDOR = ("linear reader, aws", "linear reader, google")
ELSEWHERE = ("test, sentences", "judged")  # other kinds of queries
PLAIN = ("MiniLM", "none")
READER = ("linear reader", "own")
GUESS, SAMPLES = "linear reader", "sample queries, 20"


def gain(part, way, over=PLAIN):
    """Points that a way has more than another on collections of a part, with its interval."""
    of_part = scores.loc[[part]]
    return mean_interval((of_part[way] - of_part[over]).dropna())


TEMPERED = "linear reader, tempered"
SHOWN = {
    "100 sample queries, tempered": ("sample queries, 100, tempered", "own"),
    "20 sample queries, tempered": (f"{SAMPLES}, tempered", "own"),
    "20 sample queries, tempered, of another": (f"{SAMPLES}, tempered", "other"),
    "20 sample queries": (SAMPLES, "own"),
    "linear reader, tempered": (TEMPERED, "own"),
    "linear reader, tempered, of another": (TEMPERED, "other"),
    "linear reader, tempered, one W for all": (TEMPERED, "pooled"),
    "documents' mean, tempered": ("documents' mean, tempered", "own"),
    "linear reader": READER,
    "linear reader, of another": (GUESS, "other"),
    "linear reader, of random letters": (GUESS, "strings"),
    "means of all training manuals": ("training corpora", "pooled"),
    "documents' mean": ("documents' mean", "own"),
    "BM25 in place of MiniLM": ("BM25", "none"),
}
gains = {name: gain("test", way) for name, way in SHOWN.items() if way in scores}

# %%
charts.show_forest(
    gains,
    ["way"],
    "NDCG@10 points over MiniLM, unseen manuals",
    "What a manual's own documents, and sample queries, give MiniLM without training. Tempered: "
    "directions in which they vary much are made shorter. Of another: the control, which reads "
    "another manual. Intervals are over manuals.",
    "CDE §4.2",
    lead=True,
)

# %% [markdown]
# ## How strong, and other ways
#
# Strength 0 takes means off alone, 1 whitens; the covariance of 256 documents in 384 dimensions is
# noisy, so it is shrunk. Both were chosen here, on the manuals of the validation part.

# %%
lines = [
    {"of": name, "value": value, "points": str(gain("validation", (f"{name} {value}", "own")))}
    for name, values in training_free.CHOICES.items()
    for value in values
]
plots.table(pd.DataFrame(lines))

# %% [markdown]
# Others project out the mean direction {cite}`ren2025correcting`, keep principal directions of
# queries {cite}`zuo2026efficiency`, or take a power of the variances, chosen by a rule
# {cite}`li2026spectral`, of which $W$ has a fixed one. They measure on public collections; here are
# unseen manuals, and collections that people judged.

# %%
OTHER_WAYS = {
    "mean document taken off both sides": ("documents' mean", "own"),
    "its direction projected out": ("documents' mean, projected", "own"),
    "192 principal directions of documents": ("PCA of documents, 192", "own"),
    "64 principal directions of sample queries": ("PCA of sample queries, 64", "own"),
    "mean document off, whitened": ("documents' mean, whitened", "own"),
    "mean document off, tempered": ("documents' mean, tempered", "own"),
}
lines = [
    {"way": name} | {part: str(gain(part, way)) for part in ("test", "judged") if part in searched}
    for name, way in OTHER_WAYS.items()
    if way in scores
]
plots.table(pd.DataFrame(lines))

# %% [markdown]
# ## What the reader needs
#
# The same reader, fitted on fewer manuals or on other queries: first sentences of training manuals,
# or questions and titles of public pairs.

# %%
fitted = {
    way.partition(", ")[2] or "names, all training manuals": way
    for way, context in scores.columns
    if way.startswith(GUESS) and context == "other" and way not in (TEMPERED, *OF_A_VENDOR)
}
lines = [
    {
        "fitted on": name,
        "own − MiniLM": str(gain("test", (way, "own"))),
        "own − another": str(gain("test", (way, "own"), (way, "other"))),
    }
    | {part: str(gain(part, (way, "own"))) for part in ELSEWHERE if part in searched}
    for name, way in fitted.items()
]
plots.table(pd.DataFrame(lines))

# %% [markdown]
# ## What the gain goes with
#
# Over the manuals of validation and test: Spearman's correlation of a gain over MiniLM with what
# can be seen beforehand, its interval a bootstrap over manuals.

# %%
from cde_studies.intervals import correlation_interval

features = {
    "near": "nearness to the training manuals",
    "documents": "number of documents",
    "mean": "length of the mean document",
    "largest": "share of variance in the largest direction",
}
about = rows.groupby(["part", "collection"])[list(features)].first()
unseen = [key for key in scores.index if key[0] in ("validation", "test")]
gained = scores.loc[unseen, (TEMPERED, "own")] - scores.loc[unseen, PLAIN]
found = {
    what: str(correlation_interval(about.loc[unseen, column], gained, "spearman"))
    for column, what in features.items()
}
plots.table(pd.DataFrame({f"the tempered reader's gain, n = {len(unseen)}": found}))

# %% [markdown]
# ## Where it helps, and whether one can tell beforehand
#
# A reader that was fitted on manuals has the easy case when it reads another manual. On text and
# queries of other kinds its guess may be wrong. A rule may see that from the documents alone: how
# near is the corpus' mean document to those of the training manuals (the mean cosine with the ten
# nearest, after the mean over all manuals is subtracted from both)? The reader is used only above a
# threshold, the one with the highest mean gain over the validation manuals and the sources of
# public pairs. It is then tested on the test manuals and the judged collections, which played no
# part in choosing it.

# %%
own_gain = scores[READER] - scores[PLAIN]
own_tempered = scores[TEMPERED, "own"] - scores[PLAIN]
least_near = training_free.least_near(rows)
used = about["near"] >= least_near
of_part = {
    part: {
        "collections": len(some),
        "used on": int(used[some.index].sum()),
        "always": str(mean_interval(some)),
        "by the rule": str(mean_interval(some.where(used[some.index], 0))),
        "worst by the rule": f"{some.where(used[some.index], 0).min():.1f}",
        "tempered, always": str(mean_interval(own_tempered[some.index])),
        "tempered, by the rule": str(mean_interval(own_tempered.where(used, 0)[some.index])),
    }
    for part, some in own_gain.groupby(level="part", sort=False)
    if len(some) > 1
}
plots.table(pd.DataFrame(of_part).T.rename_axis(f"nearness {least_near:.2f} or more"))

# %% [markdown]
# ## In your own code
#
# `cde.adapted` takes sample queries where there are some, else the linear reader, which comes with
# the package; where the rule above would not use it, the encoder is left as it is, with a warning.

# %%
import cde

corpus = cde.load_retrieval("manuals/aws/sqs").documents
cde.adapted(cde.Surrogate(), corpus, queries=["send message", "create queue", "tag queue"])

# %% [markdown]
# ## Verdict
#
# Fixed before a manual of the test part was searched: 20 sample queries must gain more than 2
# points over MiniLM; the linear reader more than 1, and more than 0.5 over itself in another
# manual's context. Before a manual of the test part was searched with $W$: it must add more than 1
# to the linear reader; both together must gain more than 2 over themselves in another manual's
# context, and more than 1 over one $W$ for all, of the training manuals' documents; and the mean
# document off both sides with $W$, where nothing is fitted, more than 1 over MiniLM. All else is
# exploratory.

# %%
tests = {
    "ours-sample-queries-adapt": ((SAMPLES, "own"), PLAIN),
    "ours-linear-reader-gains": (READER, PLAIN),
    "ours-linear-reader-reads-corpus": (READER, (GUESS, "other")),
    "ours-tempered-directions": ((TEMPERED, "own"), READER),
    "ours-tempered-reads-corpus": ((TEMPERED, "own"), (TEMPERED, "other")),
    "ours-tempered-own-directions": ((TEMPERED, "own"), (TEMPERED, "pooled")),
    "ours-tempered-without-reader": (("documents' mean, tempered", "own"), PLAIN),
}
for claim, (way, over) in tests.items():
    if {way, over} <= {*scores}:
        claims.measure(claim, gain("test", way, over), "unseen manuals", "test", scale)
        for part in [one for one in of_part if one not in ("test", "validation")]:
            if (scores.loc[part, way] - scores.loc[part, over]).count() > 1:
                claims.measure(claim, gain(part, way, over), part, "exploratory", scale)
claims.verdicts()

# %% tags=["hide-input"]
read = gain("test", (TEMPERED, "own"))
unfitted = gain("test", *tests["ours-tempered-without-reader"])
over_other = gain("test", (TEMPERED, "own"), (TEMPERED, "other"))
minilm, bm25 = (scores.loc["test"][way].mean() for way in (PLAIN, ("BM25", "none")))
page.in_numbers(
    f"""With the map and shortened directions, the own manual's documents score {over_other} points
    above another's. On {read.n} unseen manuals MiniLM scores {minilm:.1f} points of NDCG@10 and
    BM25 {bm25:.1f}."""
)

# %% tags=["hide-cell"]
elsewhere = ""
if "judged" in searched:
    judged = gain("judged", (TEMPERED, "own"))
    chance = ", perhaps by chance" if judged.low < 0 < judged.high else ""
    does = "loses" if judged.estimate < 0 else "gains"
    elsewhere = f"; on judged collections it {does} {abs(judged.estimate):.1f}{chance}"
page.answer(
    f"""MiniLM gains {claims.shown(unfitted)} NDCG@10 points by reading an unseen manual's
    documents, {read.estimate:.1f} with a map fitted to other manuals{elsewhere}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper trains an encoder that reads its context by attention, and tests it on BEIR. Here one
# matrix is fitted, or nothing, and the text is chosen because a corpus' own statistics matter in it
# ({doc}`headroom`). A query has one judged document, its own, and is a name that a program gave.
# MiniLM was never trained on manuals; an encoder that was may gain less.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("training_free")
