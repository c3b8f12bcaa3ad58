# %% [markdown]
# # Does an encoder that can read its corpus search real text better?
#
# In {doc}`does_reading_help` an encoder gains no more from its own corpus than from another one,
# but on judged collections it barely uses its context. Here the same frozen MiniLM
# {cite}`wang2020minilm` gets the same *reader*, a small trained part that adjusts each word's
# vector after looking at documents of the corpus. This time the reader is *taught*: half of its
# training text can only be searched well by using the corpus. Then it searches real text, in the
# context of the right corpus and of a wrong one. This is the idea of **CDE §1 and §4.2**
# {cite}`morris2024contextual`, tested with a reader of ours, not with the paper's encoder.

# %%
from cde_book import charts, claims, gates, page, plots
from cde_book.parameters import Count, Layers, Long, Profile, Seed, Several, Share, Tokens

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
long_run: bool = False  # train and test on $CDE_DATA, for an hour and more
sources: list[str] | None = None  # new ones; by default pairs/* of $CDE_DATA
documents: Several | None = None  # of each source
queries: Count | None = None
others: Count | None = None  # other sources whose context each source is searched in
draw: Seed = 0  # of the ready reader's contexts; the reader itself is always the same
card_documents: Several | None = None  # of each of its collections; what is relevant always stays
card_queries: Several | None = None
max_tokens: Tokens | None = None  # its texts are cut there
collections: list[str] | None = None  # of $CDE_DATA/beir
other_gates: list[Share] | None = None  # besides the one that was chosen

# %%
from cde_studies.results.frozen_encoder import PARAMETERS
from cde_studies.results.ready_reader import JUDGED

laptop = {"seeds": 3, "sources": None, "documents": 300, "queries": 150, "others": 2}
laptop |= {"card_documents": 200, "card_queries": 100, "max_tokens": 48, "draw": 0}
small = {"documents": 30, "queries": 20, "others": 1, "collections": ["cosqa", "scifact"]}
small |= {"card_documents": 40, "card_queries": 20, "max_tokens": 16}
large = {"seeds": 5, "documents": 5000, "queries": 1000}
large |= {"card_documents": 50_000, "card_queries": 1000, "max_tokens": 256}
four = [f"pydocs/{name}" for name in ("networkx", "polars", "rich", "tornado")]
settings = page.settings(
    globals(),
    (*PARAMETERS, "packages"),
    laptop={**laptop, "collections": JUDGED, "other_gates": []},
    smoke={**small, "seeds": 2, "sources": four, "other_gates": [1.0]},
    fresh={**small, "seeds": 1, "steps": 6},
    gpu=large,
    paper=large,
)
settings

# %% [markdown]
# ## Training text that cannot be searched without its corpus
#
# A *lesson* is a synthetic training batch: docstrings and their queries, with words of boilerplate
# inserted into both. Each lesson has different boilerplate. A word that is boilerplate here tells
# documents apart in all other lessons, so only the context can show that it says nothing here
# ({doc}`../encoder/context_required`). In *coarse* lessons all boilerplate words are alike: each is
# in most documents. In *graded* lessons they are in different shares of the documents, from 3 to
# 75 %, and a more common word tells less, as in real text. A separate reader is trained on each
# kind. The other half of the batches are real pairs. Only the reader is trained, so without context
# the encoder is still MiniLM.

# %%
from dataclasses import replace
from functools import partial
from textwrap import wrap

import pandas as pd

from cde.data import is_available
from cde.intervals import run_interval, table_interval
from cde_book.differences import difference, sweeps_at_profiles
from cde_book.records import records_at_other_profiles
from cde_book.run_mode import this_run
from cde_studies.collections.pydocs import HELD_OUT
from cde_studies.intervals import correlation_interval
from cde_studies.results import context_sources
from cde_studies.results import ready_reader as reader
from cde_studies.results.frozen_encoder import MINILM, real_and_made, taught_recipe, with_reader
from cde_studies.results.ready_reader import ReadyReader, gains_by_set
from cde_studies.sweeps import Sweep

KINDS = ("coarse", "graded")
for kind in KINDS:
    lesson = taught_recipe(profile, settings, kind).rules.corpus(2, settings.seed)
    for text in (lesson.documents[0], lesson.queries[0]):
        print("\n".join(wrap(f"{kind}: {text}", 90)), end="\n\n")

# %% [markdown]
# ## Real and synthetic text, in the right context and in a wrong one
#
# A reader is tested on real sets, by default docstrings, and on synthetic corpora whose boilerplate
# and packages appear in no lesson. Each is searched in the context of its *own* documents and in
# that of the next set of its kind (*other*). `cde run taught_to_read --record
# hours/taught_to_read-sets -p long_run true -p seeds=5`, with $CDE_DATA, trains on 28 sources of
# pairs and tests on nine judged collections; `hours/taught_to_read-graded` has graded lessons.

# %%
TAUGHT, NAMES = {"taught to read": {}}, ("taught_to_read-sets", "taught_to_read-graded")
page.need_pairs(long_run)


def at_each_profile(name, arms, contexts, *lessons, at_laptop=True):
    """The sweep of an experiment at this profile, and those that are recorded at others."""
    test, key = partial(real_and_made, arms, settings.every_seed, contexts), settings.only("seeds")
    if long_run:
        hours = taught_recipe("hours", settings, *lessons)
        page.experiment(name, partial(test, hours), key, hours, profile="hours")
    if profile == "laptop" and not at_laptop and not this_run().fresh:
        recorded = records_at_other_profiles(name, profile)
        return {of: Sweep(one.rows) for of, one in recorded.items()}
    here = taught_recipe(profile, settings, *lessons)
    return sweeps_at_profiles(name, page.experiment(name, partial(test, here), key, here))


runs = {
    kind: at_each_profile(name, TAUGHT, ("own", "other"), kind)
    for kind, name in zip(KINDS, NAMES, strict=True)
}

# %% [markdown]
# ## New sources, which played no part in any choice
#
# Nine collections are few, and we had looked at them before. So readers that were trained on
# docstrings alone search the 28 sources of pairs, which played no part in any choice: news,
# statutes, forums, papers, dictionaries, films. A query belongs to one text, such as a headline to
# its article. Contexts are a source's own texts, or those of some others, drawn at random once;
# BM25 takes its document frequencies from the same texts. A reader without lessons (*untaught*)
# stands beside the taught ones. Without `$CDE_DATA` and a record, docstrings are searched.

# %%
GRADED = "graded lessons"
READERS = {"untaught": with_reader(profile, settings)}
READERS |= {f"{kind} lessons": taught_recipe(profile, settings, kind) for kind in KINDS}
for arm, of in READERS.items():  # none is trained on sources, whatever the profile
    READERS[arm] = replace(of, base=replace(of.base, data="pydocs"))


def search_sources():
    """Every source, by every reader with every seed, and by what reads nothing."""
    sets = context_sources.load_sources(settings.sources, settings.documents, settings.queries)
    return context_sources.search_with_all(READERS, settings.every_seed, sets, settings.others)


key = settings.only("seeds", "sources", "documents", "queries", "others")
rows = page.experiment("untuned_text-arms", search_sources, key, READERS[GRADED])
untuned = Sweep(rows)

# %% [markdown]
# ## What the taught readers gain
#
# The readers use their context: on synthetic corpora the right one gains much. On real text it does
# not. Intervals are over other seeds and other sets at once.

# %%
OWN, OTHER, WITHOUT = {"arm": "taught to read"}, {"context": "other"}, {"arm": MINILM}
BY, CONTEXTS = ["seed", "set"], {"own corpus": {}, "another corpus": OTHER}


def above_minilm(one, arm, where="out"):
    """Points more than MiniLM itself, in either context."""
    return {
        name: table_interval(one.gain({"arm": arm} | of, WITHOUT, by=BY, where=where))
        for name, of in CONTEXTS.items()
    }


found = {}
for kind in KINDS:
    for of, one in runs[kind].items():
        real = "Judged collections" if of == "hours" else f"Docstrings ({of})"
        for text, where in ((f"Synthetic ({of})", "in"), (real, "out")):
            found[f"{text}, {kind} lessons"] = above_minilm(one, "taught to read", where)
    found[f"New sources, {kind} lessons"] = above_minilm(untuned, f"{kind} lessons")
found, columns = dict(sorted(found.items())), ["sets and lessons", "context"]
caption = "What readers that were taught to use their context add to MiniLM, by context."
label = "points above MiniLM itself"
charts.show_forest(found, columns, label, caption, "CDE §1 and §4.2", lead=True)

# %% [markdown]
# ## A context without the answers
#
# In training, a batch's own documents are its context, as in the paper (§4.2, and its code). So a
# query's own document is *always* in the context, but in a test only about one time in ten. A
# reader could learn to copy from the context vector that resembles the query, which would pull
# queries towards wrong documents, and only in their own corpus. Here readers are also trained with
# a context *apart*: documents of the same lesson or source that are not in the batch. (For both,
# each lesson fills two batches, so that half of it is left.) Real sets are also searched in
# documents that are relevant to none of the queries. `cde run taught_to_read --record
# hours/taught_to_read-apart -p long_run true -p seeds=5` makes the record.

# %%
DRAWN = {"context from the batch": {}, "context apart": {"context_from": "apart"}}
APART = {"coarse": "taught_to_read-apart", "graded": "taught_to_read-apart-graded"}
drawn = {
    kind: at_each_profile(name, DRAWN, ("own", "other", "apart"), kind, 2, at_laptop=False)
    for kind, name in APART.items()
}

# %% [markdown]
# ## Could such a reader be offered to everybody?
#
# An encoder that is offered to everybody must above all do no harm, so we ask how much it loses on
# the collection where it loses most. This one is MiniLM, unchanged, and a reader that was trained
# without lessons on docstrings of installed packages. It reads 64 documents; with none it is
# exactly MiniLM.
#
# What the reader adds is multiplied by a number, its *gate*, a half or a quarter. The rule for it
# was fixed before we saw any number of this reader, on validation text only: two packages and four
# sources of pairs. It took the larger gate at which no set loses more than 0.3 points; if there is
# none, the larger at which the four sources lose no more than 0.3 on average; else a quarter. The
# choice was made in a trial. This table was made afterwards: points above MiniLM, by gate.

# %%
sizes = settings.card_documents, settings.card_queries, settings.max_tokens
ready = ReadyReader(profile, *sizes, settings.draw)


def of_card(name, at, names, contexts=("own",), **more):
    """An experiment of the card: the reader at some gates on some sets."""
    compute, key = partial(ready.score, at, names, contexts), {"gates": settings.other_gates}
    return page.experiment(name, compute, key | more, ready, can_run=is_available(*names))


tried = {f"gate {gate:g}": gate for gate in reader.GATES}
validation = [f"pydocs/{name}" for name in reader.VALIDATION]
if profile != "smoke":
    validation += [f"pairs/{name}" for name in reader.VALIDATION_SOURCES]
trial = of_card("pretrained_reader-validation", tried, validation, validation=validation)
if trial is not None:
    display(plots.table(trial.pivot_table("gain", "set", "model", sort=False).round(2)))

# %% [markdown]
# The test sets are the four packages that no training sees, and judged collections of `$CDE_DATA`,
# cut to some hundred documents, or to all relevant ones if these are more. Each is searched in the
# context of its own documents, and packages also in that of the next package.

# %%
CHOSEN, held = "as it comes", HELD_OUT[1:3] if profile == "smoke" else HELD_OUT
wanted = {CHOSEN: reader.GATE} | {f"gate {gate:g}": gate for gate in settings.other_gates}
in_beir, packaged = settings.collections, [f"pydocs/{name}" for name in held]
names = [f"beir/{name}" for name in in_beir]
on_packages = of_card("pretrained_reader-packages", wanted, packaged, ("own", "other"))
on_judged = of_card("pretrained_reader-collections", wanted, names, collections=in_beir)
on_all = pd.concat([on_packages, on_judged], ignore_index=True)
gained = gains_by_set(on_all, CHOSEN)
means = {
    "mean, judged collections": [gained[one] for one in gained if one not in held],
    "mean, packages": [gained[one] for one in held],
    "mean, packages, another's context": gains_by_set(on_packages, CHOSEN, "other").values(),
}
points = {name: [one.estimate for one in some] for name, some in means.items() if some}
lines = gained | {name: run_interval(some, "collections") for name, some in points.items()}
with plots.figure(width=7.2, height=1.2 + 0.24 * len(lines)) as (drawing, axis):
    charts.forest(axis, lines, "NDCG@10 minus that of MiniLM in points, own context", -0.3)
caption = (
    "MiniLM with a reader that was trained once, against MiniLM. The line is the limit of harm."
)
plots.show(drawing, caption, on_all, "CDE §1 and §4.2")

# %% [markdown]
# ## Verdict
#
# All rules were fixed before the first of their runs: those on sources for graded lessons, those on
# a context apart for coarse ones. A gate comes first: the encoder has to use its context
# ({doc}`context_source`); for the sources that was measured on packages. The corpus
# counts as helping if its own context scores half a point higher than another's, and the reader as
# useful if it scores higher than MiniLM itself. Gains follow word counts if their correlation with
# BM25's gains over sources is above 0. The ready reader does no harm if the smallest of its gains
# is above -0.3 points.

# %%
RULES = {
    "coarse": ("ours-able-reader-half-a-point", "ours-able-reader-over-minilm"),
    "graded": ("ours-graded-reader-half-a-point", "ours-graded-reader-over-minilm"),
    "sources": ("ours-untuned-text-half-a-point", "ours-untuned-text-over-minilm"),
}


def check_gate(one, arms, what, of):
    """Enter and show whether these readers use their context."""
    moved = min(float(one.of_run("moved", arm=arm, where="out").mean()) for arm in arms)
    display(gates.show([claims.gate("reads-context", moved, what, of)]))


def measure_gains(rules, one, arm, *more):
    """The encoder with its own context against another's, and against MiniLM itself."""
    for claim, against in zip(rules, ({"arm": arm} | OTHER, WITHOUT), strict=True):
        if gain := one.crossed_gain({"arm": arm}, against):
            claims.measure(claim, gain, *more)


for kind in KINDS:
    for of, one in runs[kind].items():
        what = f"{kind} lessons, profile {of}, {one.sets()} sets"
        check_gate(one, TAUGHT, what, of)
        measure_gains(RULES[kind], one, "taught to read", what, "test", of)

# %%
check_gate(runs["graded"][profile], TAUGHT, f"{GRADED}, packages", profile)
for arm in READERS:
    role, what = "test" if arm == GRADED else "exploratory", f"{arm}, {untuned.sets()} sources"
    measure_gains(RULES["sources"], untuned, arm, what, role)
    of_arm = rows[rows["arm"] == arm]
    counted, read = (context_sources.own_corpus_gains(of_arm, one) for one in ("bm25", "ndcg"))
    if read.std() > 0:
        follows = correlation_interval(counted, read, "spearman")
        claims.measure("ours-untuned-gains-follow-counting", follows, what, role)

# %%
for kind, profiles in drawn.items():
    for of, one in profiles.items():
        more = f"{kind} lessons, profile {of}, {one.sets()} sets", kind == "coarse", of
        check_gate(one, DRAWN, more[0], of)
        batch, apart = (one.gain({"arm": arm}, {"arm": arm} | OTHER, by=BY) for arm in DRAWN)
        claims.measure_runs("ours-context-apart-helps", apart - batch, *more)
        claims.measure_runs("ours-apart-reader-half-a-point", apart, *more)
        cleaner = one.gain({"context": "apart"}, {}, by=BY, arm="context from the batch")
        claims.measure_runs("ours-answers-in-context-harm", cleaner, *more)
for name in wanted:
    where, least = list(gains_by_set(on_all, name).items())[-1]
    role = "test" if name == CHOSEN and on_judged is not None else "exploratory"
    what = f"{name}: least of {len(gained)} gains, on {where}"
    claims.measure("ours-pretrained-reader-does-no-harm", least, what, role)
claims.verdicts()

# %%
bm25 = run_interval(counted, "sources")
page.in_numbers(
    f"""{claims.apart("BM25 with the right document frequencies", bm25, "BM25 with others")} on
    average over {len(counted)} new sources, and higher on {(counted > 0).sum()} of them."""
)

# %% tags=["hide-cell"]
lead = list(runs["coarse"])[-1]
where = "On judged collections" if lead == "hours" else "On real docstrings"
pair = OWN, OWN | OTHER
on_real, on_made = (difference(runs["coarse"][lead], pair, where=of) for of in ("out", "in"))
page.answer(
    f"""{claims.apart(f"{where}, giving the encoder its own corpus", on_real, "giving another")};
    {claims.apart("on synthetic corpora it", on_made, "", "")}."""
)

# %% [markdown]
# ## What this teaches
#
# If a context brings nothing, either the encoder ignores it, or there is nothing to gain. These
# encoders use their context, also on corpora and words that they never saw. Yet on judged
# collections and on the new sources they score lower with the right corpus than with another one.
# The additional parameters cannot be the cause, because parameters alone could not tell the two
# contexts apart. Coarse lessons alone are not the cause: graded ones give a difference of the same
# sign. Nor does it seem to come from the query's own document in the training context: readers that
# never met it there lose about as much, and we saw no effect of leaving relevant documents out of
# the test context.
#
# The lessons themselves may be the cause: they teach a reader to give less weight to what many
# documents share, and in a forum or a field of research that may be the subject. BM25 gains from
# the right document frequencies on most of the sources, and the readers do not obtain that gain. On
# nine judged collections gains had seemed to follow word counts ({doc}`does_reading_help`); with
# three times as many sets the correlation is about zero, and its interval leaves room for either
# sign.
#
# Of the ready reader neither gain nor harm is certain: with a hundred queries per collection or
# fewer, a harm of 0.3 points can be neither shown nor ruled out. So `cde.Index` searches with plain
# MiniLM. If you have queries with judgements, `cde.compare` tells which is better on your corpus.
#
# ## What differs from the paper's setting
#
# The paper trains all weights of both stages on hundreds of millions of pairs, without lessons, and
# puts the context vectors into the sequence. Here six layers are frozen, and a reader of a few
# hundred thousand weights is trained for minutes; with other training text it could learn other
# things from a corpus. Collections and sources are cut to some hundred documents, texts to some
# dozens of tokens, and some sources share topics. Graded lessons first had two seeds at `hours`; a
# third was added after we had looked at the results. The ready reader is one training run.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("taught_to_read")
