# %% [markdown]
# # Do easy negatives train an encoder?
#
# This page answers **Clustering §4.2, Eqs. 1 to 4** {cite}`merrick2024embedding`. Why should a
# batch be made of similar texts? The paper's reason: at a low temperature the loss is close to the
# *largest* score in the batch minus the score of the query's own document. So negatives that score
# below the own document contribute next to nothing, and a batch without hard negatives teaches
# nothing.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Profile, Seed, Tokens

page.claims_under_test("easy_negatives")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0
pairs: Count | None = None
batch_size: Count | None = None
max_tokens: Tokens | None = None

# %%
settings = page.settings(
    globals(),
    laptop={"pairs": 8192, "batch_size": 256, "max_tokens": 64},
    smoke={"pairs": 600, "batch_size": 16, "max_tokens": 16},
    fresh={"pairs": 2048},
    gpu={"pairs": 131072, "batch_size": 4096, "max_tokens": 128},
    paper={"pairs": 1_048_576, "batch_size": 16_384, "max_tokens": 256},
)
settings

# %% [markdown]
# ## The weight of a negative
#
# For a query with scores $s_j$ (cosines divided by the temperature $\tau$), of which $s_+$ is that
# of its own document,
#
# $$L = -\log \frac{e^{s_+}}{\sum_j e^{s_j}}, \qquad
# \frac{\partial L}{\partial s_j} = \frac{e^{s_j}}{\sum_i e^{s_i}} = p_j$$
#
# for a negative $j$, and for the own document
#
# $$\frac{\partial L}{\partial s_+} = -(1 - p_+) = -\sum_{j \ne +} p_j .$$
#
# A negative trains the encoder with weight $p_j$, and the own document with the weight of all
# negatives together. At $\tau = 0.02$, a negative whose cosine is 0.1 below that of another has
# $e^{-5}$, less than a hundredth, of its weight. An encoder late in training is represented by
# MiniLM, which was trained on a billion pairs; the pairs are docstrings, in three kinds of batches.

# %%
import numpy as np
import pandas as pd

from cde.batching.clustering import cluster_pairs
from cde.batching.packing import pack_batches
from cde.data import load_pairs
from cde.surrogate import Surrogate
from cde_studies.clustering.negative_weights import printed_loss, stated_loss, weights_of_negatives

TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2)
SHUFFLED, SOURCE, CLUSTERS = "shuffled", "one source", "clusters"


def weigh(seed, pairs, batch_size, max_tokens):
    """Weights of negatives in each kind of batches."""
    some = load_pairs("pydocs").sample(pairs, seed)
    encoder = Surrogate(max_tokens=max_tokens)
    vectors = encoder.encode_queries(some.queries), encoder.encode_documents(some.documents)
    alike = cluster_pairs(*vectors, batch_size, some.domains, seed=seed)
    one = np.zeros_like(alike)
    kinds = {SHUFFLED: (one, None), SOURCE: (one, some.domains), CLUSTERS: (alike, some.domains)}
    found = []
    for kind, (labels, domains) in kinds.items():
        batches = pack_batches(labels, batch_size, domains=domains, seed=seed)
        found.append(weights_of_negatives(*vectors, batches, TEMPERATURES).assign(batches=kind))
    return pd.concat(found, ignore_index=True)


given = settings.only("pairs", "batch_size", "max_tokens")
rows = page.experiment("easy_negatives-weights", lambda: weigh(**given), given)

# %% [markdown]
# ## How much of the weight easy negatives have
#
# *Easy* negatives score below the query's own document. What all negatives weigh together,
# $1 - p_+$, is how much a batch teaches at all.

# %%
from cde.intervals import mean_interval


def by_temperature(column):
    """Kind of batches → temperature → the mean over batches, with its interval."""
    return {
        kind: {tau: mean_interval(of[column]) for tau, of in some.groupby("temperature")}
        for kind, some in rows.groupby("batches", sort=False)
    }


shares, weights = by_temperature("of_easy"), by_temperature("all")
taus = sorted(rows["temperature"].unique())
with plots.figure(1, 2, width=6.4, height=2.8) as (drawing, axes):
    for axis, shown in zip(axes, (shares, weights), strict=True):
        charts.curves(axis, shown)
        axis.set_xscale("log")
        axis.set_xticks(taus, [f"{tau:g}" for tau in taus])
        axis.minorticks_off()
        axis.set(xlabel="temperature", ylim=(0, 1))
    axes[0].set_ylabel("share on easy negatives")
    axes[1].set_ylabel("weight of all negatives")
    axes[0].legend()
plots.show(
    drawing,
    caption="The weight with which negatives train an encoder, by temperature. Left: how much of "
    "it is on negatives that score below the query's own document. Right: the weight of all "
    "negatives together. Intervals are over batches.",
    data=charts.interval_table(
        {"of easy": shares, "of all": weights}, ["weight", "batches", "temperature"], "share"
    ),
    answers="Clustering §4.2",
    lead=True,
)

# %%
easy = rows.groupby("batches", sort=False)["easy"].mean()
by_query = by_temperature("of_easy_by_query")[SHUFFLED][0.02].estimate
page.in_numbers(
    f"""Of all negatives, {easy[SHUFFLED]:.1%} score below the query's own document in shuffled
    batches, {easy[SOURCE]:.1%} in batches of one source and {easy[CLUSTERS]:.1%} in clusters. Where
    each query counts alike, whatever its negatives weigh, easy ones have {by_query:.0%} of the
    weight in shuffled batches at τ = 0.02, since many queries have no others."""
)

# %% [markdown]
# ## Equation 2 as it is printed
#
# The paper derives its reason from $L = \log(\sum_j e^{s_j} - s_+)$, which has the own document's
# score within the logarithm; Eq. 3 has it outside, $L = \log(\sum_j e^{s_j}) - s_+$, which is what
# follows from Eq. 1. Here is the difference on random unit vectors.

# %%
generator = np.random.default_rng(settings.seed)
apart = []
for _ in range(20):
    sides = generator.normal(size=(2, 64, 32))
    queries, documents = sides / np.linalg.norm(sides, axis=-1, keepdims=True)
    cosines = queries @ documents.T
    apart.append(np.abs(printed_loss(cosines) - stated_loss(cosines)).max())

# %% [markdown]
# ## Verdict
#
# The rules were fixed before any measurement: on shuffled batches at $\tau = 0.02$ easy negatives
# must have less than a tenth of the negatives' weight (our bound for "next to nothing"); and Eq. 2
# as printed must equal Eq. 1.

# %%
idle = shares[SHUFFLED][0.02]
claims.measure("clustering-s42-easy-negatives-idle", idle, "shuffled batches, MiniLM")
claims.measure("clustering-eq2-bracket", mean_interval(apart), "random unit vectors")
claims.verdicts()

# %% tags=["hide-cell"]
page.answer(
    f"""At temperature 0.02, {easy[SHUFFLED]:.0%} of negatives in shuffled batches are easy and have
    {idle.estimate:.0%} of all negatives' weight. Clusters raise that whole weight from
    {weights[SHUFFLED][0.02].estimate:.2f} to {weights[CLUSTERS][0.02].estimate:.2f}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# MiniLM's own loss had another temperature. Copies of a
# query's own document, and other right answers, count among its hard negatives here. Early in
# training the own document's lead is smaller, and more negatives are hard. What the weights do to
# an encoder's scores is for {doc}`stratified_batches` to show.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("easy_negatives")
