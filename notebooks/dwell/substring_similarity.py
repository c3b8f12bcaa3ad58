# %% [markdown]
# # Is a document's embedding nearer to its beginning?
#
# This page answers **Dwell Figs. 3 and 5, §4.3 and §4.4** {cite}`coelho2024dwell`. A document is
# cut into ten segments of equally many tokens, and each segment's embedding is compared with the
# whole document's. An embedding that represents all parts of its text equally is as near to the
# last segment as to the first. The paper finds a decline from first to last after contrastive
# pre-training, with either pooling that it tries, and none before it.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Positive, Profile, Seed

page.claims_under_test("substring_similarity")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0  # the first seed
seeds: Count | None = None  # trainings of each chain
data: str | None = None  # pairs to train on
documents: Count | None = None  # for training
queries: Count | None = None  # documents that are probed
share_of_steps: Positive | None = None  # of the recipe's, in each stage
parts: Count | None = None  # segments of a document

# %%
from cde_studies.dwell import recipe as dwell

settings = page.settings(
    globals(),
    dwell.PARAMETERS,
    laptop={"seeds": 3, "parts": 10},
    smoke={"seeds": 2},
    fresh={"seeds": 1, "queries": 20, "share_of_steps": 0.03},
    gpu={},
    paper={},
)
settings

# %% [markdown]
# ## The models
#
# The paper studies a T5 with rotary positions that goes through three stages of training. Ours is
# the same at a smaller size: `cde_studies.dwell.encoder_decoder`, trained by
# `cde_studies.dwell.recipe` on docstrings. It is probed as a *language model*, after contrastive
# pre-training on crops (*after crops*; with average pooling *after crops, mean*), and after a first
# episode of fine-tuning. They are compared with MiniLM, a sentence encoder with learned positions
# that others trained on a billion pairs.
#
# *Decoder pooling* means that the decoder makes one step, and its output is the embedding. A
# language model has learned to begin every answer with the same special token at that step,
# whatever the text. So its embeddings may all lie close together, with no room for a decline. That
# is why it is also probed with the mean of its encoder's outputs (*language model, mean*). Each
# decline is also given as a share of the *room*: the cosine of segments with their own document
# minus that with another document.
#
# Documents are docstrings of packages that were not used in any stage, short enough for every model
# to take whole. Segments begin and end at whole words, so that each has exactly the tokens that it
# has in the document.

# %%
from cde_studies.dwell.readers import reader

recipe = dwell.dwell_recipe_of(settings)
LANGUAGE, CROPS, MEAN, TUNED = "language model", "crops", "mean", "tuned"
LANGUAGE_MEAN, MINILM = "language model, mean", "MiniLM"
TRAINED = (LANGUAGE, LANGUAGE_MEAN, CROPS, MEAN, TUNED)
MODELS = (MINILM, *TRAINED)
LABELS = dict(zip(MODELS, MODELS, strict=True))
LABELS |= {CROPS: "after crops", MEAN: "after crops, mean", TUNED: "fine-tuned"}


def loaded(model, number):
    """A model with its tokenizer, and how far it reads."""
    at = reader(LANGUAGE if model == LANGUAGE_MEAN else model, recipe, number)
    if model == LANGUAGE_MEAN:
        at.encoder.config.pooling = "mean"
    return at


# %% [markdown]
# A docstring begins with prose and may end with code, and a segment of prose can be nearer to the
# whole just because it is prose. So each model is also probed on the same documents with their ten
# segments in random order. There no kind of text has a fixed place, so a large decline must come
# from the model. There is only one random order, the same for all models. By chance the first
# segments in it differ a little from the last ones, and the intervals do not include this.

# %%
import pandas as pd

from cde_studies.dwell.chain import shuffle_segments
from cde_studies.dwell.substrings import substring_similarity
from cde_studies.dwell.tables import rows_by_segment

WRITTEN, SHUFFLED = "as written", "shuffled"


def probe(model, number):
    """Cosines of a model by segment, and the decline, on documents as written and shuffled."""
    at, texts = loaded(model, number), recipe.probed
    orders = {WRITTEN: texts, SHUFFLED: shuffle_segments(texts, at.tokenizer, settings.parts)}
    rows = []
    for order, some in orders.items():
        similar = substring_similarity(
            at.encoder, some, at.tokenizer, settings.parts, longest=at.longest
        )
        head = {"model": model, "seed": number, "order": order}
        rows += [head | row for row in rows_by_segment(similar)]
    return rows


# %%
from cde.progress import progress


def probe_all():
    """Every model with every seed; MiniLM has none."""
    jobs = [(chain, number) for chain in TRAINED for number in settings.every_seed]
    jobs = progress([(MINILM, settings.seed), *jobs], "probing", unit="models")
    return pd.DataFrame([row for model, number in jobs for row in probe(model, number)])


key = settings.only("seeds", "parts")
results = page.experiment("substring_similarity-cosines", probe_all, key, recipe)

# %% [markdown]
# ## Similarity by segment
#
# How near is each segment to its document? The lines are means over documents and seeds. Look at
# the slope. How steep it can be depends on the room in the model's embedding space.

# %%
from cde.intervals import Interval

shown_columns = ["cosine", "q25", "q75"]
by_segment = results.groupby(["order", "model", "segment"])[shown_columns].mean()


def middle_half(order, model):
    """The mean cosine of each segment, between the quarters of the documents."""
    rows = by_segment.loc[(order, model)].itertuples()
    return {row.Index: Interval(row.cosine, row.q25, row.q75, 0, "quarters") for row in rows}


with plots.figure(1, 2, width=7.6, height=3.8, sharey=True) as (drawing, axes):
    for axis, order in zip(axes, (WRITTEN, SHUFFLED), strict=True):
        charts.curves(axis, {LABELS[model]: middle_half(order, model) for model in MODELS})
        axis.set(title=order, xlabel=f"segment of the document, of {settings.parts}")
    axes[0].set_ylabel("cosine with the whole document")
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
plots.show(
    drawing,
    caption="Similarity of a document with each of its segments; bands cover the middle half of "
    "the documents.",
    data=results[["order", "model", "seed", "segment", "cosine", "q5", "q25", "q50", "q75", "q95"]],
    answers="Dwell Figs. 3 and 5",
)

# %% [markdown]
# ## The decline
#
# The decline is the cosine with the first segment minus that with the last, averaged over
# documents. With several seeds the interval is Student's. For a single model it is a bootstrap over
# documents, which says nothing about other training runs. *Middle* is the mean of segments 4 to 7:
# a bias towards the *start* also appears as a difference from the middle, which distinguishes it
# from a mere difference between the two ends.


# %%
def rows_of(model, order=WRITTEN):
    """What was found on a model, a row for each seed and segment."""
    return results[(results["model"] == model) & (results["order"] == order)]


def cosines(model, order=WRITTEN):
    """Mean cosine: a row for each seed, a column for each segment."""
    return rows_of(model, order).pivot_table(index="seed", columns="segment", values="cosine")


def decline(model, order=WRITTEN):
    """First segment minus last, of each seed."""
    return cosines(model, order)[1] - cosines(model, order)[settings.parts]


def against_middle(model):
    """First segment minus the mean of the middle ones, of each seed."""
    every = range(1, settings.parts + 1)
    middle = [part for part in every if 0.3 < part / settings.parts <= 0.7]
    return cosines(model)[1] - cosines(model)[middle].mean(axis=1)


# %%
def share_of_room(model, order=WRITTEN):
    """The decline of each seed, over how much nearer segments are to their own document."""
    return decline(model, order) / rows_of(model, order).groupby("seed")["room"].first()


def shown(model, order=WRITTEN):
    """The decline over seeds; of a single model with its bootstrap over documents."""
    if len(decline(model)) > 1:
        return page.mean_and_interval(decline(model, order), 3)
    row = rows_of(model, order).iloc[0]
    return f"{row['decline']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


# %%
def line(model):
    """A line of the table: a model, and its decline in several measures."""
    return {
        "first minus last": shown(model),
        "first minus middle": page.mean_and_interval(against_middle(model), 3),
        "share of the room": page.mean_and_interval(share_of_room(model), 2),
        "first minus last, shuffled": shown(model, SHUFFLED),
        "models": len(decline(model)),
        "documents": int(rows_of(model)["documents"].iloc[0]),
        "left out": int(rows_of(model)["left_out"].iloc[0]),
    }


table = pd.DataFrame({LABELS[model]: line(model) for model in MODELS})
plots.table(table.T.rename_axis("model"))

# %% [markdown]
# Which embeddings are nearer to a document's beginning, and is the text or the encoder the cause?

# %%
from cde_studies.intervals import interval_of, mean_of_runs


def decline_interval(model, order):
    """The decline with its interval: over seeds, or of a single model over documents."""
    if model == MINILM:
        return interval_of(rows_of(model, order).iloc[0], "decline")
    return mean_of_runs(decline(model, order))


TITLES = {WRITTEN: "documents as written", SHUFFLED: "segments in random order"}
declines = {
    (order, model): decline_interval(model, order)
    for order in (WRITTEN, SHUFFLED)
    for model in MODELS
}

# %%
with plots.figure(1, 2, width=7.6, height=2.8, sharex=True, sharey=True) as (drawing, axes):
    for axis, order in zip(axes, (WRITTEN, SHUFFLED), strict=True):
        of_order = {LABELS[model]: declines[order, model] for model in MODELS}
        charts.forest(axis, of_order, "cosine, first segment minus last", bound=0)
        axis.set_title(TITLES[order])
plots.show(
    drawing,
    caption="How much nearer an embedding is to the first segment than to the last; intervals over "
    f"seeds ({settings.seeds}), for MiniLM over documents. The paper draws a decline without "
    "numbers.",
    data=charts.interval_table(declines, ["order", "model"], "decline"),
    answers="Dwell Figs. 3 and 5",
    lead=True,
)

# %% [markdown]
# ## Verdict
#
# On documents as written, the last segment can be the nearer one before any contrastive training,
# so this difference alone says nothing about the model. The claims about contrastive pre-training
# and fine-tuning are therefore tested on shuffled segments, as differences from the encoder before
# that stage, with the same seed and the same orders. {doc}`training_stages` has the chains for
# this: pretrained layers with new positions that score at least half as high as BM25. For these
# claims the encoder–decoder, documents as written and MiniLM are exploratory. Average pooling is
# tested with the encoder–decoder. Finding no decline before contrastive training means little if
# the room is small, so this claim is about the share of the room. For it, the pretrained layers are
# exploratory, because they had already been trained as an embedder.

# %%
from cde_book import gates
from cde_book.records import records_at_other_profiles, rows_of_record
from cde_studies.dwell.pretrained_stages import share_of_bm25
from cde_studies.dwell.tables import (
    decline_by_order,
    has_planned_seeds,
    lack_of_decline,
    of_planned_seeds,
)

FALLS, AVERAGE = "dwell-fig3-similarity-falls", "dwell-fig3-average-pooling"
BEFORE, PERSISTS = "dwell-fig5-no-bias-before", "dwell-s5-bias-persists"
role = "test" if settings.parts == 10 else "exploratory"  # the claims name tenths
START, STAGES = "masked", {FALLS: "masked, crops", PERSISTS: "masked, crops, tuned"}
added, readings = {}, []  # what the stages add, by claim
records = {profile: rows_of_record("training_stages-orders", profile)}
records |= records_at_other_profiles("training_stages-long", profile)
for scale, record in records.items():
    if record is None:
        continue
    rows = of_planned_seeds(record.rows) if scale != profile else record.rows
    lean, orders = decline_by_order(rows), rows["order"].nunique()
    whole = scale == profile or has_planned_seeds(rows)
    before = claims.gate(
        "no-decline-before", lack_of_decline(rows, START), f"{START}, shuffled, {scale}", scale
    )
    readings.append(before)
    for claim, chain in STAGES.items():
        share, _ = share_of_bm25(rows, [chain])
        found = claims.gate("above-floor", share, f"{chain}, MRR@100, {scale}", scale)
        readings.append(found)
        what = f"{chain} minus {START}; pretrained layers, segments in {orders} orders"
        counts = role if whole else "exploratory"
        of_claim = claims.measure_runs(claim, lean[chain] - lean[START], what, counts, scale)
        if claim not in added or (whole and found.passed and before.passed):
            added[claim] = of_claim
if record := rows_of_record("training_stages-pretrained", settings.profile):
    stages = record.rows.set_index("chain")
    for claim, chain in STAGES.items():
        own = stages.loc[chain, "decline"]
        claims.measure_runs(claim, own, f"{chain}; pretrained layers, as written", "exploratory")
    own = stages.loc[START, "decline"] / stages.loc[START, "room"]
    claims.measure_runs(BEFORE, own, f"{START}; pretrained layers", "exploratory")
    own = stages.loc["masked, crops", "decline"]  # a mean over tokens, as all of these chains
    claims.measure_runs(AVERAGE, own, "masked, crops; pretrained layers", "exploratory")
gates.show(readings) if readings else None

# %%
first = rows_of(MINILM).iloc[0]
what = f"{settings.parts} segments, {first['documents']:.0f} docstrings of held-out packages"
for claim, chain in ((FALLS, CROPS), (AVERAGE, MEAN), (PERSISTS, TUNED)):
    counts = role if claim == AVERAGE else "exploratory"
    claims.measure_runs(claim, decline(chain), f"{chain}; {what}", counts)
    own = decline(chain, SHUFFLED)
    claims.measure_runs(claim, own, f"{chain}; {what}, shuffled", "exploratory")

# %%
claims.measure_runs(BEFORE, share_of_room(LANGUAGE), f"{LANGUAGE}; {what}", role)
for chain, order in ((LANGUAGE, SHUFFLED), (LANGUAGE_MEAN, WRITTEN)):
    own = share_of_room(chain, order)
    claims.measure_runs(BEFORE, own, f"{chain}; {what}, {order}", "exploratory")

# %%
claims.measure(FALLS, declines[WRITTEN, MINILM], f"MiniLM; {what}", "exploratory")
claims.verdicts()

# %% tags=["hide-cell"]
found, shuffled = (declines[order, MINILM].estimate for order in (WRITTEN, SHUFFLED))
crops = ""
if FALLS in added:
    crops = f"; over several orders, training on crops adds {claims.shown(added[FALLS], 4)}"
page.answer(
    f"""MiniLM's first-segment minus last-segment cosine is {found:.2f} as written, {shuffled:.2f}
    in one random order{crops}."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper's model is T5-base, whose training is continued on 8 billion tokens of web documents of
# up to 2,048 tokens. At `laptop` ours has two layers over MiniLM's word embeddings, learns from
# some thousands of docstrings for some hundreds of steps, and is probed on docstrings of a few
# hundred tokens. The chain of pretrained layers begins with those of MiniLM, which had already been
# trained as an embedder, and gives them new positions. It is an encoder without a decoder, and its
# embedding is the mean over tokens. Training uses documents as written; {doc}`cure_for_dwelling`
# has training on shuffled ones.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("substring_similarity")
