# %% [markdown]
# # What do long documents lose when they are cut, and do chunks bring it back?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# MiniLM reads at most 512 tokens of a text; what follows is dropped without a word. *Dwell in the
# Beginning* {cite}`coelho2024dwell` finds that encoders dwell on the beginning of what they do
# read, and says in **§5** that this may be why reading long inputs whole gains so little over
# scoring their passages. This page cuts long documents, scores them by their best chunk, and gives
# chunks what stands around them.

# %%
from cde_book import page, plots
from cde_book.parameters import Count, Profile, Seed, Tokens

page.claims_under_test("chunks")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0  # of the documents and queries that are drawn
manuals: Count | None = None  # of the test part
packages: list[str] | None = None  # whose long docstrings are searched
documents: Count | None = None  # of each collection
queries: Count | None = None  # of each, at most
cuts: list[Tokens] | None = None  # tokens of a document that are read; chunks have the fewest
long_run: bool = False  # search more collections, for half an hour, with $CDE_DATA

# %%
small = {"manuals": 3, "packages": ["networkx"], "documents": 12, "queries": 60}
long = {"manuals": 8, "packages": ["networkx", "sklearn", "numpy", "pandas"], "documents": 24}
long |= {"queries": 200, "cuts": [128, 256, 512], "articles": {"squad-dev": 64, "covidqa-docs": 24}}
wide = {"manuals": 20, "packages": long["packages"], "documents": 100, "queries": 500}
settings = page.settings(
    globals(),
    laptop={**small, "cuts": [128, 256, 512]},
    smoke={"manuals": 1, "packages": ["datasets"], "documents": 3, "queries": 8},
    fresh={"manuals": 2, "documents": 8},
    gpu=wide,
    paper=wide,
)
settings

# %% [markdown]
# ## The idea
#
# An encoder gives each token $t$ of a text a state $h_t$, and the text the mean of them. There are
# three ways to give a long document $d$ vectors:
#
# - *cut* it: the mean over its first tokens, and the rest is lost;
# - *chunks*: cut it everywhere, at ends of sentences, and embed each piece by itself. A document
#   scores as its best chunk does. But a piece no longer knows what it is about;
# - *late chunks* (arXiv 2409.04701): read the document whole, and then take the mean over the
#   tokens of each chunk $c$:
#
# $$\phi(c) = \frac{1}{|c|} \sum_{t \in c} h_t(c), \qquad
# \phi_{\text{late}}(c; d) = \frac{1}{|c|} \sum_{t \in c} h_t(d)$$
#
# In the second sentence below, "it" is Berlin. Alone, the sentence cannot tell.

# %%
import pandas as pd

from cde.models import BiEncoder, encode_chunks

encoder = BiEncoder.from_backbone("minilm", max_tokens=512)
text = "Berlin is the capital of Germany. It has more than three million inhabitants."
spans = [(0, 33), (34, len(text))]
[late] = encode_chunks(encoder, [text], [spans])
alone = encoder.encode_documents([text[start:end] for start, end in spans])
query = encoder.encode_queries(["population of Berlin"])[0]
plots.table(
    pd.DataFrame(
        {"cosine, chunk alone": alone @ query, "cosine, late chunk": late @ query},
        index=["first sentence", "second sentence"],
    ).round(2)
)

# %% [markdown]
# ## Long documents, and where in them the answer stands
#
# All documents have 512 tokens or more, and the place that answers a query is known:
#
# - *manuals*: neighbouring descriptions of one web service, joined to at most 2,048 tokens. The
#   query is the name of what one of them describes. Each manual is a corpus;
# - *docstrings* of at most 2,048 tokens. The query is a sentence taken out of a section; the rest
#   of the section is the answer. Each package is a corpus;
# - with $CDE_DATA, parts of at most 2,048 tokens of the articles of SQuAD, and whole articles of
#   COVID-QA, of some 7,000 tokens, with questions that people asked.
#
# Documents are few, because they are long; so scores are high, and only differences matter.
#
# ## Searching in all ways
#
# Chunks are those of `cde.Index`: whole sentences, at most 128 tokens, one of which may be said
# again by the next chunk. Late chunks are the same ones, in windows of 512 tokens; neighbouring
# windows share an eighth. *Read whole* is one vector, the mean over all tokens of these windows.
# There are two controls. *Chunks of the beginning* are those of the first 512 tokens alone, so that
# they read what the longest cut reads. *Late chunks elsewhere* are read among chunks of other
# documents: what late chunks gain over these is due to their own surroundings.
#
# Each way is also searched with the corpus' *own directions*, the cheapest context
# ({doc}`../motivation/training_free`): the mean of the vectors is taken off both sides, and
# directions in which they vary much are made shorter. `cde run chunks --record
# hours/chunks-collections -p long_run true`, with $CDE_DATA, makes the record.

# %%
from cde.data import is_available
from cde_studies.package import long_documents
from cde_studies.package.chunked_search import search_in_chunks

if long_run and not is_available(*long_documents.ARTICLES):
    raise ValueError(f"long_run needs $CDE_DATA with {', '.join(long_documents.ARTICLES)}")


def search(manuals, packages, documents, queries, cuts, articles=None):
    """NDCG@10 of each collection in every way, by the third in which the answer stands."""
    sizes = (documents, queries, settings.seed)
    asked = long_documents.joined_manuals(manuals, *sizes)
    asked += long_documents.long_docstrings(packages, *sizes)
    for name, count in (articles or {}).items():
        some = long_documents.articles(f"beir/{name}", count, queries, settings.seed)
        asked.append(some)
    return search_in_chunks(asked, cuts, settings.seed)


own = settings.only(*small, "cuts")
given = {name: value for name, value in own.items() if name != "seed"}
rows = page.experiment("chunks-collections", lambda: search(**given), own)
longer = page.experiment(
    "chunks-collections",
    lambda: search(**long),
    {"seed": settings.seed, **long},
    can_run=long_run,
    profile="hours",
)
scale = None if longer is None else "hours"
rows = rows if longer is None else longer
