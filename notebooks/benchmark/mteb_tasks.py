# %% [markdown]
# # Does context help on every kind of task of MTEB?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **CDE Tables 2 and 7, §6 and §10.12** {cite}`morris2024contextual`. The paper
# evaluates cde-small-v1 on MTEB {cite}`muennighoff2023mteb` twice, with texts of each task as its
# context and with random ones, and the former scores 1.2 points higher. Here our encoders go
# through mteb's own evaluation, on eight tasks of six types that need no network. The context is
# drawn several times, because a difference means something only if it exceeds what a score moves
# from draw to draw.

# %%
from cde_book import charts, claims, gates, page, plots
from cde_book.parameters import Layers, Long, Positive, Profile, Seed, Several

page.claims_under_test("mteb_tasks")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 10  # the first seed
seeds: Several | None = None  # training runs of each encoder
tasks: list[str] | None = None  # names, as `cde mteb --list` gives them
share: Positive | None = None  # of each task's usual number of texts
draws: Several | None = None  # of each context
layers: Layers | None = None  # of the transformers
steps: Long | None = None

# %%
settings = page.settings(
    globals(),
    ("steps",),
    laptop={"seeds": 2, "tasks": None, "share": 0.2, "draws": 10, "layers": 2},
    smoke={
        "layers": 1,
        "tasks": ["DocstringReranking", "DocstringModuleClustering", "DocstringSTS"],
        "share": 0.06,
        "draws": 2,
    },
    fresh={"steps": 6, "draws": 2, "share": 0.06},
    gpu={"seeds": 3, "share": 1.0, "layers": 6},
    paper={"seeds": 3, "share": 1.0, "layers": 12},
)
settings

# %% [markdown]
# ## Eight tasks without a network
#
# The texts are docstrings of packages, in mteb's own task classes. The queries and documents for
# retrieval come from packages that no training sees.

# %%
import pandas as pd

from cde_studies.benchmark.offline import offline_tasks

on = offline_tasks(settings.tasks, settings.share)
described = [
    {
        "task": task.metadata.name,
        "type": task.metadata.type,
        "what is asked": task.metadata.description,
        "score": task.metadata.main_score,
    }
    for task in on
]
plots.table(pd.DataFrame(described))

# %% [markdown]
# ## Encoders, contexts and draws
#
# The *contextual* encoder is that of {doc}`../results/table1`, with attention `cached`, batches of
# neighbours, and the prefixes of the published models. The *taught reader*, our reader for short,
# has as many layers of MiniLM, frozen, and the trained part of {doc}`../results/taught_to_read`,
# which looks up each word in the context. Half of its training pairs are *lessons*: synthetic
# training text whose corpora differ in their boilerplate words, so that only the context tells
# which words matter. These lessons took docstrings of the test split as well, so a third of the
# texts of the two tasks on packages also occur in them, cut short and mixed with boilerplate.
#
# A context is drawn from the texts of the task (*own*; for retrieval from the corpus, never from
# the queries), from those of the next task in the list (*other*), or is made of *random* letters.
# Some tasks have a package in common with the next one, so *other* is in part their own corpus.
# *Null* is no context. MiniLM and BM25 use no context.

# %%
from cde.benchmark import evaluate_tasks
from cde.lexical import BM25
from cde.models import TASK_PREFIXES
from cde.surrogate import Surrogate
from cde_studies.recipes import recipe
from cde_studies.results.frozen_encoder import taught_recipe
from cde_studies.results.movement import moved_between_corpora

CONTEXTUAL, READER = "contextual", "taught reader"
MINILM, LEXICAL = "MiniLM", "BM25"
plain = recipe(profile, layers=settings.layers, steps=settings.steps, data="pydocs")
ARM = {
    "architecture": "contextual",
    "attention": "cached",
    "batches": "cluster",
    "model": TASK_PREFIXES["retrieval"],
}
taught = taught_recipe(profile, settings)
RUNS = {CONTEXTUAL: (plain, ARM), READER: (taught, {})}


def evaluated(arm, run_seed):
    """One encoder on every task, in every context, and how far its context moves a document."""
    of, changes = RUNS[arm]
    model = of.train(changes, run_seed).model()
    often, seldom = settings.draws, max(2, settings.draws // 3)
    parts = [
        evaluate_tasks(model, arm, on, ["own"], often),
        evaluate_tasks(model, arm, on, ["random", "other", "null"], seldom),
    ]
    moved = moved_between_corpora(model, [one for one in plain.tests() if one.where == "out"])
    return pd.concat(parts).assign(arm=arm, seed=run_seed, moved=moved)


def evaluate_all():
    """Every encoder with every seed, beside MiniLM and BM25."""
    rows = [evaluated(arm, one) for arm in RUNS for one in settings.every_seed]
    tokens = plain.base.document_tokens
    for name, system in {MINILM: Surrogate(max_tokens=tokens), LEXICAL: BM25()}.items():
        rows.append(evaluate_tasks(system, name, on).assign(arm=name, seed=settings.seed))
    return pd.concat(rows, ignore_index=True)


key = settings.only("seeds", "tasks", "share", "draws", "layers", "steps")
rows = page.experiment("mteb_tasks-contexts", evaluate_all, key, taught)

# %% [markdown]
# ## What the own context is worth, task by task
#
# On which tasks does the own context score higher than a random one? The figure shows the
# difference in points of the main score. A dot is a seed, the mean over draws. Two draws of the
# *own* context differ by more than the grey line one time in twenty. The open mark is the paper's
# difference for tasks of this type.

# %% tags=["hide-input"]
import numpy as np

from cde_studies.benchmark.draws import context_gains, draw_spread

PAPER = {
    "Classification": (81.7, 81.3),
    "Clustering": (48.3, 46.6),
    "PairClassification": (84.7, 84.1),
    "Reranking": (56.7, 55.3),
    "Retrieval": (53.3, 51.1),
    "STS": (81.6, 81.4),
    "Summarization": (31.2, 31.6),
}  # Table 2, cde-small-v1: its own context, and a random one
gains = {arm: context_gains(rows[rows["arm"] == arm], "own", "random") for arm in RUNS}
spreads = {arm: draw_spread(rows[rows["arm"] == arm], "own") for arm in RUNS}
kinds = rows.drop_duplicates("task").set_index("task")["type"]
names = [task.metadata.name for task in on]
with plots.figure(1, len(RUNS), width=7.6, height=1.2 + 0.36 * len(names), sharey=True) as (
    drawing,
    axes,
):
    for axis, arm in zip(axes, RUNS, strict=True):
        labels = {name: name.removeprefix("Docstring") for name in names}
        reach = [1.96 * 2**0.5 * spreads[arm][name] for name in names]
        look = {"color": plots.MUTED, "linewidth": 3, "alpha": 0.35, "label": "chance of the draw"}
        axis.hlines(range(len(names)), [-one for one in reach], reach, **look)
        ours = "ours, a point for each seed"
        dots = {labels[name]: {ours: gains[arm][name]} for name in names}
        papers = {labels[name]: {ours: np.subtract(*PAPER[kinds[name]])} for name in names}
        charts.seed_dots(axis, dots, "points, own − random", legend=False, marks=papers)
        charts.reference(axis, x=0)
        axis.set_title(arm)
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)

# %% tags=["hide-input"]
plots.show(
    drawing,
    caption="Score with texts of the task as context minus score with random letters, by task. "
    "Two single draws of the own context differ by more than the grey line one time in twenty; a "
    "dot is a mean over several draws, and varies less.",
    data=pd.concat({arm: gains[arm].T for arm in RUNS}, names=["arm"]).reset_index(),
    answers="CDE Tables 2 and 7",
)

# %% [markdown]
# Scores in each context, times 100, means over seeds and draws; MiniLM and BM25 use none. *Draws*
# is the standard deviation of a score between draws of the own context.

# %% tags=["hide-input"]
shown = rows.assign(
    context=rows["context"].replace("none", "own"),
    task=rows["task"].str.removeprefix("Docstring"),
    score=100 * rows["score"],
)
wide = shown.pivot_table("score", ["arm", "task"], "context", sort=False).rename_axis(columns=None)
wide["draws"] = pd.concat(spreads).rename(lambda name: name.removeprefix("Docstring"), level=1)
wide = wide[["own", "random", "other", "null", "draws"]].round(2).astype(object)
plots.table(wide.where(wide.notna(), "").reset_index())

# %% [markdown]
# ## Means by type, compared with the paper
#
# Differences in points, own minus random. Intervals cover other seeds and other draws at once; for
# the mean of all tasks, other seeds and other tasks. The paper's tables have one draw each, so
# their spread is not known. The line before the last is a control that the paper lacks: own minus
# *other*, which is also text, but of another task. The last line is the smallest effect that such a
# measurement would detect with 80 % power.

# %% tags=["hide-input"]
from cde_studies.benchmark.draws import gain_by_draw
from cde_studies.intervals import crossed_interval
from cde_studies.significance import smallest_effect


def of_type(arm, kind):
    """What the own context is worth on tasks of a type, with an interval."""
    chosen = rows[(rows["arm"] == arm) & (rows["type"] == kind)]
    return crossed_interval(gain_by_draw(chosen, "own", "random"))


by_type = {arm: {kind: of_type(arm, kind) for kind in kinds.unique()} for arm in RUNS}
overall = {arm: crossed_interval(gains[arm]) for arm in RUNS}
lines = [
    {
        "type": kind,
        **{arm: str(found) for arm, found in ((arm, by_type[arm][kind]) for arm in RUNS)},
        "the paper": f"{PAPER[kind][0] - PAPER[kind][1]:.1f}",
    }
    for kind in kinds.unique()
]
lines.append({"type": "all", **{arm: str(overall[arm]) for arm in RUNS}, "the paper": "1.2"})
against_other = {
    arm: crossed_interval(context_gains(rows[rows["arm"] == arm], "own", "other")) for arm in RUNS
}
lines.append(
    {"type": "all, own − other", **{arm: str(against_other[arm]) for arm in RUNS}, "the paper": ""}
)
lines.append(
    {
        "type": "seen with 80 % power",
        **{arm: f"{smallest_effect(overall[arm]):.2g}" for arm in RUNS},
        "the paper": "",
    }
)
plots.table(pd.DataFrame(lines))

# %% [markdown]
# ## Five ways to get another score
#
# Users could not reproduce the published scores with mteb's own wrapper of the model (mteb #1521,
# #1851, #1946, #2076; {doc}`published_checkpoints` has the numbers). The authors' evaluation and
# the wrapper differ in five ways. The **prefix** of context documents is the task's, or always
# "search_document: ". The context is drawn from both columns of pairs, or only from the **inputs**
# of the first call. For classification it is drawn from the **split** that is tested, or from the
# one that is trained on. The draw has no **seed**, or 42. And it is made with **replacement**, or
# without. The first three are settings of `cde.benchmark.Protocol`. Here they are crossed, with
# five draws each, all without replacement.

# %%
from cde_studies.benchmark.draws import protocol_effects, protocol_rows


def cross():
    """The contextual encoder on every task, under every protocol."""
    of, changes = RUNS[CONTEXTUAL]
    crossed = (5 if settings.draws > 5 else settings.draws,)
    return pd.concat(
        [
            protocol_rows(of.train(changes, one).model(), on, *crossed).assign(seed=one)
            for one in settings.every_seed
        ],
        ignore_index=True,
    )


crossed = page.experiment("mteb_tasks-protocol", cross, key, plain)
effects = protocol_effects(crossed)
plots.table(effects.reset_index().round(2).astype(object).where(lambda cells: cells.notna(), ""))

# %% [markdown]
# The table shows how many points of the main score the wrapper's way adds to the authors', and for
# the seed the standard deviation between draws. A cell is empty where a task has no such choice.
#
# ## Verdict
#
# The rules on Table 2 were fixed before these runs; the gate was added later, but also before them.
# The rules are tested with the contextual encoder, which is the paper's kind, if it uses its
# context. The taught reader is another model and is reported as exploratory; until 2026-11-27 it
# counted as a test. The gain without supervision (Table 7) is read from the records of
# {doc}`../results/table1`, which had been seen when the rule was written: contextual minus
# bi-encoder, both on batches of neighbours; with `full`, the paper's attention.

# %%
from cde_book.records import rows_of_record
from cde_studies.sweeps import Sweep

MEAN, STS = "cde-table2-random-context", "cde-table2-sts-context-free"
TYPES, AHEAD = "cde-table2-all-task-types", "cde-table7-unsupervised-gain"
reads_context = False
for arm in RUNS:
    moved = float(rows.loc[rows["arm"] == arm, "moved"].mean())
    reading = claims.gate("reads-context", moved, arm)
    reads_context = reading.passed if arm == CONTEXTUAL else reads_context
    display(gates.show([reading]))
    what = f"{arm}, {len(names)} tasks"
    role = "test" if arm == CONTEXTUAL else "exploratory"
    claims.measure(MEAN, overall[arm], what, role)
    claims.measure(STS, by_type[arm]["STS"], what, role)
    least = min(by_type[arm].values(), key=lambda found: found.estimate)
    claims.measure(TYPES, least, f"{what}, the least of {len(by_type[arm])} types", role)
for scale, single in (("laptop", "bi-encoder; clustered"), ("hours", "neighbours")):
    found = [rows_of_record(name, scale) for name in ("table1-arms", "controls-arms")]
    if all(found):  # at `hours` the bi-encoder is that of `controls`
        sweep = Sweep(pd.concat([one.rows for one in found]))
        pair = {"arm": "contextual, full; clustered"}, {"arm": single}
        if ahead := sweep.crossed_gain(*pair):
            claims.measure(AHEAD, ahead, f"table1, {sweep.sets()} sets", scale=scale)
claims.verdicts()

# %% tags=["hide-cell"]
page.answer(
    f"""Task texts instead of random letters as context change our reader's mean score by
    {claims.shown(overall[READER], 2)} points; the paper's architecture, briefly trained,
    {"uses" if reads_context else "ignores"} its context."""
)

# %% [markdown]
# ## What this teaches
#
# Random letters are a weak control. In retrieval and reranking the taught reader loses much with
# them, and far less with the texts of another task. So there a gain over random letters shows above
# all that the encoder wants text in its context. Whether it wants *these* texts is shown by the
# difference to another task's, and in the mean of all tasks we saw no such difference. That control
# is weak, too, since some tasks share a package with the next one. On pair classification and on
# module classification the reader also scores higher than with letters. On similarity and on the
# tasks of packages it scores lower than with letters, with either seed. Of the means by type, only
# those of retrieval and reranking can be told from zero.
#
# A single draw can make a difference as large as that of Table 2 on one task. Clustering scores
# vary most from draw to draw. Where a task has no more texts than the context has room for, all are
# taken, and nothing is drawn. None of the wrapper's ways moves similarity as far as users saw. But
# the encoder of that table barely uses its context; one that does may move more.
#
# ## What differs from the paper's setting
#
# The paper evaluates one model on 56 tasks, with 512 context documents. Ours are small encoders
# that were trained for minutes on docstrings, offline tasks of a few hundred texts, and 32 or 64
# context documents. There is no task of summarisation. Random contexts are letters here; according
# to the paper they are random documents of training, and in the authors' code they are lines of a
# file of strings. Table 7's claims on supervised models are on {doc}`published_checkpoints`.
#
# ## Run it again
#
# The same evaluation runs from the shell: `cde mteb --model FOLDER --context own random --draws
# 10`, on these tasks, on those of `$CDE_DATA`, or on any of mteb's own.

# %% tags=["remove-input"]
page.provenance("mteb_tasks")
