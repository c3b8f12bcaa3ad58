# %% [markdown]
# # How is the contextual encoder built, and do its stated properties hold?
#
# This page answers **CDE Fig. 1, §4.2 and §10.4** {cite}`morris2024contextual`. It draws the model
# and measures each property that the paper states of it on `cde.ContextualEncoder`. Nothing is
# trained here. Beyond the paper, the
# page shows what its published code adds without saying so, and where the three published forward
# passes differ.

# %%
from cde_book import claims, page, plots, sketches
from cde_book.parameters import Count, Layers, Profile, Seed, Tokens

page.claims_under_test("architecture")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
corpora: list[str] | None = None  # of pydocs; texts come from the first, contexts from all
texts: Count | None = None  # embedded in each experiment
context_size: Count | None = None  # context documents
draws: Count | None = None  # of the order of the context
max_tokens: Tokens | None = None  # texts are cut there
layers: Layers | None = None  # of MiniLM's 6, in each stage

# %%
of_texts = {"corpora": ["networkx", "sqlalchemy"], "texts": 16, "max_tokens": 64}
of_model = {"context_size": 64, "draws": 5, "layers": 6}
small = {"corpora": ["rich", "networkx"], "texts": 12, "context_size": 8, "draws": 3}
large = {"texts": 1024, "draws": 100, "max_tokens": 512}
settings = page.settings(
    globals(),
    laptop=of_texts | of_model,
    smoke={**small, "max_tokens": 16, "layers": 2},
    fresh={"layers": 2},
    gpu=large,
    paper={**large, "context_size": 512},
)
if len(settings.corpora) < 2:
    raise ValueError("the page compares corpora: name two packages of pydocs or more")
settings

# %% [markdown]
# ## The model
#
# A first transformer, $M_1$, embeds $J$ documents of the corpus, once. A second one, $M_2$, takes
# their vectors as if they were tokens, placed before the tokens of a text (Eqs. 5 and 6). The mean
# over the *text's* tokens is the embedding:
#
# $$\phi(d'; D) = M_2(M_1(d^1), \dots, M_1(d^J), E(d'_1), \dots, E(d'_T))$$
#
# Queries go through the same two transformers. The paper lets every token attend to every other
# (`full`). We add a second pattern, `cached`, in which context tokens attend only to context
# tokens. Their keys and values are then the same for every text, so they are computed only once.

# %%
drawing, pairs_seen = sketches.contextual_model(context=4, text=6)

# %% tags=["hide-input"]
plots.show(
    drawing,
    alt=(
        "Left, a drawing: context documents go through the first stage, their vectors and the "
        "text's token embeddings through the second, and the mean over the text's tokens comes "
        "out. Right, two grids of which token attends to which: all "
        f"{pairs_seen['full'].sum()} pairs in the full pattern; in the cached one "
        f"{pairs_seen['cached'].sum()}, without those in which a context token attends to the text."
    ),
    caption="The two-stage model, and which tokens attend to which in its two patterns: a row has "
    "the squares of the tokens that its token sees. Orange: context; blue: text.",
    data=pairs_seen.rename_axis("pairs of tokens, J = 4 and T = 6").reset_index(),
    answers="CDE Fig. 1",
    lead=True,
)

# %% [markdown]
# ## Texts, corpora and encoders
#
# Both stages start from MiniLM. Properties are tested in float32.

# %%
import numpy as np
import pandas as pd
import torch

import cde
from cde.intervals import Interval, mean_interval
from cde.models import VARIANTS
from cde_studies.encoder import properties
from cde_studies.encoder.untrained import untrained_arms, untrained_published

corpus = {one: cde.load_pairs(f"pydocs/{one}", split="all").documents for one in settings.corpora}
home, J = settings.corpora[0], settings.context_size
all_texts, generator = corpus[home], np.random.default_rng(settings.seed)
counts = [min(count, len(all_texts)) for count in (settings.texts, J)]
drawn = [generator.choice(len(all_texts), count, replace=False) for count in counts]
sample, context_texts = ([all_texts[row] for row in rows] for rows in drawn)

# %%
shape = settings.only("layers", "max_tokens", "context_size")
bare, models = properties.minilm_encoders(**shape, precision="float32")
encoder = models["full"].with_context(corpus[home], seed=settings.seed)
print(f"context: {J} documents, drawn from {len(corpus[home]):,} of {home}")
parts = properties.parameter_counts(bare, models["full"]).rename_axis("part")
plots.table(parts.assign(parameters=parts["parameters"].map("{:,}".format)))

# %% [markdown]
# ## The order of the context
#
# Documents of a corpus have no order, so context tokens get no positions (§10.4). How this is done
# depends on the backbone. MiniLM adds learned positions to the embeddings; here it adds none to
# those of the context. NomicBERT and ModernBERT rotate queries and keys in every layer; here
# context tokens have position 0, where the rotation is the identity. The paper zeroes these tokens
# and adds them back afterwards: around the attention step according to its text, around the
# rotation alone according to its supplement, which amounts to what we do. ModernBERT's local layers
# see a window of neighbours; context tokens are outside every window and seen by all tokens.
# NomicBERT and ModernBERT run here as small models with random weights, because the property
# belongs to the architecture. As a control, the *text's* tokens are permuted as well, which has to
# make a difference.

# %%
text, context = (properties.token_ids(bare, some) for some in (sample, context_texts))
arms = {("MiniLM", pattern): model for pattern, model in models.items()}
arms |= untrained_arms(J, settings.seed)
order_changes = properties.order_changes(arms, text, context, settings.draws, generator)
changed = order_changes.groupby(["backbone", "attention"], sort=False).max()
plots.table(changed.map("{:.1e}".format).reset_index())

# %% [markdown]
# The small values left in the column of the permuted context are rounding, because sums are taken
# in another order.
#
# ## Without a corpus
#
# In training, each context token is replaced by a null token $v_\varnothing$ with probability
# 0.005. At test time, a model without a corpus can therefore put the null token in all places. Then
# no corpus can influence the embedding, whichever was drawn. This holds by construction, so we only
# check the code.

# %%
contexts = {name: properties.token_ids(bare, some[:J]) for name, some in corpus.items()}
null_changes = properties.null_changes(arms, text, contexts)
print(f"largest change of a coordinate: {null_changes['change'].max():.1e}")

# %% [markdown]
# As a control, a real context should change the embedding. The table has cosines between embeddings
# of the same texts, in the context of their own corpus and otherwise (means over texts, 95 %
# intervals):


# %%
def embedded(context):
    """The texts in the context of a corpus, or in none."""
    return models["full"].with_context(context, seed=settings.seed).encode_documents(sample)


own, without, plain = embedded(corpus[home]), embedded(None), bare.encode_documents(sample)
compared = {
    **{f"in the context of {name}": (own, embedded(corpus[name])) for name in settings.corpora[1:]},
    "in the null context": (own, without),
    "by the bi-encoder": (own, plain),
    "null context against the bi-encoder": (without, plain),
}
cosines = {name: mean_interval((a * b).sum(axis=1)) for name, (a, b) in compared.items()}
rows = pd.DataFrame({"cosine": {name: str(cosine) for name, cosine in cosines.items()}})
plots.table(rows.rename_axis(f"a text in the context of {home}, against the same text"))

# %% [markdown]
# ## One encoder for queries and documents, with embeddings of the same size
#
# Queries and documents go through the same two stages; only a prefix tells them apart (§10.7). So
# embedding a text as a query gives the same vector as writing the prefix before the text and
# embedding it as a document. The embedding has as many dimensions as that of its backbone alone.

# %%
models["full"].config.query_prefix = "query: "
as_query = encoder.encode_queries(sample)
as_document = encoder.encode_documents(["query: " + one for one in sample])
models["full"].config.query_prefix = ""
apart = np.abs(as_query - as_document).max()
size_ratio = as_document.shape[1] / plain.shape[1]
print(f"largest difference between a query and a document with the prefix: {apart}")
print(f"dimensions: {as_document.shape[1]}, of the bi-encoder {plain.shape[1]}; ratio {size_ratio}")

# %% [markdown]
# ## The parts that the paper does not mention
#
# The authors' code has three more parts. (Their trained weights are not available offline, so we
# cannot see here what training makes of these parts.) The first is two linear layers after the
# pooling of $M_1$. The second is eight *soft prompt* tokens between context and text, which a
# two-layer network makes from a constant. The third is two linear layers after the pooling of
# $M_2$, with a residual connection in the training code and without one in the self-contained file
# that was written for the Hub.
#
# The soft prompt is the same for every text. A network of several million parameters (at the
# published size of 768 dimensions) computes it, but its whole effect is 8 × 768 numbers. Once
# trained, a table of the eight vectors does the same.
#
# ## Three published forward passes
#
# The weights of cde-small-v1 can be run by two programs of the same authors, which disagree. One is
# the training code (`train`). The other is a self-contained file of the same repository, written
# for the Hub (`hub`; whether the Hub's copy is identical could not be checked offline).
# cde-small-v2 (`v2`) is ModernBERT under the training code. All three load here with
# `ContextualEncoder.from_pretrained(folder, variant=…)`. The tests compare them with the authors'
# outputs on small random weights: they are equal to 1e-5 with attention computed step by step
# (`eager`), and to 2e-5 with torch's fused kernel. The table that our code itself uses shows where
# they differ:

# %%
rows = {name: vars(variant) for name, variant in VARIANTS.items()}
plots.table(pd.DataFrame(rows).map(str).rename_axis(""))

# %% [markdown]
# The most consequential difference is `rotary`. In the `hub` file, queries and keys reach the
# rotary function with heads and tokens exchanged, so each is rotated by the index of its *attention
# head*. All text tokens of a head are rotated alike, which cancels out between them, so the model
# cannot tell one order of words from another. The same weights under the training code can. The
# table measures this with the same random weights in each pass:

# %%
changes, vectors = {}, {}
for name in ("hub", "train", "v2"):
    model = untrained_published(name, J, settings.seed)
    tokens = (properties.token_ids(bare, some, model) for some in (sample, context_texts))
    changes[name], vectors[name] = properties.pass_changes(model, *tokens)
cosine = torch.nn.functional.cosine_similarity(vectors["hub"], vectors["train"]).mean()
print(f"the same weights in `hub` and `train`: mean cosine {float(cosine):.2f}")
rows = pd.DataFrame(changes).T.map("{:.1e}".format).replace("nan", "refused")
plots.table(rows.rename_axis("largest change of a coordinate").reset_index())

# %% [markdown]
# `train` and `v2` count text positions from the start of the whole sequence, so a shorter context
# shifts the text. In `train`, positions below the number of context tokens that the model was made
# for count as 0, so a shorter context also removes the positions of the first text tokens. `hub`
# refuses a shorter context, and leaves out documents beyond its number. By default we fill a short
# context of a published model by repeating documents (its authors draw the whole context with
# replacement); our own encoders take any number. `v2` keeps ModernBERT's own positions, so the
# order of its context matters.
#
# ## What context costs
#
# The table gives the time of one batch of full-length texts through the second stage, in float32 on
# this machine, as a multiple of the time of the same backbone without context. For `cached`, it is
# the time after the context's keys and values have been computed, which happens once per corpus.
# {doc}`../../cost` has more sizes, and bfloat16.

# %%
context_vectors = torch.from_numpy(models["full"].embed_context(context_texts)).to(bare.device)
long_ids = torch.randint(1000, 20000, (len(sample), settings.max_tokens), device=bare.device)
times = properties.relative_times(bare, models, context_vectors, long_ids)
rows = pd.DataFrame({"time, relative: median": times.median().map("{:.2f}".format)})
least, greatest = (ends.map("{:.2f}".format) for ends in (times.min(), times.max()))
rows["least and greatest"] = least + " to " + greatest
read = f"{settings.max_tokens} text and {len(context_vectors)} context tokens"
plots.table(rows.rename_axis(read))

# %% [markdown]
# ## Verdict
#
# The first two claims are tested on each backbone and pattern. The number given is the largest
# change of any coordinate, averaged over draws of the order (first claim) or over corpora (second),
# with the interval of that mean.

# %%
ORDER, NO_CORPUS = "cde-s42-context-order", "cde-s42-null-context"
SIZE = "cde-s42-output-size"
tested = {ORDER: order_changes["context permuted"], NO_CORPUS: null_changes["change"]}
for claim, largest in tested.items():
    for arm, values in largest.groupby(["backbone", "attention"], sort=False):
        claims.measure(claim, mean_interval(values), ", ".join(arm))
exact = Interval(size_ratio, size_ratio, size_ratio, 1, "a fact of the shape")
claims.measure(SIZE, exact, "MiniLM")
claims.verdicts()

# %% tags=["hide-cell"]
took = times.median()
page.answer(
    f"""The order of context documents moves no coordinate of our embeddings by over
    {1e6 * changed["context permuted"].max():.1f} millionths; context takes {took["full"]:.1f} times
    a bi-encoder's time, cached {took["cached"]:.1f}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper's stages are NomicBERT with 12 layers (six in its small setting) and read 512 context
# documents and 512 tokens; ours start from MiniLM and are smaller. The properties tested here
# belong to the architecture and do not depend on size. The pattern `cached` is ours.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("architecture")
