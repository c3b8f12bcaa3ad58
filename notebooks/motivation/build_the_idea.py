# %% [markdown]
# # How can the same sentence have two vectors?
#
# An encoder turns a text into a vector, a row of numbers, so that texts of like meaning get like
# vectors. Usually the text alone decides which. This page builds, from two corpora of eight
# sentences, an encoder that first looks at the corpus it will search. It is the idea behind
# *Contextual Document Embeddings* {cite}`morris2024contextual` in its smallest form. Every step is
# a few lines of Python to copy and change. Nothing is trained, and no claim of the paper is judged.

# %%
import re

import numpy as np
import pandas as pd

import cde
from cde_book import charts, page, plots, sketches
from cde_book.parameters import Count, Profile, Seed
from cde_book.slider import Reading, context_slider

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
orders: Count | None = None  # in which the context documents are read, averaged in the figure

# %%
settings = page.settings(
    globals(), laptop={"orders": 50}, smoke={"orders": 10}, gpu={}, paper={"orders": 500}
)
settings

# %% [markdown]
# ## Two corpora and one question
#
# The first corpus is from a cookery site, the second from the manual of a database. *Serve* is said
# in all recipes but one, and *table* in all lines of the manual but one. We ask both corpora the
# same question. Its answer is the last sentence of each: what one does at the table of guests, and
# how the database is told to serve.

# %%
QUESTION = "How do I serve a table?"
COOKERY = [
    "Serve the soup hot, and serve the bread with it.",
    "Serve the salad cold, and serve the dressing apart.",
    "Serve the roast with potatoes, and serve the gravy hot.",
    "Serve the pancakes at once, or serve them cold with jam.",
    "Serve the curry with rice, and serve the chutney cold.",
    "Serve the pie warm, and serve the cream on the side.",
    "Serve the fish with lemon, and serve the wine cold.",
    "Clear the table between one course and the next.",
]

# %%
MANUAL = [
    "Create a table with one command, and name the columns of the table.",
    "Drop a table to delete it, and the rows of the table go too.",
    "Lock a table while you write, so that nobody reads the table.",
    "Rename a table at any time; views of the table follow.",
    "Copy a table to a file, and load the table again from it.",
    "Join a table with another table on a column.",
    "Index a table by a column, and the table is searched faster.",
    "Listen on a port to serve requests from other machines.",
]
CORPORA = {"cookery site": COOKERY, "database manual": MANUAL}
ANSWER = 7  # its place in both lists

# %% [markdown]
# ## Step 1: count words
#
# The simplest search engine gives each document a point for every word that it shares with the
# question. But a word that all documents contain tells none of them from another. The *inverse
# document frequency*, idf, weighs a word $w$ by how few of the $N$ documents contain it; $n_w$ do:
#
# $$\mathrm{idf}(w) = \log \frac{N}{n_w}$$


# %%
def words(text):
    return re.findall(r"[a-z]+", text.lower())


def idf(word, corpus):
    containing = sum(word in words(document) for document in corpus)
    return np.log(len(corpus) / containing) if containing else 0.0


weights = {name: {w: idf(w, some) for w in words(QUESTION)} for name, some in CORPORA.items()}
pd.DataFrame(weights).round(2)

# %% [markdown]
# The same word has two weights. In the cookery site *table* weighs a lot and *serve* nearly
# nothing; in the manual it is the other way round. (Nobody there says *how*, *do* or *I*; such
# words cannot help, so they get 0.) Now both corpora are searched without and with these weights.
# Rank 1 is the top of the list.


# %%
def overlap(corpus, weigh):
    """The score of each document: the summed weights of its words that the question has, too."""
    asked = set(words(QUESTION))
    return np.array([sum(weigh(w) for w in words(document) if w in asked) for document in corpus])


def rank_of_answer(scores):
    return 1 + int((scores > scores[ANSWER]).sum())


counted, weighed = {}, {}
for name, corpus in CORPORA.items():
    counted[name] = rank_of_answer(overlap(corpus, lambda word: 1))
    weighed[name] = rank_of_answer(overlap(corpus, lambda word, some=corpus: idf(word, some)))
pd.DataFrame({"rank by words shared": counted, "rank by words weighed": weighed})

# %% [markdown]
# Counted, the answer is last in both corpora: the other documents say their favourite word twice.
# Weighed, it is first in both. The weights came from nowhere but the corpus.
#
# ## Step 2: vectors
#
# MiniLM {cite}`wang2020minilm` is a small pretrained encoder. It knows what words mean, and it has
# weights for them, too; but it learned these in training and takes them along to every corpus.
# Documents are ranked by the *cosine* of their vector with the question's: 1 where two vectors have
# the same direction, 0 where they have nothing in common.

# %%
minilm = cde.Surrogate("minilm", precision="float32")

question = minilm.embed([QUESTION])[0]
vectors = {name: minilm.embed(corpus) for name, corpus in CORPORA.items()}
plain = {name: rank_of_answer(some @ question) for name, some in vectors.items()}
pd.Series(plain, name="rank by MiniLM").to_frame()

# %% [markdown]
# In the cookery site MiniLM finds the answer. In the manual it comes last: MiniLM takes *table* for
# the word that matters, and there every other document is about tables. One fixed vector of the
# question cannot suit both corpora. What do the documents of a corpus have in common?


# %%
def mean_cosine(some):
    """Of two documents of a corpus."""
    lengths = np.linalg.norm(some, axis=1)
    return ((some @ some.T) / np.outer(lengths, lengths))[np.triu_indices(len(some), 1)].mean()


pd.DataFrame(
    {
        "cosine of two documents": {name: mean_cosine(some) for name, some in vectors.items()},
        "after the mean is subtracted": {
            name: mean_cosine(some - some.mean(axis=0)) for name, some in vectors.items()
        },
    }
).round(2)

# %% [markdown]
# Sentences of one corpus are alike before we ask anything, because all are about serving food, or
# all about tables. Their mean vector is what they share. A question that leans towards it finds the
# most typical documents first: in the manual those about tables, and so not the answer. The mean is
# to vectors what a word of low idf is to counts. With it subtracted, two documents have less than
# nothing in common on average, since the differences from a mean add up to zero.
#
# ## Step 3: an encoder that reads its corpus
#
# So let the encoder read documents of the corpus first, and take what they share off every text
# that it embeds. (The question matters most: off the documents alone, it would lower all their
# products with the question alike.) Documents that are read for this are called *context
# documents*. The 1 in the sum below is a blank document that is always read along: without context
# nothing is taken off, and after one document not yet all of it.


# %%
class Reader:
    """MiniLM, bound to a corpus by reading context documents of it."""

    def __init__(self, context):
        vectors = minilm.embed(context)
        self.shared = vectors.sum(axis=0) / (1 + len(vectors))

    def encode(self, texts):
        moved = minilm.embed(texts) - self.shared
        return moved / np.linalg.norm(moved, axis=1, keepdims=True)


# %% [markdown]
# The same sentence, embedded by a reader of the cookery site and by one of the manual:

# %%
readers = {name: Reader(corpus) for name, corpus in CORPORA.items()}
texts = [QUESTION, COOKERY[ANSWER], MANUAL[ANSWER]]
two_vectors = [reader.encode(texts) for reader in readers.values()]
cosines = (two_vectors[0] * two_vectors[1]).sum(axis=1)
pd.Series(cosines, index=texts, name="cosine of its two vectors").round(2).to_frame()

# %% [markdown]
# Each sentence has two vectors now. Do they serve their corpora? As a control each corpus is also
# searched by the reader of the *other* one. If any documents would do, it should be as good.


# %%
def searched(reader, corpus):
    """The cosine of each document with the question, as a reader sees both."""
    return reader.encode(corpus) @ reader.encode([QUESTION])[0]


own, other = {}, {}
for (name, corpus), stranger in zip(CORPORA.items(), reversed(readers.values()), strict=True):
    own[name] = rank_of_answer(searched(readers[name], corpus))
    other[name] = rank_of_answer(searched(stranger, corpus))
pd.DataFrame({"MiniLM": plain, "reader": own, "reader of the other corpus": other})

# %% [markdown]
# ## Step 4: watch the sentence move
#
# How near is the question to its own two words? Before anything is read, the answer is the same for
# both corpora. With every recipe that is read *serve* fades from its vector; with every line of the
# manual *table* does. That is what idf did with counts.

# %%
HOW_MANY = (0, 1, 2, 4, 8)


def place(context):
    """The cosine of the question with "table" and with "serve", as a reader sees all."""
    asked, *named = Reader(context).encode([QUESTION, "table", "serve"])
    return [float(asked @ word) for word in named]


draw = np.random.default_rng(settings.seed)
shuffled = [draw.permutation(len(COOKERY)) for _ in range(settings.orders)]
paths = {}
for name, some in CORPORA.items():
    of_orders = [[place([some[i] for i in order[:n]]) for n in HOW_MANY] for order in shuffled]
    paths[name] = np.mean(of_orders, axis=0)

# %% tags=["hide-input"]
with plots.figure(width=5.6, height=3.6) as (drawing, axis):
    for number, path in enumerate(paths.values()):
        axis.plot(*path.T, color=plots.COLORS[number], marker="", linewidth=1.2)
    beside = dict.fromkeys(paths, HOW_MANY)
    charts.points(axis, {name: path.T for name, path in paths.items()}, names=beside)
    axis.set(xlabel='cosine with "table"', ylabel='cosine with "serve"')
    axis.margins(0.12)
    axis.legend(title="documents read of the", loc="lower left")
numbers = pd.concat(
    pd.DataFrame(path, columns=["table", "serve"]).assign(read=HOW_MANY, of=name)
    for name, path in paths.items()
)
start, ends = paths["cookery site"][0], [path[-1] for path in paths.values()]
plots.show(
    drawing,
    alt="Two paths from one point, where the question's cosine is "
    f"{start[0]:.2f} with table and {start[1]:.2f} with serve. After eight recipes "
    f"it is {ends[0][0]:.2f} and {ends[0][1]:.2f}: serve has faded. After eight of the manual "
    f"it is {ends[1][0]:.2f} and {ends[1][1]:.2f}: table has faded.",
    caption="One question, two paths: the cosines of its vector with two of its own words. Beside "
    "each point: how many documents of the corpus were read. Means over orders of reading.",
    data=numbers[["of", "read", "table", "serve"]],
    lead=True,
)

# %% [markdown]
# Here is one of these orders, one document at a time. Choose a corpus and drag: the list is the
# ranking, and the answer is marked.

# %% tags=["remove-input"]
read_first = shuffled[0]
readings = {
    name: [
        Reading(place(some), searched(Reader(some), corpus))
        for some in ([corpus[i] for i in read_first[:n]] for n in range(len(corpus) + 1))
    ]
    for name, corpus in CORPORA.items()
}
context_slider(
    QUESTION,
    CORPORA,
    readings,
    dict.fromkeys(CORPORA, read_first),
    dict.fromkeys(CORPORA, ANSWER),
    ('cosine with "table"', 'cosine with "serve"'),
)

# %% [markdown]
# ## What the paper's encoder does instead
#
# Our reader has one rule, subtract the mean, and we chose it. The paper's encoder has no rule: two
# neural networks learn from pairs of query and document what to do with the context. The *first
# stage* turns each context document into a vector, once for a corpus. The *second stage* reads
# these vectors beside the words of the text, as if they were words, too. In each of its layers
# every word takes up something of the others, and of the context: this is called *attention*. The
# network may learn to subtract, or to weigh words, or to leave the context alone.

# %% tags=["remove-input"]
with plots.figure(width=4.6, height=3.5) as (drawing, axis):
    sketches.two_stages(axis)
plots.show(
    drawing,
    alt="A drawing from below to the top: three context documents go through the first stage and "
    "become three vectors. These and the four words of a text go through the second stage, and the "
    "mean over the text's words is the text's vector.",
    caption="The paper's encoder. Orange: the context, read once for a corpus. Blue: the text.",
    data=pd.DataFrame(
        {"in the drawing": {"context documents": 3, "their vectors": 3, "words of the text": 4}}
    ),
    answers="CDE Fig. 1",
)

# %% [markdown]
# | | our reader | the paper's encoder |
# |---|---|---|
# | reads | vectors of context documents | vectors of context documents |
# | keeps of them | their mean | all of them |
# | uses them by | subtraction | attention, in each layer |
# | learned | nothing | both stages, from millions of pairs |
#
# The book tests each step from here to there:
#
# - {doc}`headroom`: how much do a corpus' own statistics help a search engine on real text?
# - {doc}`words_in_vectors`: do the vectors of a few documents tell which words are common?
# - {doc}`training_free`: the reader of this page, made better, on hundreds of real corpora.
# - {doc}`../encoder/architecture`: how the two stages are built.
# - {doc}`../encoder/context_required`: can an encoder learn to read its context at all?
# - {doc}`../results/does_reading_help`: and what does it gain?
#
# ## Exercises
#
# **1.** Let the reader read *both* corpora at once, sixteen sentences. Which rank has the answer in
# each? Guess first.

# %% tags=["hide-cell"] mystnb={"code_prompt_show": "Solution 1"}
# The mean of both holds half of what each shares, too little for the manual: context must be *of
# the corpus* that is searched.
both, ranks = Reader(COOKERY + MANUAL), {}
for name, corpus in CORPORA.items():
    ranks[name] = rank_of_answer(searched(both, corpus))
pd.Series(ranks, name="rank, both corpora read").to_frame()

# %% [markdown]
# **2.** Half of the documents can share something, too, which their mean holds only by half. Make
# directions in which the documents vary much shorter, by the matrix $W = C^{-1/4}$ of
# {py:func}`cde.adaptation.tempered`. Is the answer further ahead of the best other document then?

# %% tags=["hide-cell"] mystnb={"code_prompt_show": "Solution 2"}
# No. C says how every two of 384 coordinates vary together, and eight sentences tell little of
# that. On corpora of hundreds of documents it helps: see the chapter `training_free`.
from cde.adaptation import tempered, unit


def lead_of_answer(scores):
    """How far above the best other document the answer is, in spreads of all scores."""
    return (scores[ANSWER] - np.delete(scores, ANSWER).max()) / scores.std()


leads = {}
for name, corpus in CORPORA.items():
    shared, W = readers[name].shared, tempered(vectors[name])
    asked, *found = unit((np.vstack([question, vectors[name]]) - shared) @ W)
    leads[name] = {
        "reader": lead_of_answer(searched(readers[name], corpus)),
        "tempered": lead_of_answer(np.array(found) @ asked),
    }
pd.DataFrame(leads).T.round(2)

# %% [markdown]
# **3.** Write a sentence whose two vectors are as near each other as you can make them. What must
# be true of it?

# %% tags=["hide-cell"] mystnb={"code_prompt_show": "Solution 3"}
# Both readers subtract from every sentence, so none keeps its vector wholly. The less it has of
# what either corpus shares, the nearer its two vectors stay.
tried = ["Penguins sleep on the ice.", "Serve the soup.", "Drop the table."]
first, second = (reader.encode(tried) for reader in readers.values())
cosine = (first * second).sum(axis=1)
pd.Series(cosine, index=tried, name="cosine of its two vectors").round(2).to_frame()

# %% [markdown]
# ## What differs from the paper's setting
#
# The corpora are tiny and made for the purpose: every other sentence says the same word, so that a
# fixed weight must fail. In real corpora the shared part is smaller, and so is what can be gained;
# the chapters above measure it. Here the documents that are read are also those that are searched,
# and one that is read loses itself. Among eight that matters: until all are read, the ranking
# favours those that are not. Among thousands it does not. There is one question, so nothing here
# has an interval, and no verdict follows.
#
# ## Run it again

# %% tags=["hide-cell"]
apart = float(cosines[0])
page.answer(
    f"""An encoder that subtracts what documents share gives one question two vectors, after recipes
    and after a manual; their cosine is {apart:.2f}."""
)

# %% tags=["remove-input"]
page.provenance("build_the_idea")
