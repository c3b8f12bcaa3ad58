# %% [markdown]
# # Must the context come from the corpus that is searched?
#
# *The answer stands here once the chapter has run.*
#
# This page answers **CDE Fig. 7, §7** {cite}`morris2024contextual`: one contextual encoder, tested on forums of CQADupStack
# with the context of each forum in turn. The paper marks the squares within one point of NDCG@10 of a test domain's best, finds
# its own context best as a rule, and notes exceptions. It prints no number and no test. Its caption and its text name the axes
# the other way round; here a row is what is searched, a column where the context is from.

# %% tags=["hide-input"]
from cde.book.page import claims_under_test

claims_under_test("context_source")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: str = "laptop"
seed: int = 0  # the first seed
seeds: int | None = None  # training runs
domains: list[str] | None = None  # of the recipe's test sets; by default all
documents: int | None = None  # of each domain's corpus, at most
queries: int | None = None  # and queries
forums: list[str] | None = None  # of $CDE_DATA/pairs, without "stackexchange-"
forum_documents: int | None = None
forum_queries: int | None = None
data: str | None = None  # pairs to train on
pairs: int | None = None
steps: int | None = None
batch_size: int | None = None
cluster_size: int | None = None
context_size: int | None = None
layers: int | None = None  # of the start's transformer, in either stage
learning_rate: float | None = None

# %% tags=["hide-input"]
from cde.book import page

laptop = {
    "seeds": 3, "domains": None, "documents": 150, "queries": 100,
    "forums": ["beer", "biology", "coffee", "cooking", "robotics"], "forum_documents": 200, "forum_queries": 100,
    "data": None, "pairs": None, "steps": None, "batch_size": None, "cluster_size": None, "context_size": None,
    "layers": None, "learning_rate": None,
}  # fmt: skip
settings = page.settings(
    profile,
    {
        "smoke": {
            **laptop, "seeds": 2, "documents": 20, "queries": 10, "forums": ["beer", "coffee"], "forum_documents": 20,
            "forum_queries": 10,
        },
        "laptop": laptop,
        "fresh": {**laptop, "seeds": 1, "steps": 12},
        "gpu": {**laptop, "documents": 5000, "queries": 300},
        "paper": {**laptop, "documents": 50_000, "queries": 1000},
    },
    seeds=seeds, domains=domains, documents=documents, queries=queries, forums=forums, forum_documents=forum_documents,
    forum_queries=forum_queries, data=data, pairs=pairs, steps=steps, batch_size=batch_size, cluster_size=cluster_size,
    context_size=context_size, layers=layers, learning_rate=learning_rate,
)  # fmt: skip
settings

# %% [markdown]
# ## Every domain in every context
#
# The models are those of the chapter on Table 1 with clustered batches and the paper's attention, one for each seed; nothing is
# trained anew. A domain is a package whose docstrings are searched. For each seed, context documents are drawn from the corpus
# of each package, with the run's seed, and all packages are searched with them. Two columns are added. *Null* has null tokens
# only. *Apart* is the own package's context without any document of the corpus that is searched: the usual draw puts some of the
# very documents that are searched into the context, and a gain from that would not be a gain from the domain. (A corpus that is
# searched whole leaves no documents for it; its place is then empty.)

# %%
from dataclasses import replace

import numpy as np
import pandas as pd

from cde import RetrievalSet, load_pairs
from cde.book.records import recorded
from cde.data import is_available
from cde.experiments.recipes import EvaluationSet, recipe_of
from cde.intervals import paired_test, run_interval
from cde.progress import progress
from cde.retrieval import rank, score_queries

using = recipe_of(settings)
ARM = {"architecture": "contextual", "attention": "full", "batches": "cluster"}
APART, NULL = "apart", "null"
first = seed
using.base


# %%
def squares(tests, most_documents, most_queries):
    """NDCG@10 of each seed, domain and context, and for all seeds together each square's test against the own context."""
    if len(tests) < 2:
        raise ValueError(
            f"two domains or more are needed; there are {[test.name for test in tests]}"
        )
    sets, left = {}, {}
    for test in tests:
        sets[test.name] = test.collection.shrink(most_documents, most_queries, 0)
        searched = set(sets[test.name].documents)
        left[test.name] = [
            text for text in test.collection.documents if text not in searched
        ]
    scores = {}

    def score(encoder, name, context):
        rankings = rank(encoder, sets[name])
        found = score_queries(rankings, sets[name])["ndcg@10"].to_numpy()
        scores.setdefault((name, context), []).append(found)

    every = range(first, first + settings.seeds)
    for run_seed in progress(every, "training and testing", unit="runs"):
        model = using.train(ARM, run_seed).model()
        contexts = {name: one.documents for name, one in sets.items()} | {NULL: None}
        for context, source in contexts.items():
            encoder = model.with_context(source, seed=run_seed)
            for name in sets:
                score(encoder, name, context)
        for name, texts in left.items():
            if len(texts) >= using.base.context_size:
                score(model.with_context(texts, seed=run_seed), name, APART)
    kinds = {test.name: test.where for test in tests}
    rows = []
    for (name, context), found in scores.items():
        # each query's mean over the seeds: the test generalises over queries, for these models
        against = paired_test(
            np.mean(found, axis=0), np.mean(scores[name, name], axis=0)
        )
        rows += [
            {
                "seed": run_seed,
                "test": name,
                "where": kinds[name],
                "context": context,
                "ndcg": float(one.mean()),
                "difference": against.difference.estimate,
                "low": against.difference.low,
                "high": against.difference.high,
                "p": against.p_value,
            }
            for run_seed, one in zip(every, found, strict=True)
        ]
    return pd.DataFrame(rows)


def packages():
    """The squares of the recipe's test sets."""
    tests = using.tests()
    known = [test.name for test in tests]
    unknown = sorted(set(settings.domains or ()) - set(known))
    if unknown:
        raise ValueError(
            f"domains must be among {', '.join(known)}; {', '.join(unknown)} is not"
        )
    tests = [test for test in tests if test.name in (settings.domains or known)]
    return squares(tests, settings.documents, settings.queries)


def kept(*names):
    """What a record depends on."""
    chosen = {name: getattr(settings, name) for name in ("seeds", *names)}
    return using.kept(seed=seed, **chosen)


found = recorded(
    "context_source-packages",
    profile,
    packages,
    can_run=True,
    settings=kept("domains", "documents", "queries"),
    costly=True,
)
results = found.rows
print(found.note)

# %% [markdown]
# ## The map
#
# Numbers are NDCG@10 times 100, means over the seeds; the darker a square, the nearer it is to the best of its row. A frame marks
# what comes within one point of the row's best package, as in the paper. That mark says nothing about chance: among some hundred
# queries a point is easily noise. A star marks squares that differ from the own context in a randomisation test over queries, at 5 %
# after Holm's correction over all squares with a foreign package. The table below the map counts both, and also what can be said
# positively: squares whose interval over queries, 95 % for each square, lies wholly above one point less than the own context.

# %% tags=["hide-input"]
from matplotlib.patches import Rectangle

from cde.book import plots


def names_of(rows):
    """The domains, in their order."""
    return list(dict.fromkeys(rows["test"]))


def points(rows):
    """Means over seeds: a row for each domain searched, a column for each context."""
    table = 100 * rows.pivot_table(index="test", columns="context", values="ndcg")
    columns = [*names_of(rows), APART, NULL]
    return table.reindex(names_of(rows), columns=columns)


def foreign(rows):
    """Squares with the context of another package, a row each: the test against the own context, corrected."""
    some = rows[
        rows["context"].isin(names_of(rows)) & (rows["context"] != rows["test"])
    ]
    some = some[some["seed"] == some["seed"].min()].set_index(["test", "context"])
    order = np.argsort(some["p"].to_numpy(), kind="stable")
    raised = some["p"].to_numpy()[order] * np.arange(len(some), 0, -1)
    corrected = np.empty(len(some))
    corrected[order] = np.maximum.accumulate(raised).clip(max=1)
    return some.assign(holm=corrected)


def within_a_point(rows):
    """Whether a square comes within a point of the best package's context."""
    table = points(rows)[names_of(rows)]
    return table.sub(table.max(axis=1), axis=0) >= -1


def heat_map(rows, caption, exhibit):
    """The map of one collection of domains."""
    names, table, near, tested = (
        names_of(rows),
        points(rows),
        within_a_point(rows),
        foreign(rows),
    )
    behind = table.sub(table[names].max(axis=1), axis=0)
    least = min(-1.0, float(np.nanmin(behind.to_numpy())))
    place_of = {name: column + 0.25 * (name in (APART, NULL)) for column, name in enumerate(table)}  # fmt: skip
    size = (min(7.6, 1.9 + 0.72 * len(table.columns)), 1.5 + 0.46 * len(names))
    with plots.figure(width=size[0], height=size[1]) as (drawing, axis):
        colors = plots.plt.get_cmap("Blues")
        for row, name in enumerate(names):
            for context, place in place_of.items():
                if np.isnan(table.loc[name, context]):
                    continue
                depth = np.clip(1 - behind.loc[name, context] / least, 0, 1)
                square = (place, row)
                axis.add_patch(
                    Rectangle(square, 0.96, 0.94, color=colors(0.08 + 0.72 * depth))
                )
                if context in names and near.loc[name, context]:
                    frame = (place + 0.04, row + 0.04)
                    axis.add_patch(
                        Rectangle(
                            frame, 0.88, 0.86, fill=False, edgecolor=plots.COLORS[1], linewidth=2
                        )
                    )  # fmt: skip
                star = (name, context) in tested.index and tested.loc[
                    (name, context), "holm"
                ] < 0.05
                # neither black nor white is exchanged on a dark page: the squares keep their colour too
                axis.text(
                    place + 0.48,
                    row + 0.47,
                    f"{table.loc[name, context]:.1f}" + "*" * bool(star),
                    ha="center",
                    va="center",
                    fontsize=9,
                    color="#ffffff" if depth > 0.85 else "#000000",
                    fontweight="bold" if context == name else "normal",
                )
        axis.set_xlim(0, max(place_of.values()) + 1)
        axis.set_ylim(len(names), 0)
        axis.grid(False)
        axis.set_xticks(
            [place + 0.48 for place in place_of.values()],
            list(place_of),
            rotation=40,
            ha="right",
        )
        axis.set_yticks([row + 0.47 for row in range(len(names))], names)
        axis.set_xlabel("context from")
        axis.set_ylabel("searched")
    best = table[names].idxmax(axis=1)
    return plots.show(
        drawing,
        alt=(
            f"Heat map of NDCG@10, {len(names)} domains searched by the domain of the context, with two further columns: own "
            f"domain apart from the corpus, and null tokens. The own context is the best of its row in "
            f"{int((best == best.index).sum())} of {len(names)} rows; of {len(tested)} squares with a foreign context "
            f"{int(near.to_numpy().sum() - np.diag(near).sum())} come within a point of the row's best. Squares span "
            f"{table[names].min().min():.1f} to {table[names].max().max():.1f}; the widest row spans "
            f"{np.ptp(table[names].to_numpy(), axis=1).max():.1f} points."
        ),
        caption=caption,
        data=table.round(2),
        answers=exhibit,
    )


heat_map(
    results,
    f"NDCG@10 times 100 by the source of the context, mean over {settings.seeds} seed(s). Framed: within a point of the row's "
    "best; bold: own context; *: differs from the own context after Holm's correction.",
    "CDE Fig. 7",
)


# %% tags=["hide-input"]
def counts(rows):
    """How many squares with a foreign context are what."""
    tested, near = foreign(rows), within_a_point(rows)
    found = tested["holm"] < 0.05
    return {
        "squares with a foreign context": len(tested),
        "within a point of the row's best": sum(near.loc[square] for square in tested.index),
        "worse than the own context, Holm": int((found & (tested["difference"] < 0)).sum()),
        "better than the own context, Holm": int((found & (tested["difference"] > 0)).sum()),
        "less than a point worse, by the interval": int((100 * tested["low"] > -1).sum()),
    }  # fmt: skip


counted = counts(results)
plots.table(pd.DataFrame({"squares": counted}))

# %% [markdown]
# ## What the own context gains
#
# For each domain, the score in its own context minus the mean over the other packages' contexts, minus its own context apart from the
# corpus, and minus null tokens, in points. Intervals are over seeds. If own and apart agree, the context needs to be of the domain
# and not of the corpus; if own and null agree, the model reads little from it.


# %% tags=["hide-input"]
def own_minus(rows, kind):
    """The own context's points minus those of a kind of context, by seed and domain."""
    own = rows[rows["context"] == rows["test"]]
    if kind == "others":
        other = rows[
            rows["context"].isin(names_of(rows)) & (rows["context"] != rows["test"])
        ]
    else:
        other = rows[rows["context"] == kind]
    means = [some.groupby(["seed", "test"])["ndcg"].mean() for some in (own, other)]
    return 100 * (means[0] - means[1]).dropna()


def gains(rows):
    """A table of them: each domain, and their mean."""
    kinds = {"others": "own minus others", APART: "own minus apart", NULL: "own minus null"}  # fmt: skip
    table = {}
    for kind, title in kinds.items():
        found = own_minus(rows, kind)
        table[title] = {
            name: page.mean_and_interval(
                found[found.index.get_level_values("test") == name]
            )
            for name in names_of(rows)
        } | {"mean": page.mean_and_interval(found.groupby("seed").mean())}
    trained = dict(zip(rows["test"], rows["where"], strict=True))
    marks = {
        name: "yes" if trained.get(name) == "in" else "no" for name in names_of(rows)
    }
    return (
        pd.DataFrame(table)
        .assign(**{"trained on": pd.Series(marks)})
        .fillna("")
        .rename_axis("searched")
    )


plots.table(gains(results))

# %% [markdown]
# ## Forums
#
# The paper's domains are forums. With `$CDE_DATA` the same models search forums of Stack Exchange by the title of a post, for
# its text, in samples; none was trained on where the data are docstrings. This is exploratory: domains lie much farther
# from the training data than packages do, and from each other.


# %%
def stack_exchange():
    """The squares of the forums."""
    tests = []
    for name in settings.forums:
        sample = load_pairs(f"pairs/stackexchange-{name}").sample(
            2 * settings.forum_documents, 0
        )
        tests.append(EvaluationSet(name, RetrievalSet.from_pairs(sample), "out"))
    return squares(tests, settings.forum_documents, settings.forum_queries)


unseen = not using.base.data.startswith("pairs/")
forum_found = recorded(
    "context_source-forums",
    profile,
    stack_exchange,
    can_run=unseen
    and bool(settings.forums)
    and is_available(*(f"pairs/stackexchange-{name}" for name in settings.forums)),
    settings=kept("forums", "forum_documents", "forum_queries"),
    costly=True,
)
if forum_found is not None:
    print(forum_found.note or "computed here")
elif not unseen:
    print("left out: the training data hold these forums")
else:
    print("not available: no $CDE_DATA and no record at this profile")

# %% tags=["hide-input"]
if forum_found is not None:
    display(
        heat_map(
            forum_found.rows,
            f"The same for forums of Stack Exchange, mean over {settings.seeds} seed(s); exploratory.",
            "CDE Fig. 7",
        ),
        plots.table(pd.DataFrame({"squares": counts(forum_found.rows)})),
        plots.table(gains(forum_found.rows)),
    )

# %% [markdown]
# ## Verdict
#
# Both claims are tested on the packages, one value a training run, with Student's interval over seeds. A seed changes the weights, the
# batches and the draw of the context; the interval says nothing about other packages, for which the exploratory line over domains
# stands. The second claim's test is lenient: it asks for a share above nought, which one square in every run nearly satisfies, and
# which a model that ignores its context satisfies with every square. So it means something only beside the first.

# %% tags=["hide-input"]
from cde.book import claims
from cde.provenance import account

OWN, CROSS = "cde-fig7-own-domain-best", "cde-fig7-crossover"


def crossover(rows):
    """For each seed, the share of squares with a foreign context within a point of the row's best."""
    shares = {}
    for run_seed, some in rows.groupby("seed"):
        near = within_a_point(some).to_numpy()
        shares[run_seed] = near[~np.eye(len(near), dtype=bool)].mean()
    return pd.Series(shares)


for rows, what, role in (
    (results, "packages", settings.role),
    (None if forum_found is None else forum_found.rows, "forums", "exploratory"),
):
    if rows is None:
        continue
    said = f"{len(names_of(rows))} {what}"
    gain = own_minus(rows, "others")
    claims.measure_runs(
        OWN, gain.groupby("seed").mean(), f"{said}, mean of each run", role
    )
    over = replace(
        run_interval(gain.groupby("test").mean()), method="Student's t over domains"
    )
    claims.measure(OWN, over, f"{said}, mean of each domain", role="exploratory")
    claims.measure_runs(CROSS, crossover(rows), said, role)
claims.verdicts()

# %% tags=["hide-cell"]
ledger = claims.ledger()


def verdict(name):
    """In words."""
    return claims.decide(ledger[name], account.measured).verdict


def mean_gain(rows, kind):
    """Points, with the interval over seeds."""
    return page.mean_and_interval(own_minus(rows, kind).groupby("seed").mean())


forums_say = (
    ""
    if forum_found is None
    else f""" On forums of Stack Exchange (exploratory) the own context is {mean_gain(forum_found.rows, "others")} points
    better than another's, and {mean_gain(forum_found.rows, NULL)} points better than none."""
)
page.answer(
    f"""**The own context is better than that of another domain: {verdict(OWN)}. For some domains another's does as well:
    {verdict(CROSS)}.** Over {len(names_of(results))} packages and {settings.seeds} seed(s), the context of the package that is
    searched brings {mean_gain(results, "others")} points of NDCG@10 over the mean of the other packages' contexts,
    {mean_gain(results, APART)} over documents of the same package that are not searched, and {mean_gain(results, NULL)} over null
    tokens. Of {counted["squares with a foreign context"]} squares with a foreign context,
    {counted["within a point of the row's best"]} come within a point of their row's best;
    {counted["worse than the own context, Holm"]} are worse than the own context and
    {counted["better than the own context, Holm"]} better, after correction for so many tests, and
    {counted["less than a point worse, by the interval"]} are less than a point worse as far as the interval over queries
    goes.{forums_say}"""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper tests a model trained on hundreds of millions of pairs, with contexts of up to 512 documents, on the full forums of
# CQADupStack, where duplicates of a question are to be found. At `laptop` a model of two layers a stage has seen some dozens
# of steps on docstrings, reads a context of a few dozen documents, and searches samples of a few hundred docstrings by their summary
# lines. Packages resemble each other more than forums do, so that foreign contexts should do less harm here. In some of the packages
# other docstrings were trained on (the column *trained on*). Corpora are small samples, so a draw of the context holds a
# larger part of what is searched; *apart* is the control for that. One draw of the context is made for each run and domain: what a
# single square owes to its draw and what to its domain is not told apart. The forums here are searched by title for the
# post's text, and there are fewer of them.
#
# ## Run it again
#
# {rerun}
