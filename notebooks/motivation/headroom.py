# %% [markdown]
# # What is the most that in-corpus statistics could add?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **CDE §1, §4 and §4.2** {cite}`morris2024contextual`, the argument for the whole
# method: BM25 {cite}`robertson2009probabilistic` weighs words by the statistics of the corpus that
# it searches, an ordinary embedding keeps the weights that it learned, and an encoder that sees its
# corpus should win back the difference. The paper does not say how large that difference is. We
# measure it without any training, by searching a corpus with its own statistics, with those of
# other corpora, and with none.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Profile, Seed, Tokens

page.claims_under_test("headroom")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
packages: list[str] | None = None  # of pydocs; by default all
documents: Count | None = None  # of each package, and queries as many
max_tokens: Tokens | None = None  # texts are cut there, for MiniLM; 256 at most
long_run: bool = False  # search the collections, for some ten minutes
collections: list[str] | None = None  # of $CDE_DATA/beir
collection_documents: Count | None = None  # kept of each; relevant ones all stay
collection_queries: Count | None = None
collection_tokens: Tokens | None = None
manuals: Count | None = None  # of the test part, searched with long_run
manual_documents: Count | None = None  # of each, and a third as many queries

# %%
beir = ["cacm", "cisi", "climate-fever-evidence", "cosqa", "covidqa-docs", "cranfield", "csfcube"]
beir += ["dbpedia-entity-sub", "med", "msmarco-dl19-sub", "quora-sub", "scifact", "squad-dev"]
of_each = {"collection_documents": 5000, "collection_queries": 300, "collection_tokens": 128}
small = ["PIL", "mpmath", "rich", "sphinx", "accelerate", "tornado"]
settings = page.settings(
    globals(),
    laptop={
        "packages": None,
        "documents": 120,
        "max_tokens": 64,
        "collections": beir,
        **of_each,
        "manuals": 60,
        "manual_documents": 300,
    },
    smoke={"packages": small, "documents": 30, "max_tokens": 16},
    fresh={"documents": 60},
    gpu={"documents": 240, "max_tokens": 256},
    paper={"documents": 5000, "max_tokens": 256},
)
settings

# %% [markdown]
# ## Four ways to use statistics
#
# A corpus $T$ is searched with statistics of the documents of a corpus $S$. Nothing is learned, and
# nothing is tuned.
#
# | way | statistics of $S$ | none |
# |---|---|---|
# | BM25, IDF | how many documents contain each term; terms not in $S$ are rarest | equal weights |
# | MiniLM, centred | the mean document vector, subtracted from documents and queries | MiniLM |
# | MiniLM, whitened | the mean and the covariance: all directions get the same variance | MiniLM |
# | MiniLM, IDF pooling | how many documents contain each word piece, to weight tokens | MiniLM |
#
# MiniLM {cite}`wang2020minilm` is used as it was pretrained. The covariance of a few documents is
# noisy, so it is shrunk towards its mean variance by the rule of {cite:t}`ledoit2004well`. Each
# corpus is searched with its *own* statistics, with those of each *other* corpus, with those of
# *all others* as one large corpus, and with *none*. The third imitates a model that has seen much
# text but not this corpus, so its weights are global.

# %%
import cde
from cde.data.pydocs import PACKAGES
from cde_studies.motivation.headroom import GENERAL, NONE, OTHERS, WAYS, headroom


def search_packages():
    """NDCG@10 of packages, each searched with the statistics of each."""
    names = settings.packages or list(PACKAGES)
    pairs = {name: cde.load_pairs(f"pydocs/{name}") for name in names}
    some = [one.sample_per_domain(settings.documents, settings.seed) for one in pairs.values()]
    return headroom([cde.RetrievalSet.from_pairs(one) for one in some], settings.max_tokens)


key, record = settings.only("packages", "documents", "max_tokens"), "headroom-collections"
rows = page.experiment(
    "headroom-packages", search_packages, key, proves=(record, "headroom-manuals")
)

# %% [markdown]
# The packages are all written in the same kind of English, so their statistics are similar. Real
# collections, from search-engine questions to medical abstracts, differ much more. `cde run
# headroom --record hours/headroom-collections -p long_run true`, with $CDE_DATA, searches them;
# readers without that data see the recorded numbers. Large collections are cut down, but all their
# relevant documents are kept. COVID-QA exists twice, with whole articles and with their paragraphs.
# Only the first is used, because otherwise each would be an *other* corpus with the same text.

# %%
from cde.data import is_available, load_retrieval

names = [f"beir/{name}" for name in settings.collections]
if long_run and not is_available(*names):
    raise ValueError(f"long_run needs $CDE_DATA with {', '.join(names)}")


def search_collections():
    """The same of judged collections."""
    sizes = (settings.collection_documents, settings.collection_queries, settings.seed)
    return headroom(
        [load_retrieval(name).shrink(*sizes) for name in names], settings.collection_tokens
    )


key = settings.only("collections", *of_each)
real = page.experiment(record, search_collections, key, can_run=long_run, profile="hours")

# %% [markdown]
# The third kind of text was chosen because corpus statistics should matter for it: reference
# manuals of web services. Each manual is a corpus, and its queries are names ({doc}`training_free`
# describes them). `cde run headroom --record hours/headroom-manuals -p long_run true` searches
# those of the test part.

# %%
from cde.data import manuals as manuals_collection


def search_manuals():
    """The same of manuals."""
    names = manuals_collection.corpora("test")[: settings.manuals]
    size = settings.manual_documents
    sets = [
        load_retrieval(f"manuals/{one}").shrink(size, size // 3, settings.seed) for one in names
    ]
    return headroom(sets, settings.collection_tokens)


key = settings.only("manuals", "manual_documents", "collection_tokens")
of_manuals = page.experiment(
    "headroom-manuals", search_manuals, key, can_run=long_run, profile="hours"
)

# %%
from cde_studies.motivation.headroom_readings import Headroom

parts = {"packages": Headroom(rows)}
if of_manuals is not None:
    parts["manuals"] = Headroom(of_manuals)
if real is not None:
    parts["collections"] = Headroom(real)
OVER = {NONE: "own − none", GENERAL: "own − all others", OTHERS: "own − another"}

# %% [markdown]
# ## What a corpus' own statistics add
#
# Each point is a corpus. *Own − another* is the mean over all other corpora, one at a time. The
# interval of a mean treats the corpora as a sample of similar ones. For *another*, each corpus is
# left out in turn, both as the one that is searched and as a source of statistics. How much do a
# corpus' own statistics add, compared with none and with those of other corpora?

# %%
with plots.figure(1, 3, width=7.4, height=3.3, sharex=True, sharey=True) as (drawing, axes):
    for axis, (over, title) in zip(axes, OVER.items(), strict=True):
        dots = {way: {of: part.gains(way, over) for of, part in parts.items()} for way in WAYS}
        means = {way: {of: part.gain(way, over) for of, part in parts.items()} for way in WAYS}
        charts.seed_dots(axis, dots, "points of NDCG@10", legend=False, intervals=means)
        charts.reference(axis, x=0)
        axis.set_title(title)
    if len(parts) > 1:
        drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower right", ncols=2)

# %% tags=["hide-input"]
import pandas as pd

lead_name, lead = list(parts.items())[-1]
plots.show(
    drawing,
    caption="What a corpus gains from its own statistics, compared with none, with those of all "
    "other corpora pooled, and with those of one other corpus at a time. Bars: means over corpora "
    "with 95 % intervals. The table gives each corpus an interval over its queries.",
    data=pd.concat([part.of_corpora().assign(of=of) for of, part in parts.items()]),
    answers="CDE §1 and §4.2",
)

# %%
from cde_studies.significance import smallest_effect


def gain_line(of, part, way, over):
    """A line of the table: a mean over corpora, and the smallest detectable effect."""
    gain = part.gain(way, over)
    power = f"{smallest_effect(gain):.2g}"
    what = {"of": of, "way": way, "difference": OVER[over]}
    return {**what, "points [95 %]": str(gain), "n": gain.n, "seen with 80 % power": power}


lines = [
    gain_line(of, part, way, over) for of, part in parts.items() for way in WAYS for over in OVER
]
plots.table(pd.DataFrame(lines))

# %% [markdown]
# ## Does it matter how different the other corpus is?
#
# The IDF distance is the *expected* distance defined in the chapter on Fig. 8, from each corpus $S$
# to each corpus $T$. Pairs that share a corpus are not independent, so the interval of a
# correlation is a bootstrap over corpora: a pair counts as often as its two corpora are drawn.
# *Within* first subtracts the mean of each searched corpus, and so asks whether nearer corpora are
# better substitutes for one given corpus.

# %%
SCATTERED = (WAYS[0], WAYS[3])  # the two that use IDF
# manuals have thousands of pairs: they are only in the table
drawn = {of: part for of, part in parts.items() if of != "manuals"}
size = {"width": 7.4, "height": 0.6 + 2.6 * len(drawn)}
with plots.figure(len(drawn), 2, **size, squeeze=False, sharey="row") as (drawing, axes):
    for line, (of, part) in zip(axes, drawn.items(), strict=True):
        for axis, way in zip(line, SCATTERED, strict=True):
            pairs = part.pairs(way)
            dots = {"": (pairs["divergence"], pairs["loss"])}
            charts.points(axis, dots, markersize=2.5, alpha=0.6)
            charts.reference(axis, y=0)
            axis.set_title(f"{way}, {of}: r = {part.correlation(way)}", fontsize=8.5)
        line[0].set_ylabel("own − another, points")
    for axis in axes[-1]:
        axis.set_xlabel("IDF distance of the two corpora")

# %% tags=["hide-input"]
both = [part.pairs(way).assign(of=of, way=way) for of, part in drawn.items() for way in SCATTERED]
plots.show(
    drawing,
    caption="What a corpus loses when it is searched with the statistics of another, against "
    "the IDF distance between the two.",
    data=pd.concat(both, ignore_index=True),
    answers="CDE §4",
)

# %%
lines = [
    {"of": of, "way": way, "r": part.correlation(way), "r within": part.correlation(way, True)}
    for of, part in parts.items()
    for way in WAYS
]
plots.table(pd.DataFrame(lines))

# %% [markdown]
# ## What follows
#
# *Own − another* is what a system gains by knowing *this* corpus rather than some other corpus,
# with everything else equal. *Own − none* also contains what any mean or covariance, from whichever
# corpus, does to the vectors. An encoder that only reweighs words or directions by its corpus can
# gain *own − another*; if it already has good global weights, it can gain *own − all others*. Where
# these are small for dense vectors, a larger gain of a contextual encoder must have another source:
# what it learns about words in training on such batches, its additional parameters, or a use of the
# corpus that no reweighting can express. This page cannot exclude the last.
#
# ## Verdict
#
# Fixed before the first measurement: BM25 with its own IDF must be more than one point ahead of
# BM25 with another corpus' IDF; the correlation of distance and loss, over pairs, must be above
# zero for BM25; and MiniLM must gain more than half a point over none in each of its three ways.
# All else is exploratory.

# %%
WEIGHTS, LOSS = "cde-s1-own-term-weights", "cde-s4-loss-by-distance"
VECTORS = "ours-statistics-for-vectors"
for of, part in parts.items():
    scale = None if of == "packages" else "hours"
    among = f"{len(part.names)} {of}"
    for way in WAYS:
        lexical = way == WAYS[0]
        role = "test" if lexical else "exploratory"
        claims.measure(LOSS, part.correlation(way), f"{way}, pairs of {among}", role, scale)
        within = f"{way}, pairs of {among}, within each"
        claims.measure(LOSS, part.correlation(way, True), within, "exploratory", scale)
        claim, tested = (WEIGHTS, OTHERS) if lexical else (VECTORS, NONE)
        for over, title in OVER.items():
            # manuals were chosen because they need their corpus: they test no claim on all text
            role = "test" if over == tested and of != "manuals" else "exploratory"
            what = f"{way}, {among}, {title}"
            claims.measure(claim, part.gain(way, over), what, role, scale)
if "manuals" in parts:
    need = parts["manuals"].gain(WAYS[0], OTHERS)
    claims.measure(
        "ours-manuals-need-their-corpus", need, "manuals of the test part", "test", "hours"
    )
claims.verdicts()


# %% tags=["hide-cell"]
on_manuals = ""
if "manuals" in parts:
    on_manuals = (
        f", {parts['manuals'].gain(WAYS[0], OTHERS).estimate:.1f} on specially chosen manuals"
    )
most_of_minilm = max(lead.gain(way, GENERAL).high for way in WAYS[1:])
page.answer(
    f"""With another corpus' IDF, BM25 loses {claims.shown(lead.gain(WAYS[0], OTHERS))} NDCG@10
    points on {lead_name}{on_manuals}; own statistics add at most {most_of_minilm:.1f} to MiniLM."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper measures nothing of the kind; its Fig. 8 compares systems that differ in much besides
# their statistics. Our corpora are small: some hundred docstrings each at `laptop`, a few thousand
# documents at `hours`. That is enough for BM25 and for the corpus' mean but not for a covariance,
# and shrinkage cannot make up for it. The statistics of all other corpora are counted over many
# more documents than a corpus' own, so they can be better even though they come from other text.
# The three ways for MiniLM are simple ones; a trained encoder may find others. With *own*
# statistics, the searched documents themselves were counted, as in any BM25 index.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("headroom")
