# %% [markdown]
# # Does an encoder that can read its corpus search real text better?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# In {doc}`minilm_with_context` an encoder gains no more from its own corpus as context than from
# another one. But those encoders ignore their context, so the result does not tell whether a corpus
# could help. Here the same frozen MiniLM {cite}`wang2020minilm` gets the same *reader*: a small
# trained part that adjusts each word's vector after looking at documents of the corpus. Half of its
# training is synthetic corpora that a frozen encoder searches badly unless it uses its context. We
# test first whether it has learned to. Then it searches real collections in their own and in other
# corpora's context. This is the idea of **CDE §1 and §4.2** {cite}`morris2024contextual`, tested
# with a reader of ours, not with the paper's encoder.

# %%
from cde_book import charts, claims, gates, page, plots
from cde_book.parameters import Count, Layers, Long, Profile, Rate, Seed, Several

page.claims_under_test("taught_to_read")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 10  # the first seed; 0 chose the settings
seeds: Count | None = None  # training runs
packages: list[str] | None = None  # of pydocs, for lessons; every fifth is kept for the test
layers: Layers | None = None  # of MiniLM; by default all
pairs: Long | None = None  # real pairs to train on; there are as many in lessons
steps: Long | None = None
batch_size: Several | None = None  # pairs a step, all of one source or one lesson
context_size: Several | None = None  # context documents, in training and in the test
learning_rate: Rate | None = None
long_run: bool = False  # train and test on $CDE_DATA, for an hour and more

# %%
from cde_studies.results.frozen_encoder import PARAMETERS, taught_recipe

settings = page.settings(
    globals(),
    (*PARAMETERS, "packages"),
    laptop={"seeds": 3},
    smoke={"seeds": 2},
    fresh={"seeds": 1, "steps": 6},
    gpu={"seeds": 5},
    paper={"seeds": 5},
)
settings

# %% [markdown]
# ## Synthetic training text: lessons
#
# A *lesson* is a synthetic training batch that cannot be solved without its corpus. It consists of
# docstrings and their queries, with words of boilerplate inserted between the words of both. Each
# lesson has different boilerplate: a word that is boilerplate here tells documents apart in all
# other lessons, so only the context can show that it says nothing here
# ({doc}`../encoder/context_required`). The other half of the batches are real pairs, each batch
# from one source. Only the reader is trained, so without context the encoder is still MiniLM.
#
# There are two kinds of lessons, and a separate reader is trained on each. In *coarse* lessons all
# boilerplate words are alike: each is in most documents and so tells nothing. In *graded* lessons
# words are in different shares of the documents, from 3 to 75 %, and a more common word tells less,
# as in real text (`GradedBoilerplate` of `cde_studies.encoder.boilerplate`).
#
# A reader is tested on two kinds of sets: real collections, and synthetic corpora whose boilerplate
# and packages appear in no lesson. Each is searched in the context of its *own* documents and in
# that of the next set of its kind (*other*). MiniLM itself and BM25 are there for comparison.

# %%
import pandas as pd

from cde.lexical import BM25
from cde_studies.results.movement import moved_between_corpora
from cde_studies.sweeps import Sweep, score_references, sweep

TAUGHT, MINILM, LEXICAL = "taught to read", "MiniLM itself", "BM25"


def on(tests, of):
    """The taught encoder of each seed on some sets, beside MiniLM and BM25."""
    rows = sweep({TAUGHT: {}}, settings.every_seed, of, ("own", "other"), tests)
    models = {one: of.train({}, one).model() for one in settings.every_seed}
    rows["moved"] = rows["seed"].map(
        {one: moved_between_corpora(model, tests) for one, model in models.items()}
    )
    references = {MINILM: models[settings.seed], LEXICAL: BM25()}  # without context it is MiniLM
    return pd.concat([rows, score_references(references, tests, settings.every_seed)])


def train_and_test(of):
    """Real collections ("out") and corpora with boilerplate ("in")."""
    real = [test for test in of.tests() if test.where == "out"]
    return pd.concat([on(real, of), on(of.corpora(), of)], ignore_index=True)


# %% [markdown]
# Everybody who runs this page has docstrings of packages, so these are used by default. `cde run
# taught_to_read --record hours/taught_to_read-sets -p long_run true -p seeds=5`, with $CDE_DATA,
# trains on 28 sources of pairs and tests on nine judged collections;
# `hours/taught_to_read-graded` does so with graded lessons.

# %%
from functools import partial

from cde.data import is_available
from cde_book.differences import difference_table, in_words, sweeps_at_profiles
from cde_book.records import records_at_other_profiles
from cde_studies.intervals import table_interval

NAMES = {"coarse": "taught_to_read-sets", "graded": "taught_to_read-graded"}
key, runs = settings.only("seeds"), {}
if long_run and not is_available("pairs/*"):
    raise ValueError("long_run needs $CDE_DATA with pairs/ and beir/")
for lessons, name in NAMES.items():
    if long_run:
        hours = taught_recipe("hours", settings, lessons)
        page.experiment(name, partial(train_and_test, hours), key, hours, profile="hours")
    here = taught_recipe(profile, settings, lessons)
    rows = page.experiment(name, partial(train_and_test, here), key, here)
    runs[lessons] = sweeps_at_profiles(name, rows)

# %% [markdown]
# A document from a coarse lesson and one from a graded lesson, each with its query:

# %%
from textwrap import wrap

for lessons in NAMES:
    lesson = taught_recipe(profile, settings, lessons).rules.corpus(2, settings.seed)
    for text in (lesson.documents[0], lesson.queries[0]):
        print("\n".join(wrap(f"{lessons}: {text}", 90)), end="\n\n")

# %% [markdown]
# ## What the context gains, on synthetic and on real text
#
# Does an encoder that uses its context search better with the right corpus? The figure shows
# NDCG@10 minus that of MiniLM itself, in points. Each dot is a training run. The first line of each
# profile is the mean over synthetic corpora, with the kind of boilerplate that the reader was
# trained on.

# %%
OWN, OTHER, WITHOUT = {"arm": TAUGHT}, {"arm": TAUGHT, "context": "other"}, {"arm": MINILM}
SHOWN = {"own corpus": OWN, "another corpus": OTHER}
NEEDED = "made to need it"


def panel(one):
    """Set → context → points more than MiniLM itself, a number each seed."""
    made = {name: one.gain(arm, WITHOUT, where="in") for name, arm in SHOWN.items()}
    real = {name: one.gain(arm, WITHOUT, by=["seed", "set"]) for name, arm in SHOWN.items()}
    sets = dict.fromkeys(one.of("own", where="out")["set"])
    return {NEEDED: made} | {
        name: {context: gains.xs(name, level="set") for context, gains in real.items()}
        for name in sets
    }


# %%
profiles = list(reversed(runs["coarse"]))
panels = {
    (of, lessons): panel(runs[lessons][of])
    for of in profiles
    for lessons in NAMES
    if of in runs[lessons]
}
heights = [len(panels[of, "coarse"]) for of in profiles]
size = {"width": 7.2, "height": 1.4 + 0.26 * sum(heights), "sharex": True}
ratios = {"height_ratios": heights}
with plots.figure(len(profiles), 2, **size, squeeze=False, gridspec_kw=ratios) as (drawing, axes):
    for axis in axes[:, 1]:
        axis.set_visible(False)
    for (of, lessons), sets in panels.items():
        row, column = profiles.index(of), list(NAMES).index(lessons)
        axis = axes[row, column]
        axis.set_visible(True)
        below = "points more than MiniLM itself" if row == len(profiles) - 1 else ""
        charts.seed_dots(axis, sets, below, legend=False)
        axis.axvline(0, color=plots.MUTED, linewidth=0.8, linestyle=":")
        axis.axhline(0.6, color=plots.MUTED, linewidth=0.8)
        if column:
            axis.set_yticklabels([])
        axis.set_title(f"{lessons} lessons" if not row else "")
        axis.set_ylabel("" if column else of)
    names = axes[0, 0].get_legend_handles_labels()
    drawing.legend(*names, loc="outside upper left", ncols=2)

# %% tags=["hide-input"]
lead = profiles[0]
told = []
for lessons in [one for one in NAMES if lead in runs[one]]:
    for where, what in (("in", "synthetic corpora"), ("out", "real sets")):
        points = [
            runs[lessons][lead].gain(one, WITHOUT, where=where).mean() for one in SHOWN.values()
        ]
        told.append(
            f"{lessons} lessons, {what}: {points[0]:.1f} with its own corpus as context and "
            f"{points[1]:.1f} with another"
        )
plots.show(
    drawing,
    alt=(
        "Dots for each test set and seed: NDCG@10 minus that of MiniLM itself. Means at "
        f"{lead}: {'; '.join(told)}."
    ),
    caption="Encoders that were trained on lessons to use their context, on synthetic corpora that "
    "need it and on real ones: NDCG@10 minus that of MiniLM itself.",
    data=pd.concat(
        one.mean_by_run().assign(profile=of, lessons=lessons)
        for lessons in runs
        for of, one in runs[lessons].items()
    ),
    answers="CDE §1 and §4.2",
)

# %% [markdown]
# ## A context without the answers
#
# A training batch has 64 pairs, and the documents of these pairs are its context. So a query's own
# document is *always* in the context that the query is embedded with, but in a test it is there
# only about one time in ten. A reader could learn to copy from the context vector that resembles
# the query; in a test this would pull queries towards wrong documents, and only in their own
# corpus. The paper draws the context of a batch in the same way (§4.2, and its code).
#
# Here readers are trained with a context *apart*: documents of the same lesson or source that are
# not in the batch. They are compared with readers whose context comes from the batch. Both have the
# same lessons, each of which fills two batches, so that half of a lesson is left for the context.
# Real sets are searched in three contexts: *own*, *other*, and *own without answers*, which are
# documents of the collection that are relevant to none of the queries.
# `cde run taught_to_read --record hours/taught_to_read-apart -p long_run true -p seeds=5` makes the
# record.

# %%
FROM_BATCH, FROM_APART = "context from the batch", "context apart"
DRAWN = {FROM_BATCH: {}, FROM_APART: {"context_from": "apart"}}
APART = {"coarse": "taught_to_read-apart", "graded": "taught_to_read-apart-graded"}


def drawn_both_ways(of):
    """Readers of either context in training, on real sets and on corpora with boilerplate."""
    real = [test for test in of.tests() if test.where == "out"]
    made = of.corpora()
    rows = [
        sweep(DRAWN, settings.every_seed, of, ("own", "other", "apart"), real),
        sweep(DRAWN, settings.every_seed, of, ("own", "other"), made),
    ]
    models = {
        (arm, one): of.train(change, one).model()
        for arm, change in DRAWN.items()
        for one in settings.every_seed
    }
    moved = {
        (*run, where): moved_between_corpora(model, tests)
        for run, model in models.items()
        for where, tests in (("out", real), ("in", made))
    }
    rows = pd.concat(rows, ignore_index=True)
    rows["moved"] = [
        moved[run] for run in zip(rows["arm"], rows["seed"], rows["where"], strict=True)
    ]
    without = {MINILM: models[FROM_BATCH, settings.seed], LEXICAL: BM25()}
    beside = [score_references(without, tests, settings.every_seed) for tests in (real, made)]
    return pd.concat([rows, *beside], ignore_index=True)


drawn = {}
for lessons, name in APART.items():
    if long_run:
        hours = taught_recipe("hours", settings, lessons, batches_a_lesson=2)
        page.experiment(name, partial(drawn_both_ways, hours), key, hours, profile="hours")
    if profile == "laptop":  # a record of `hours` alone
        found = {
            of: Sweep(one.rows) for of, one in records_at_other_profiles(name, profile).items()
        }
    else:
        here = taught_recipe(profile, settings, lessons, batches_a_lesson=2)
        own = page.experiment(name, partial(drawn_both_ways, here), key, here)
        found = sweeps_at_profiles(name, own)
    if found:
        drawn[lessons] = found

# %%
USUAL, CLEAN, OFF = {"context": None}, {"context": "apart"}, {"context": "other"}
DRAWN_DIFFERENCES = {
    f"{arm}: {what}": ({"arm": arm} | one, {"arm": arm} | other if other else {"arm": MINILM})
    for arm in DRAWN
    for what, one, other in (
        ("own − another corpus", USUAL, OFF),
        ("own without answers − another corpus", CLEAN, OFF),
        ("own without answers − own", CLEAN, USUAL),
        ("own − MiniLM", USUAL, None),
        ("another corpus − MiniLM", OFF, None),
    )
}
both_ways = [
    difference_table(of, DRAWN_DIFFERENCES, where=where).assign(lessons=lessons, text=kind)
    for lessons, of in drawn.items()
    for where, kind in {"in": NEEDED, "out": "real"}.items()
]
plots.table(pd.concat(both_ways).set_index(["lessons", "profile", "text"])) if drawn else None

# %%
OWN_OTHER = {arm: DRAWN_DIFFERENCES[f"{arm}: own − another corpus"] for arm in DRAWN}


def of_context(one, where="out"):
    """Own minus another corpus' context, by seed and set: of either kind of training."""
    by = ["seed", "set"]
    return {arm: one.gain(*pair, by=by, where=where) for arm, pair in OWN_OTHER.items()}


shown = {
    (lessons, of, kind, arm): table_interval(gains)
    for lessons, profiles in drawn.items()
    for of, one in profiles.items()
    for where, kind in (("out", "real sets"), ("in", NEEDED))
    for arm, gains in of_context(one, where).items()
}
if shown:
    with plots.figure(width=7.2, height=1.0 + 0.3 * len(shown)) as (drawing, axis):
        lines = {
            f"{kind}, {arm} ({lessons})": one for (lessons, _, kind, arm), one in shown.items()
        }
        charts.forest(axis, lines, "points of NDCG@10, own − another corpus' context", bound=0)
    plots.show(
        drawing,
        alt="Own minus another corpus' context in points of NDCG@10, with intervals: "
        + "; ".join(
            f"{name} {one.estimate:.1f} [{one.low:.1f}, {one.high:.1f}]"
            for name, one in lines.items()
        ),
        caption="NDCG@10 with its own corpus as context minus that with another one, for readers "
        "whose training context held each query's own document, and for readers whose context did "
        "not.",
        data=charts.interval_table(shown, ["lessons", "profile", "sets", "training"], "points"),
        answers="CDE §4.2",
    )

# %% [markdown]
# ## Means, and the smallest effects that could have been detected
#
# Intervals are for other seeds and other sets at once (`cde_studies.intervals.spread`).

# %%
KINDS = {"in": NEEDED, "out": "real"}
DIFFERENCES = {
    "own − another corpus": (OWN, OTHER),
    "own − MiniLM": (OWN, WITHOUT),
    "another corpus − MiniLM": (OTHER, WITHOUT),
}
tables = [
    difference_table(runs[lessons], DIFFERENCES, where=where).assign(lessons=lessons, text=kind)
    for lessons in NAMES
    for where, kind in KINDS.items()
]
plots.table(pd.concat(tables).set_index(["lessons", "profile", "text"]))


# %%
def score_line(lessons, of, where):
    """What each encoder finds on sets of a kind, and how far the context moves documents."""
    one = runs[lessons][of]
    encoders = {**SHOWN, MINILM: WITHOUT, LEXICAL: {"arm": LEXICAL}}
    scores = {name: one.score(where=where, **wanted).mean() for name, wanted in encoders.items()}
    told = {name: f"{score:.1f}" for name, score in scores.items()}
    share = one.of_run("moved", arm=TAUGHT, where=where).mean()
    return {
        "lessons": lessons,
        "profile": of,
        "sets": KINDS[where],
        **told,
        "moved": f"{share:.2g}",
    }


lines = [score_line(one, of, where) for one in NAMES for of in runs[one] for where in KINDS]
plots.table(pd.DataFrame(lines))

# %% [markdown]
# *Moved* is how far a document's vector moves when its own corpus' context is replaced by another,
# as a share of the distance between two documents. BM25 counts words in the corpus that it
# searches.
#
# ## Verdict
#
# The rules were fixed before the first of these runs, for each kind of lessons. A gate comes first,
# a condition without which nothing is tested: the encoder has to use its context on the sets that
# are searched ({doc}`context_moves_embeddings`). Then the corpus counts as helping if, on real
# sets, the encoder scores half a point higher with its own context than with another corpus'. The
# reader counts as useful if the encoder scores higher there than MiniLM itself. Three rules on a
# training context without the batch's documents were fixed before any such reader was trained; they
# are tested with coarse lessons.

# %%
HELPS = {"coarse": "ours-able-reader-half-a-point", "graded": "ours-graded-reader-half-a-point"}
USEFUL = {"coarse": "ours-able-reader-over-minilm", "graded": "ours-graded-reader-over-minilm"}
for lessons in NAMES:
    for of, one in runs[lessons].items():
        what = f"{lessons} lessons, profile {of}, {one.sets()} sets"
        moved = float(one.of_run("moved", arm=TAUGHT, where="out").mean())
        display(gates.show([claims.gate("reads-context", moved, what, of)]))
        for claim, difference in (
            (HELPS[lessons], "own − another corpus"),
            (USEFUL[lessons], "own − MiniLM"),
        ):
            if found := one.crossed_gain(*DIFFERENCES[difference]):
                claims.measure(claim, found, what, scale=of)

# %%
MORE, STILL, HARM = (
    "ours-context-apart-helps",
    "ours-apart-reader-half-a-point",
    "ours-answers-in-context-harm",
)
cleaner = DRAWN_DIFFERENCES[f"{FROM_BATCH}: own without answers − own"]
for lessons, profiles in drawn.items():
    role = "test" if lessons == "coarse" else "exploratory"
    for of, one in profiles.items():
        what = f"{lessons} lessons, profile {of}, {one.sets()} sets"
        moved = [one.of_run("moved", arm=arm, where="out").mean() for arm in DRAWN]
        display(gates.show([claims.gate("reads-context", float(min(moved)), what, of)]))
        gains = of_context(one)
        claims.measure_runs(MORE, gains[FROM_APART] - gains[FROM_BATCH], what, role, of)
        claims.measure_runs(STILL, gains[FROM_APART], what, role, of)
        fewer = one.gain(*cleaner, by=["seed", "set"])
        claims.measure_runs(HARM, fewer, what, role, of)
claims.verdicts()


# %% tags=["hide-input"]
def said(what, lessons, where="out"):
    """A difference in words, to a tenth of a point."""
    one = runs[lessons]
    return in_words(one[lead if lead in one else profile], DIFFERENCES[what], where=where)


def both(what, where="out"):
    """A difference after coarse lessons, and after graded ones."""
    coarse, graded = (said(what, lessons, where) for lessons in NAMES)
    return f"{coarse} after coarse lessons, {graded} after graded ones"


page.in_numbers(
    f"""At profile `{lead}`, its own corpus as context instead of another changes NDCG@10 on
    synthetic corpora by {both("own − another corpus", "in")}, in points. On
    {runs["coarse"][lead].sets()} real sets it changes NDCG@10 by {both("own − another corpus")};
    instead of no context, by {both("own − MiniLM")}."""
)

# %% tags=["hide-cell"]
where = "On judged collections" if lead == "hours" else "On real docstrings"
page.answer(
    f"""{where}, giving the encoder its own corpus instead of another changes NDCG@10 by
    {said("own − another corpus", "coarse")} points; on synthetic corpora by
    {said("own − another corpus", "coarse", "in")}."""
)

# %% [markdown]
# ## What this teaches
#
# If a context brings nothing, there are two possible reasons: the encoder ignores it, or there is
# nothing to gain. These encoders use their context. They learned to within minutes, on text where
# common words mislead, and they also do it on corpora and words that they never saw. Yet on the
# nine collections they score lower with the right corpus than with another one. Coarse lessons are
# not the cause, since graded ones give the same result. Nor is it the cause that each query's own
# document was in the context during training: readers that never met it there lose as much, and a
# test context without any relevant document changes nothing.
#
# {doc}`does_reading_help` and {doc}`untuned_text` look at other reasons.
# {doc}`../motivation/headroom` counts words instead of training a reader, and finds that a corpus'
# own statistics could give MiniLM little on average. All of this is about a frozen encoder with a
# reader of ours, and says nothing about an encoder that is trained as the paper's is.
#
# ## What differs from the paper's setting
#
# The paper trains all weights of both stages on more than ten thousand times as many pairs, without
# lessons, and puts the context vectors into the sequence. Here six layers are frozen, and a reader
# of a few hundred thousand weights is trained for minutes. Lessons teach it one kind of word
# statistics; with other training text a reader could learn other things from a corpus. The
# collections are cut to some hundred documents, which include all relevant ones. We knew from a run
# with another seed that lessons work. Graded lessons first had two seeds at `hours`; a third was
# added after we had looked at the results.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("taught_to_read")
