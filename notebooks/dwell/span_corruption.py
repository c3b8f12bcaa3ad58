# %% [markdown]
# # Does a language model restore spans equally well all along a text?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **Dwell Fig. 4, §4.4** {cite}`coelho2024dwell`. Before the paper's model becomes
# an embedder, it is a language model that restores short spans which were cut out of a text. If its
# accuracy were higher at the beginning of a text, that could explain the bias of the embeddings.
# The paper finds uniform accuracy with rotary positions, and slightly higher accuracy at later
# places for T5-base, which has its own relative positions.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Positive, Profile, Seed

page.claims_under_test("span_corruption")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0  # the first seed
seeds: Count | None = None  # trainings of each model
data: str | None = None  # pairs to train on
documents: Count | None = None  # for training
queries: Count | None = None  # documents that are probed
share_of_steps: Positive | None = None  # of the recipe's, in each stage
windows: Count | None = None  # of a document
draws: Count | None = None  # of the order of a document's segments
t5: str | None = None  # a pretrained T5, from a folder or the Hub

# %%
from cde_studies.dwell import recipe as dwell

settings = page.settings(
    globals(),
    dwell.PARAMETERS,
    laptop={"seeds": 5, "windows": 10, "draws": 8, "t5": ""},
    smoke={"seeds": 2, "windows": 5, "draws": 1},
    fresh={"seeds": 1, "queries": 20, "share_of_steps": 0.03, "draws": 2},
    gpu={},
    paper={"t5": "t5-base"},
)
settings

# %% [markdown]
# ## Two kinds of positions
#
# We compare the language model of the other chapters, which has rotary positions, with a twin that
# has T5's relative positions and the same sizes, data, seeds and steps. In training, 15 % of the
# tokens are cut out of docstrings, in spans of three on average, and the models learn to restore
# them. The probe cuts spans of exactly three tokens out of one *window* at a time, a tenth of a
# document's first 128 tokens, in packages that were held out. Accuracy is the share of these tokens
# that the model ranks first, given the target so far.

# %%
from cde_studies.dwell.chain import Phase

recipe = dwell.dwell_recipe_of(settings)
ROTARY, RELATIVE, UNTRAINED = "rotary", "relative", "untrained"
relative_start = Phase("start", {**recipe.start, "positions": "relative"})
phases = {
    ROTARY: recipe.phase("language model"),
    RELATIVE: Phase("restore", recipe.restore, relative_start),
    UNTRAINED: Phase("start", recipe.start),
}

# %% [markdown]
# Documents as written differ in content from place to place. Many of these docstrings begin with a
# heading underlined with a row of equal signs, and any model can restore an equal sign among
# others. So they are also probed with their ten segments in random order, in several draws. The
# windows then have more similar content, though not the same: only the first window always begins
# where a segment begins, and even an untrained model restores it a little better.

# %%
from cde.models.encoder import load_tokenizer
from cde_studies.dwell.chain import shuffle_segments, train_phase
from cde_studies.dwell.encoder_decoder import EncoderDecoder

ORDERS = WRITTEN, SHUFFLED = "as written", "shuffled"


def probed(number):
    """Documents to probe, as written and with their segments shuffled."""
    tokenizer = load_tokenizer(recipe.start.get("model", "minilm"))
    drawn = shuffle_segments(recipe.probed * settings.draws, tokenizer, seed=number)
    return {WRITTEN: recipe.probed, SHUFFLED: drawn}


# %%
def loaded(name, number):
    """A model, trained or read from the store; or a pretrained T5."""
    if name not in phases:
        return EncoderDecoder.from_backbone(name, positions="relative")
    folder = train_phase(phases[name], recipe.pairs.documents, recipe.pairs, number)
    return EncoderDecoder.from_pretrained(folder / "model")


# %%
from cde.intervals import Interval, mean_interval
from cde_studies.dwell.span_corruption import span_accuracy


def probe(model, texts, number):
    """Accuracy in each window, and first minus last with the bootstrap over documents."""
    accuracy, guessed, left_out = span_accuracy(
        model, texts, settings.windows, recipe.restore["tokens"], seed=number
    )
    apart = mean_interval(accuracy[:, 0] - accuracy[:, -1])
    of_all = {"apart": apart.estimate, "low": apart.low, "high": apart.high}
    of_all |= {"documents": len(accuracy), "left_out": sum(left_out.values())}
    by_window = zip(accuracy.mean(axis=0), guessed.mean(axis=0), strict=True)
    return [
        {"window": window, "accuracy": float(share), "guessed": float(commonest), **of_all}
        for window, (share, commonest) in enumerate(by_window, start=1)
    ]


# %%
import pandas as pd

from cde.progress import progress


def probe_all():
    """Every model with every seed."""
    jobs = [(name, number) for name in phases for number in settings.every_seed]
    jobs += [(settings.t5, settings.seed)] if settings.t5 else []
    rows = []
    for name, number in progress(jobs, "probing", unit="models"):
        model = loaded(name, number)
        for order, texts in probed(number).items():
            head = {"model": name, "seed": number, "order": order}
            rows += [head | row for row in probe(model, texts, number)]
    return pd.DataFrame(rows)


key = settings.only("seeds", "windows", "draws", "t5")
results = page.experiment("span_corruption-accuracy", probe_all, key, recipe)

# %% [markdown]
# ## Accuracy by window
#
# Is any place restored better than the others? The lines are means over documents, with a faint
# band from the lowest seed to the highest. *Untrained* is the model before its first step.
# *Commonest token* always predicts the commonest token of these texts, without looking at the text;
# a model that does no better tells us nothing about positions. In documents as written, that guess
# alone is right for a large part of the first window.

# %%
MODELS = list(dict.fromkeys(results["model"]))


def by_window(column, model, order=SHUFFLED):
    """A number of each seed in each window."""
    rows = results[(results["model"] == model) & (results["order"] == order)]
    return rows.pivot_table(index="seed", columns="window", values=column)


# %%
with plots.figure(1, 2, width=7.6, height=3.6, sharey=True) as (drawing, axes):
    for axis, order in zip(axes, ORDERS, strict=True):
        curves = {model: by_window("accuracy", model, order) for model in MODELS}
        guessed = by_window("guessed", ROTARY, order).mean()
        charts.curves(axis, {**curves, "commonest token": guessed}, band=True)
        axis.set_title(f"segments {order}")
        axis.set_xlabel(f"window of {recipe.restore['tokens']} tokens, of {settings.windows}")
        axis.set_xticks(list(guessed.index))
    axes[0].set_ylabel("share of span tokens restored")
    axes[0].set_ylim(bottom=0)
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)

# %% tags=["hide-input"]
plots.show(
    drawing,
    caption="Accuracy of restoring spans, by their place in the document; bands span the seeds.",
    data=results[["model", "seed", "order", "window", "accuracy", "guessed"]],
    answers="Dwell Fig. 4",
    lead=True,
)

# %% [markdown]
# In the table, *less that of the untrained* is what training has added to the difference, on the
# same spans.


# %%
def apart(model, order=SHUFFLED):
    """First window minus last, of each seed."""
    accuracy = by_window("accuracy", model, order)
    return accuracy[1] - accuracy[settings.windows]


def learnt(model, order=SHUFFLED):
    """The same minus that of the untrained model of the seed."""
    untrained = apart(UNTRAINED, order)
    return apart(model, order) - (untrained if model in phases else untrained.mean())


def everywhere(model, order=SHUFFLED):
    """Mean accuracy of each seed."""
    return by_window("accuracy", model, order).mean(axis=1)


def above(model, order=SHUFFLED):
    """Accuracy of each seed minus that of always naming the commonest token."""
    return everywhere(model, order) - by_window("guessed", model, order).mean(axis=1)


# %%
def of_first(column, model, order=SHUFFLED):
    """A number of a model's first seed."""
    return by_window(column, model, order).iloc[0, 0]


def line(model, order):
    """A line of the table: a model and an order of segments."""
    return {
        "positions": model,
        "segments": order,
        "accuracy": page.mean_and_spread(everywhere(model, order), 3),
        "above the commonest token": page.mean_and_interval(above(model, order), 3),
        "first minus last": page.mean_and_interval(apart(model, order), 3),
        "less that of the untrained": page.mean_and_interval(learnt(model, order), 3),
        "texts": int(of_first("documents", model, order)),
        "left out": int(of_first("left_out", model, order)),
    }


plots.table(pd.DataFrame([line(model, order) for order in ORDERS for model in MODELS]))

# %% [markdown]
# ## Verdict
#
# The measure is the difference between the first window and the last, with Student's interval over
# seeds. The claims are about what a model prefers, so they are tested on shuffled segments. That
# was decided after a first run on documents as written, in which even an untrained model restores
# the first window best; results as written are exploratory. A second exploratory result subtracts
# the untrained model's difference on the same spans, which removes the effect of what the windows
# happen to contain. Three seeds of four draws had narrowly left the claim undecided. Two seeds and
# four draws were added after that look, and all are counted.
#
# A model that restores little has little to lose, so it counts as a test only if the accuracy of
# every seed is more than 5 points above that of the commonest token. The claims on T5-base need
# that model (`t5`); our own with relative positions is exploratory. The bound of the claim is a
# quarter of what training adds to the untrained model's accuracy.

# %%
UNIFORM, LATER = "dwell-fig4-uniform-accuracy", "dwell-fig4-t5-base-late"
# what training adds, over all windows; a model that learned nothing has next to nothing
added = (everywhere(ROTARY) - everywhere(UNTRAINED)).clip(lower=1e-3)
STILL = "dwell-fig4-t5-base-uniform"
asked = f"{of_first('documents', ROTARY, WRITTEN):.0f} docstrings of held-out packages"
what = f"{asked}, {recipe.restore['tokens']} tokens, shuffled"
reads = above(ROTARY).min() > 0.05 and settings.windows == 10
role = "test" if reads else "exploratory"
claims.measure_runs(UNIFORM, apart(ROTARY) / added, f"rotary; {what}", role)
against = f"rotary minus untrained; {what}"
claims.measure_runs(UNIFORM, learnt(ROTARY) / added, against, "exploratory")
written = apart(ROTARY, WRITTEN) / added
_ = claims.measure_runs(UNIFORM, written, "rotary; as written", "exploratory")

# %%
relative = f"a small model with relative positions; {what}"
claims.measure_runs(LATER, -apart(RELATIVE), relative, "exploratory")
claims.measure_runs(STILL, -apart(RELATIVE), relative, "exploratory")
if settings.t5:
    columns = ("apart", "low", "high", "documents")
    estimate, low, high, texts = (of_first(column, settings.t5) for column in columns)
    later = Interval(-estimate, -high, -low, int(texts), "bootstrap over documents and draws")
    for claim in (LATER, STILL):
        claims.measure(claim, later, f"{settings.t5}; {what}")
claims.verdicts()

# %% tags=["hide-cell"]
page.answer(
    f"""On shuffled documents, the language model's accuracy in the first window minus the last is
    {page.mean_and_interval(100 * apart(ROTARY), 1)} points; overall it restores
    {100 * everywhere(ROTARY).mean():.0f} % of tokens."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper's model continues the training of T5-base on 8 billion tokens, up to 2,048 per document.
# At `laptop` a small model begins from random layers over MiniLM's word embeddings and takes a few
# hundred steps on stretches of 128 tokens from anywhere in docstrings. It restores little beyond
# frequent words and the neighbours of the span. A bias that only a good language model has would
# not show here.
#
# The probe is on the first 128 tokens. In each window the first span is marked by the first
# sentinel. In training that mark appears early in a text, because spans are numbered in order, so
# late windows differ a little from what the model saw in training. Nobody would write text with
# shuffled segments, and a span next to the seam between two segments is harder to restore than one
# within a segment. Seams can be anywhere, but the very first token never follows one.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("span_corruption")
