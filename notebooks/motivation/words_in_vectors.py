# %% [markdown]
# # Do the vectors of a few documents tell which words are common in a corpus?
#
# This page answers **CDE §4.2** {cite}`morris2024contextual`. The paper's encoder reads vectors of
# some context documents, and is said to learn from them how common words are in the corpus. Two
# things must be true for that. A document's vector must still show which words the document
# contains, and vectors of a small sample must show which words are common in the whole corpus. The
# paper calls the first known and the second a belief. Neither needs a contextual encoder to be
# tested.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Profile, Seed, Tokens

page.claims_under_test("words_in_vectors")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
training: Count | None = None  # documents that the probe is fitted on
manuals: Count | None = None  # unseen ones, on which it is tested; by default all
documents: Count | None = None  # of each
max_tokens: Tokens | None = None

# %%
settings = page.settings(
    globals(),
    laptop={"training": 8000, "manuals": 60, "documents": 300, "max_tokens": 64},
    smoke={"training": 300, "manuals": 3, "documents": 40, "max_tokens": 16},
    fresh={"training": 2000, "manuals": 8},
    gpu={"training": 32000, "manuals": None, "documents": 1000, "max_tokens": 128},
    paper={"training": 32000, "manuals": None, "documents": 1000, "max_tokens": 512},
)
settings

# %% [markdown]
# ## The probe
#
# For each word $w$, a linear function of a document's vector $\phi(d)$ guesses whether $w$ stands
# in $d$: $p_w(d) = a_w \cdot \phi(d) + b_w$. It is fitted to descriptions from manuals of several
# hundred web services, whose words are known. Since it is linear, its mean over a sample of
# documents is what it reads from their mean vector,
#
# $$\frac{1}{n} \sum_{i=1}^{n} p_w(d_i) = a_w \cdot \bar\phi + b_w \approx
# \text{share of documents that contain } w .$$
#
# So the question is whether one vector, $\bar\phi$, tells the document frequencies of a corpus.
# The first stage is MiniLM as it is; the tested manuals are of services of other families, of which
# the probe saw nothing.

# %%
from cde.data import load_pairs
from cde.surrogate import Surrogate
from cde_studies.motivation.training_free import manuals_of
from cde_studies.motivation.word_probe import probe_words


def probe(seed, training, manuals, documents, max_tokens):
    """What the probe reads of each unseen manual."""
    texts = load_pairs("manuals").sample(training, seed).documents
    asked = manuals_of("test", (documents, 1), seed, manuals)
    unseen = [one.collection for one in asked]
    return probe_words(Surrogate(max_tokens=max_tokens), texts, unseen, seed=seed)


given = settings.only("training", "manuals", "documents", "max_tokens")
rows = page.experiment("words_in_vectors-probe", lambda: probe(**given), given)

# %% [markdown]
# ## How common words are
#
# Three guesses of how common each word is in an unseen manual, by rank correlation with the truth:
# what the probe reads from the vectors of a sample; counting the words of the same sample; and the
# frequencies in the training documents, which know nothing of the manual.

# %%
from cde.intervals import mean_interval

GUESSES = {
    "read from a sample's vectors": "read",
    "counted in the sample": "counted",
    "frequency in training": "training",
}
by_size = {
    name: {size: mean_interval(some[column]) for size, some in rows.groupby("sample")}
    for name, column in GUESSES.items()
}

# %%
with plots.figure(width=6.4, height=3) as (drawing, axis):
    charts.curves(axis, by_size)
    axis.set_xscale("log", base=2)
    sizes = sorted(rows["sample"].unique())
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.set(xlabel="documents in the sample", ylabel="rank correlation over words")
    axis.legend()
plots.show(
    drawing,
    caption="How well three guesses agree with how common words are in an unseen manual, by the "
    "size of the sample. Bands are 95 % intervals over manuals.",
    data=charts.interval_table(by_size, ["guess", "documents"], "rank correlation"),
    answers="CDE §4.2",
    lead=True,
)

# %% [markdown]
# ## Verdict
#
# The rules were fixed before any measurement. The probe must tell the documents that contain a word
# from those that do not with an area under the ROC curve above 0.75, and what it reads from a
# sample must agree better with an unseen manual's frequencies than the training frequencies do. The
# sample is the largest of the figure, as large as the context of most of our encoders.

# %%
largest = rows[rows["sample"] == rows["sample"].max()]
area = mean_interval(largest["area"].dropna())
more = mean_interval(largest["read"] - largest["training"])
claims.measure("cde-s42-lexical-information", area, "unseen manuals, MiniLM")
claims.measure("cde-s42-sample-tells-statistics", more, "unseen manuals, MiniLM")
claims.verdicts()

# %% tags=["hide-cell"]
means = largest[["read", "training", "counted"]].mean()
page.answer(
    f"""Better than training frequencies do: word frequencies read from
    {largest["sample"].iloc[0]} documents' vectors correlate {means["read"]:.2f} with an unseen
    corpus'; training frequencies {means["training"]:.2f}, counted ones {means["counted"]:.2f}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The statistics are in MiniLM's vectors, and a linear map finds them. If an encoder does not use
# them ({doc}`trained_for_longer <../results/trained_for_longer>`), its first stage may have lost
# them, or its training may not have rewarded them: {doc}`headroom` could not show that own
# statistics add a point on public text.
#
# Words are those of 1 to 20 % of the training documents; the text is technical English. MiniLM was
# trained on other text, and the first stage of a trained contextual encoder may tell more or less.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("words_in_vectors")
