# %% [markdown]
# # Does reading the corpus help?
#
# **CDE §1 and §4.2** {cite}`morris2024contextual` rest on one idea: an encoder that reads the
# corpus searches it better. This page first tests it as an engineer would: take a finished encoder,
# add a part that reads the corpus, and search. Then it compares encoders of other chapters (not
# {doc}`../motivation/training_free`, which gains on manuals).

# %%
from cde_book import charts, claims, gates, page, plots
from cde_book.parameters import Count, Layers, Long, Profile, Seed, Several

page.claims_under_test("does_reading_help")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 10  # the first seed; 0 chose the settings
seeds: Count | None = None  # training runs of each arm
layers: Layers | None = None  # of MiniLM; by default all
pairs: Long | None = None  # to train on
steps: Long | None = None
batch_size: Several | None = None  # pairs a step, all of one source
context_size: Several | None = None  # context documents, in training and in the test
long_run: bool = False  # train and test on $CDE_DATA, for an hour and more

# %%
from cde_studies.results.frozen_encoder import MINILM, PARAMETERS, beside_minilm, with_reader

settings = page.settings(
    globals(),
    PARAMETERS,
    laptop={"seeds": 3},
    smoke={"seeds": 2},
    fresh={"seeds": 1, "steps": 6},
    gpu={"seeds": 5},
    paper={"seeds": 5},
)
settings

# %% [markdown]
# ## A reader for a finished encoder
#
# The encoder is MiniLM {cite}`wang2020minilm`, whole and frozen. Only an added part, the *reader*,
# is trained: before the first layer, each token looks once for what resembles it among the context
# vectors, and a gate, which starts at zero, adds what it finds
# ({doc}`../encoder/context_required`). The context vectors are means of word embeddings, six for
# each document. Without context the encoder is still MiniLM, so every point gained comes from what
# was added. How much of it comes from the *corpus*?
#
# Two controls tell. A trained reader is tested with documents of the set that it searches (*own*)
# and with those of the next set (*another*). And a second reader is trained and tested with one
# *fixed context* for all corpora: it can learn whatever helps on any corpus, but nothing about this
# one.
#
# Docstrings of packages are the default text. `cde run does_reading_help --record
# hours/minilm_with_context-arms -p long_run true -p seeds=5`, with $CDE_DATA, trains on 28 sources
# of pairs and tests on nine judged collections. The settings were chosen on docstrings, with
# another seed.

# %%
from cde_book.differences import sweeps_at_profiles

READS, FIXED = "reads the batch", "fixed context"
ARMS = {READS: {}, FIXED: {"context_from": "fixed"}}


def train_and_test(of):
    """Every arm with every seed on the sets out of domain, beside MiniLM and BM25."""
    return beside_minilm(ARMS, settings.every_seed, of, of.out_of_domain())


NAME, key = "minilm_with_context-arms", settings.only("seeds")
page.need_pairs(long_run)
if long_run:
    hours = with_reader("hours", settings)
    page.experiment(NAME, lambda: train_and_test(hours), key, hours, profile="hours")
here = with_reader(profile, settings)
rows = page.experiment(NAME, lambda: train_and_test(here), key, here)
runs = sweeps_at_profiles(NAME, rows)

# %% [markdown]
# On docstrings all three contexts add about the same; on judged collections we see no gain from
# any. Intervals are over other seeds and other sets at once.

# %%
from cde.intervals import table_interval

OWN, OTHER = {"arm": READS}, {"arm": READS, "context": "other"}
FIXED_CONTEXT, WITHOUT = {"arm": FIXED, "context": "fixed"}, {"arm": MINILM}
SHOWN = {"own corpus": OWN, "another corpus": OTHER, FIXED: FIXED_CONTEXT}
adds = {
    "judged collections" if of == "hours" else f"docstrings ({of})": {
        name: table_interval(one.gain(arm, WITHOUT, by=["seed", "set"]))
        for name, arm in SHOWN.items()
    }
    for of, one in runs.items()
}

# %%
label = "points of NDCG@10 more than MiniLM itself"
caption = "What a trained reader adds to MiniLM, by context."
charts.show_forest(adds, ["text", "context"], label, caption, "CDE §1 and §4.2")

# %% [markdown]
# ## Every encoder side by side
#
# On judged collections this reader barely uses its context, so its result does not say whether a
# corpus *could* help. Some other encoders do use theirs. Here all are compared, from the records of
# their chapters, with three questions. *Can reading help?* In a game of words only the corpus tells
# which words matter. *Does it, where text needs it?* Docstrings get boilerplate that only the
# corpus can reveal. *Does it help on real text?* These are judged collections, docstrings as they
# are, and sources of many kinds that were not used for any choice.
#
# *Lessons* are synthetic training text whose corpora differ in their boilerplate: in *coarse*
# lessons all boilerplate words are equally common, in *graded* lessons some are more common than
# others ({doc}`taught_to_read`).

# %% tags=["hide-input"]
from typing import NamedTuple

import pandas as pd

from cde.intervals import crossed_interval
from cde_book.records import rows_of_record
from cde_studies.sweeps import Sweep


class Evidence(NamedTuple):
    """Where a record has an encoder, and what its own corpus' context is compared with."""

    question: str
    encoder: str
    record: str
    arm: str
    without: str
    where: str = "out"
    fixed: str | None = None


CAN, NEEDED = "A game of words", "Docstrings with boilerplate"
REAL = {
    "hours": "Real text: nine judged collections",
    "laptop": "Real text: docstrings of packages",
}
UNTUNED = "Real text: new sources"
LONG = "hours/table1-arms"  # its bi-encoders are those of `controls`
LAYERS, READER, TAUGHT = "two layers, all trained", "reader for MiniLM", "taught to read"
COARSE, GRADED = f"{READER}, coarse lessons", f"{READER}, graded lessons"
LESSONS = {COARSE: "taught_to_read-sets", GRADED: "taught_to_read-graded"}

# %% tags=["hide-input"]
game, made = "laptop/context_required-players", "laptop/learning_to_read-arms"
short, untuned = "laptop/controls-arms", "laptop/untuned_text-arms"
lessons = [
    Evidence(NEEDED, one, f"hours/{name}", TAUGHT, MINILM, "in") for one, name in LESSONS.items()
]
evidence = [
    Evidence(CAN, "one layer, all trained", game, "the recipe", "the recipe", "in"),
    Evidence(NEEDED, LAYERS, made, "the recipe", "bi-encoder", fixed=FIXED),
    *lessons,
    Evidence(REAL["hours"], LAYERS, LONG, "contextual, full; clustered", "neighbours"),
    Evidence(
        REAL["laptop"],
        LAYERS,
        short,
        "neighbours, with context",
        "neighbours",
        fixed="neighbours, fixed context",
    ),
]
for scale, text in REAL.items():
    evidence.append(Evidence(text, READER, f"{scale}/{NAME}", READS, MINILM, fixed=FIXED))
    evidence += [
        one._replace(question=text, record=one.record.replace("hours", scale), where="out")
        for one in lessons
    ]
evidence.append(Evidence(UNTUNED, READER, untuned, "untaught", MINILM, fixed=FIXED))
for one in (COARSE, GRADED):
    evidence.append(Evidence(UNTUNED, one, untuned, one.removeprefix(f"{READER}, "), MINILM))

# %% tags=["hide-input"]
ANOTHER, NONE = "another corpus", "no context"


def recorded_sweep(record):
    """The rows of a record as a sweep."""
    profile_of, name = record.split("/")
    rows = rows_of_record(name, profile_of).rows
    if record == LONG:
        rows = pd.concat([rows, rows_of_record("controls-arms", profile_of).rows])
    if "player" not in rows:
        return Sweep(rows)
    last = rows[rows["step"] == rows["step"].max()].rename(columns={"player": "arm"})
    contexts = ["own", "other", "null"]
    rows = last.melt(["arm", "seed"], contexts, var_name="context", value_name="ndcg")
    return Sweep(rows.assign(set="the game", where="in"))


def gains(one):
    """What the own context is compared with → points more, a row a seed, a column a set."""
    sweep = recorded_sweep(one.record)
    controls = {ANOTHER: {"arm": one.arm, "context": "other"}, NONE: {"arm": one.without}}
    if one.without == one.arm:
        controls[NONE]["context"] = "null"
    if one.fixed:
        controls[FIXED] = {"arm": one.fixed, "context": "fixed"}
    own, by = {"arm": one.arm}, ["seed", "set"]
    found = {
        to: sweep.gain(own, control, by=by, where=one.where) for to, control in controls.items()
    }
    frames = {to: of.dropna().to_frame("points") for to, of in found.items()}
    return {to: table.pivot_table("points", "seed", "set") for to, table in frames.items()}


there = [one for one in evidence if rows_of_record(*reversed(one.record.split("/")))]
every = {one: gains(one) for one in there}
intervals = {one: table_interval(of[ANOTHER]) for one, of in every.items()}

# %% [markdown]
# How much does the right corpus add, where it is needed and where it is not? In the game the
# interval is over seeds alone, and where there is one seed it is over collections alone.

# %% tags=["hide-input"]
questions = {one.question: {} for one in sorted(there, key=lambda one: one.question)}
for one, found in intervals.items():
    questions[one.question][one.encoder] = found
heights = [len(lines) for lines in questions.values()]
size = {"width": 7.2, "height": 2.2 + 0.2 * sum(heights)}
ratios = {"height_ratios": heights}
with plots.figure(len(questions), 1, **size, gridspec_kw=ratios) as (drawing, axes):
    for axis in axes[2:-1]:  # those of real text
        axis.sharex(axes[-1])
        axis.tick_params(labelbottom=False)
    for axis, (question, lines) in zip(axes, questions.items(), strict=True):
        charts.forest(axis, lines, "points of NDCG@10" if axis is axes[-1] else "", bound=0)
        axis.set_title(question, loc="left")
keys = {(one.question, one.encoder, one.record): found for one, found in intervals.items()}
plots.show(
    drawing,
    caption="What the right corpus adds: score with its context minus another corpus'.",
    data=charts.interval_table(keys, ["question", "encoder", "record"], "points"),
    answers="CDE §1 and §4.2",
    lead=True,
)

# %% [markdown]
# The same against each control. *No context* is a bi-encoder that was trained in the same way or,
# for a reader, MiniLM itself; in the game it is null tokens (placeholders for missing documents).
# *Seen* is the smallest effect that the first difference would have shown with 80 % power.

# %%
from cde.intervals import smallest_effect


def line(one):
    """A line of the table: an encoder against each control."""
    tables = every[one]
    found = {f"own − {to}": str(table_interval(table)) for to, table in tables.items()}
    seeds, sets = tables[ANOTHER].shape
    row = {"question": one.question, "encoder": one.encoder, **found}
    seen = f"{smallest_effect(intervals[one]):.2g}"
    return {**row, "seen": seen, "seeds": seeds, "sets": sets, "record": one.record}


plots.table(pd.DataFrame([line(one) for one in there]).fillna(""))

# %% [markdown]
# ## Where the right corpus adds something
#
# Four encoders were tested on the same nine collections. Their mean hides that collections differ.
# They also differ for a ranker that only counts words, BM25: with a collection's own document
# frequencies instead of those of the same other collection, it gains on some and loses on others
# ({doc}`../motivation/headroom`). Do the encoders gain where BM25 does? Each dot is a collection,
# and each encoder is represented by the mean of its seeds.

# %%
from dataclasses import replace

from cde_studies.intervals import correlation_interval

judged = {
    one.encoder: of[ANOTHER].mean() for one, of in every.items() if one.question == REAL["hours"]
}
same = pd.DataFrame(judged).T
together = crossed_interval(same)
together = replace(together, method=together.method.replace("seeds", "encoders"))
counting = rows_of_record("headroom-collections", "hours").rows.query("way == 'BM25, IDF'")
counted = 100 * counting.pivot_table("ndcg", "searched", "source")
order = list(dict.fromkeys(recorded_sweep(LONG).rows["set"]))
following = dict(zip(order, [*order[1:], order[0]], strict=True))
by_counting = pd.Series(
    {name: counted.loc[name, name] - counted.loc[name, other] for name, other in following.items()}
)

# %%
with plots.figure(1, len(same), width=7.6, height=2.8, sharex=True, sharey=True) as (drawn, axes):
    for axis, (name, gained) in zip(axes, same.iterrows(), strict=True):
        charts.reference(axis, x=0, y=0)
        charts.points(axis, {"": (by_counting[same.columns], gained)}, markersize=4)
        axis.set_title(name.replace(", ", ",\n"), fontsize=9)
        axis.set_xlabel("BM25")
    axes[0].set_ylabel("encoder")
plots.show(
    drawn,
    caption="Points that the right corpus adds: for encoders with a context, and for BM25.",
    data=same.T.assign(BM25=by_counting).reset_index(names="collection"),
    answers="CDE §1 and §4.2",
)

# %% [markdown]
# Nine collections are few. {doc}`taught_to_read` sets the same rule again, for 28 *new sources*,
# which had played no part in any choice.
#
# ## Verdict
#
# Two rules were fixed before the first run of the reader that this page trains. The corpus counts
# as helping if its own context scores half a point higher than another corpus'. A gate, that the
# reader must use its context for this rule to count, was removed before the first run and restored
# after it (*How verdicts are decided*). The reader counts as useful if, in its own corpus' context,
# the encoder scores higher than MiniLM itself.
#
# The rule on the mean of four encoders was written when three of them had been seen, so it is not a
# prediction, and its verdict is a summary. The rule on where encoders gain was set before the first
# run of the fourth, graded lessons, had ended, and is a prediction for it alone; a third seed has
# been added since.

# %%
CORPUS, USEFUL = "ours-own-corpus-half-a-point", "ours-reader-over-minilm"
for of, one in runs.items():
    what = f"profile {of}, {one.sets()} sets"
    share = float(one.of_run("moved", arm=READS).mean())
    display(gates.show([claims.gate("reads-context", share, what, of)]))
    for claim, against in ((CORPUS, OTHER), (USEFUL, WITHOUT)):
        if found := one.crossed_gain(OWN, against):
            claims.measure(claim, found, what, scale=of)

HELPS, FOLLOWS = "ours-own-corpus-on-real-text", "ours-gains-follow-counting"
what = f"{same.shape[0]} encoders on {same.shape[1]} collections"
claims.measure(HELPS, together, what, scale="hours")
for name, gained in same.iterrows():
    found = correlation_interval(by_counting[same.columns], gained, "spearman")
    claims.measure(FOLLOWS, found, f"{name}, {found.n} collections", name == GRADED, scale="hours")
claims.verdicts()

# %% tags=["hide-cell"]
(first,) = questions[CAN].values()
page.answer(
    f"""On judged collections, {claims.apart("reading the searched corpus", together, "another")}
    (mean of {len(same)} trained encoders), and {first.estimate:.0f} above it in an artificial
    game."""
)

# %% [markdown]
# ## What this teaches
#
# A gain over the same encoder without context says nothing about the corpus. A reader has
# parameters of its own, and was trained on text that MiniLM was not trained on; on docstrings it
# scores about alike with a fixed context, with a wrong corpus and with the right one, and even its
# gain over no context could be chance. A table that credits a contextual encoder needs both
# controls.
#
# When a context brings nothing, the usual explanation is that the encoder ignores it. That is not
# the whole story: a reader that was trained to use its context scores lower with the right corpus
# than with another one, on judged collections and on the new sources. We do not know why. On judged
# collections the statistics of the right corpus are not always the best ones to search it with. On
# the other sources BM25 gains from them, and readers do not. They were trained on boilerplate,
# which may differ from what real text requires. {doc}`taught_to_read` speaks against one reason:
# that each query's own document was in the context in training, but seldom is in a test.
#
# ## What differs from the paper's setting
#
# The paper trains all weights of both stages, six layers and more, on hundreds of millions of
# pairs, and puts the context vectors into the sequence; its encoder may learn to read other things
# than word statistics. Its Fig. 7 has contexts of other domains ({doc}`context_source`), but its
# Table 1 has not. Our readers are trained for minutes, and texts are cut to some dozens of tokens.
# The four encoders are not independent of each other: they were tested on the same nine
# collections, each paired with the same other one, and cut to at most 5,000 documents for the two
# layers and some 600 for readers.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("does_reading_help")
