# %% [markdown]
# # Can a benchmark search only what a surrogate finds?
#
# *The answer stands here once the chapter has run.*
#
# This page answers **CDE §10.9 and Table 6** {cite}`morris2024contextual`. The paper's first experiments run on a few collections of
# BEIR, and spare themselves the search of the whole corpus: GTR finds 1,024 documents, and a model ranks these alone. (It says that they are found for each document; we take it to
# mean each query.) The paper lists the collections and does not test the shortcut. A shortcut changes scores in two ways. Relevant documents that the
# surrogate does not find are lost to every model; documents that would mislead a model are gone as well. Neither matters
# for a comparison as long as it strikes all models alike. (Table 6 is a list of data, eight collections where the text says nine.)

# %% tags=["hide-input"]
from cde.book.page import claims_under_test

claims_under_test("small_benchmark")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: str = "laptop"
seed: int = 0  # the first seed
seeds: int | None = None  # training runs of each arm; a query's score is their mean
depths: list[int] | None = None  # documents that the surrogate finds for a query
documents: int | None = None  # of each corpus, at most; relevant ones all stay
queries: int | None = None  # of each set, at most
max_tokens: int | None = None  # of a text that an encoder reads; BM25 reads texts whole
collections: list[str] | None = None  # of $CDE_DATA/beir
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
    "seeds": 1, "depths": [16, 64, 256, 1024], "documents": 6000, "queries": 200, "max_tokens": 64,
    "collections": [
        "scifact", "cosqa", "climate-fever-evidence", "msmarco-dl19-sub", "dbpedia-entity-sub", "csfcube", "cacm", "quora-sub",
    ],
    "data": None, "pairs": None, "steps": None, "batch_size": None, "cluster_size": None, "context_size": None, "layers": None,
    "learning_rate": None,
}  # fmt: skip
settings = page.settings(
    profile,
    {
        "smoke": {**laptop, "depths": [5, 20], "documents": 60, "queries": 10, "max_tokens": 32, "collections": ["cacm"]},
        "laptop": laptop,
        "fresh": {**laptop, "steps": 12, "documents": 2000, "queries": 100, "collections": []},
        "gpu": {**laptop, "seeds": 3, "documents": 20_000, "queries": 500, "max_tokens": 256},
        "paper": {**laptop, "seeds": 3, "documents": 10**7, "queries": 10**5, "max_tokens": 512},
    },
    seeds=seeds, depths=depths, documents=documents, queries=queries, max_tokens=max_tokens, collections=collections, data=data,
    pairs=pairs, steps=steps, batch_size=batch_size, cluster_size=cluster_size, context_size=context_size, layers=layers,
    learning_rate=learning_rate,
)  # fmt: skip
settings

# %% [markdown]
# ## Models, sets and depths
#
# MiniLM stands in for GTR as the surrogate. It is compared with BM25, with the start of all training (at `laptop` MiniLM's own lowest
# layers, not trained further), and with the six arms of the chapter on Table 1, the contextual ones in the context of the
# corpus that is searched. The sets are the packages that training never saw, whole up to a limit. Only sets larger than a
# depth count at that depth: on a smaller one the shortcut changes nothing by construction.
#
# Each model ranks the whole corpus, and then each query's best candidates at every depth, with the same scores.

# %%
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd

from cde import Surrogate, load_retrieval
from cde.book.records import recorded
from cde.data import is_available
from cde.experiments.recipes import recipe_of
from cde.intervals import Interval, paired_test, run_interval
from cde.lexical import BM25
from cde.models import BiEncoder
from cde.progress import progress
from cde.retrieval import rank, rerank, score_queries

using = recipe_of(settings)
PAPERS, FULL = 1024, 0  # the paper's depth; how full search is marked in the rows
DEPTHS = sorted(set(settings.depths))
if not DEPTHS or DEPTHS[0] < 1:
    raise ValueError(
        f"depths must be one or more numbers of 1 or more; they are {DEPTHS}"
    )
TESTED = PAPERS if PAPERS in DEPTHS else DEPTHS[-1]
LEXICAL, SURROGATE = "BM25", "MiniLM, the surrogate"
START = f"{using.base.start}, {using.base.layers or 'all'} layers, as training starts"
PART = "packages" if using.base.data == "pydocs" else "test sets"
BATCHES = {"shuffled": {"batches": "random"}, "clustered": {"batches": "cluster"}}
BI = {f"bi-encoder; {kind}": {"architecture": "bi-encoder", **one} for kind, one in BATCHES.items()}  # fmt: skip
CONTEXTUAL = {
    f"contextual, {attention}; {kind}": {
        "architecture": "contextual",
        "attention": attention,
        **one,
    }
    for attention in ("full", "cached")
    for kind, one in BATCHES.items()
}
arms = {**BI, **CONTEXTUAL}
first = seed
using.base


# %%
class Once:
    """An encoder whose vectors of one set are computed once for all depths."""

    def __init__(self, encoder, collection):
        self.queries = encoder.encode_queries(collection.queries)
        vectors = encoder.encode_documents(collection.documents)
        self.vectors = dict(zip(collection.documents, vectors, strict=True))

    def encode_queries(self, texts):
        return self.queries

    def encode_documents(self, texts):
        return np.stack([self.vectors[text] for text in texts])


def models():
    """Name → a function from a set to an encoder or ranker; one for each training run."""
    surrogate = Surrogate(max_tokens=settings.max_tokens)
    yield LEXICAL, lambda one: BM25()
    yield SURROGATE, lambda one: Once(surrogate, one)
    if (using.base.start, using.base.layers) not in (("minilm", None), ("minilm", 6)):
        start = BiEncoder.from_backbone(
            using.base.start, using.base.layers, max_tokens=settings.max_tokens
        )
        yield START, lambda one: Once(start, one)
    for arm in arms:
        for run_seed in range(first, first + settings.seeds):
            model = using.train(arms[arm], run_seed).model()
            model.config.max_tokens = settings.max_tokens
            if arm in BI:
                yield arm, lambda one, model=model: Once(model, one)
            else:
                yield (
                    arm,
                    lambda one, model=model, run_seed=run_seed: Once(
                        model.with_context(one.documents, seed=run_seed), one
                    ),
                )


def ndcg(rankings, one):
    """NDCG@10 of each query."""
    return score_queries(rankings, one)["ndcg@10"].to_numpy()


def mean_change(changes):
    """The mean, over pairs of models, of how far their difference moves: `(…, models)` to `(…)`."""
    places = list(combinations(range(changes.shape[-1]), 2))
    return np.mean([abs(changes[..., a] - changes[..., b]) for a, b in places], axis=0)


def compare(name, one, scores, recalls):
    """The rows of one set: at each depth, each pair of models."""
    names, rows, known = list(scores[FULL]), [], {}
    for depth, found in scores.items():
        changes = np.stack([found[m] - scores[FULL][m] for m in names], axis=1)
        drawn = np.random.default_rng(0).integers(0, len(changes), (2000, len(changes)))
        resampled = mean_change(
            np.stack([changes[draw].mean(axis=0) for draw in drawn])
        )
        low, high = np.percentile(resampled, [2.5, 97.5])
        for a, b in combinations(names, 2):
            difference = (found[a] - found[b]).tobytes()
            if (
                a,
                b,
                difference,
            ) not in known:  # most do not change from depth to depth
                known[a, b, difference] = paired_test(found[a], found[b]).p_value
            rows.append(
                {
                    "set": name, "documents": len(one.documents), "queries": len(one.queries), "depth": depth,
                    "recall": recalls[depth], "low": low, "high": high, "first": a, "second": b,
                    "first_score": found[a].mean(), "second_score": found[b].mean(), "p": known[a, b, difference],
                }
            )  # fmt: skip
    return rows


def search_all(sets):
    """Every pair of models on every set, searched whole and at each depth."""
    sets = {
        name: one.shrink(settings.documents, settings.queries, 0)
        for name, one in sets.items()
    }
    sets = {name: one for name, one in sets.items() if len(one.documents) > DEPTHS[0]}
    if not any(len(one.documents) > TESTED for one in sets.values()):
        raise ValueError(
            f"no set has more than {TESTED:,} documents: the shortcut would change nothing"
        )
    surrogate = Surrogate(max_tokens=settings.max_tokens)
    candidates = {name: rank(surrogate, one, max(DEPTHS)) for name, one in sets.items()}
    scores = {name: {depth: {} for depth in (FULL, *DEPTHS)} for name in sets}
    total = 3 + len(arms) * settings.seeds
    for model, bind in progress(models(), "searching", total=total, unit="models"):
        for name, one in sets.items():
            ranker = bind(one)
            found = scores[name]
            found[FULL].setdefault(model, []).append(ndcg(rank(ranker, one), one))
            for depth in DEPTHS:
                rankings = rerank(ranker, one, candidates[name], depth)
                found[depth].setdefault(model, []).append(ndcg(rankings, one))
    rows = []
    for name, one in sets.items():
        means = {
            depth: {model: np.mean(runs, axis=0) for model, runs in found.items()}
            for depth, found in scores[name].items()
        }
        recalled = score_queries(
            candidates[name], one, [f"recall@{depth}" for depth in DEPTHS]
        )
        recalls = {FULL: 1.0} | {
            depth: recalled[f"recall@{depth}"].mean() for depth in DEPTHS
        }
        rows += compare(name, one, means, recalls)
    return pd.DataFrame(rows)


def packages():
    """The recipe's test sets out of domain, not shrunk to the recipe's size."""
    tests = [test for test in using.tests() if test.where == "out"]
    return search_all({t.name: load_retrieval(t.collection.name) for t in tests})


def kept(*names):
    """What a record depends on."""
    chosen = {name: getattr(settings, name) for name in ("seeds", "documents", "queries", "max_tokens", *names)}  # fmt: skip
    return using.kept(seed=seed, depths=DEPTHS, **chosen)


found = recorded(
    "small_benchmark-packages",
    profile,
    packages,
    can_run=True,
    settings=kept(),
    costly=True,
)
results = found.rows
print(found.note)

# %% [markdown]
# ## What becomes of scores and of differences
#
# Left, what the shortcut does to a model's score: NDCG@10 times 100 by the shortcut minus that of full search, the mean over sets.
# From a depth of ten on the surrogate's own score stays, as its best are among its candidates (unless a query excludes some). Right,
# what it does to comparisons: how far the difference of two models moves, either way, the mean over pairs and sets.

# %% tags=["hide-input"]
from cde.book import plots

GROUPS = {
    "BM25": [LEXICAL],
    "the surrogate": [SURROGATE],
    "the start of training": [START],
    "bi-encoders, trained": list(BI),
    "contextual, trained": list(CONTEXTUAL),
}
PAIRS = {
    "all pairs": lambda a, b: True,
    "two trained models": lambda a, b: a in arms and b in arms,
    "BM25 and another": lambda a, b: LEXICAL in (a, b),
}


def at(rows, depth):
    """The rows of a depth, by set and pair, of sets that it cuts."""
    some = rows[(rows["depth"] == depth) & (rows["documents"] > depth)]
    return some.set_index(["set", "first", "second"])


def scores(rows, depth):
    """Points of NDCG@10: a row for each set, a column for each model."""
    some = at(rows, depth).reset_index()
    sides = [
        some[["set", side, f"{side}_score"]].set_axis(["set", "model", "score"], axis=1)
        for side in ("first", "second")
    ]
    found = pd.concat(sides).drop_duplicates(["set", "model"])
    order = list(dict.fromkeys([*some["first"], *some["second"]]))
    table = 100 * found.pivot_table(index="set", columns="model", values="score")
    return table.reindex(index=list(dict.fromkeys(some["set"])), columns=order)


def change_of_scores(rows, depth):
    """By the shortcut minus by full search, in points."""
    found = scores(rows, depth)
    return found - scores(rows, FULL).loc[found.index]


def change_of_differences(rows, depth):
    """For each set and pair, how far the difference moves, in points, either way."""
    found, full = at(rows, depth), at(rows, FULL)
    difference = found["first_score"] - found["second_score"]
    whole = full["first_score"] - full["second_score"]
    return (100 * (difference - whole.loc[difference.index])).abs()


def of_pairs(changes, kind):
    """Those of a kind of pairs."""
    return changes[[PAIRS[kind](a, b) for _, a, b in changes.index]]


def by_set(changes):
    """The mean over pairs, for each set."""
    return changes.groupby("set", sort=False).mean()


def cut_by(rows):
    """The depths that cut some set."""
    return [depth for depth in DEPTHS if len(at(rows, depth))]


def by_depth(rows):
    """What is drawn: a row for each depth."""
    table = {}
    for depth in cut_by(rows):
        change, moved = (
            change_of_scores(rows, depth).mean(),
            change_of_differences(rows, depth),
        )
        groups = {
            name: change[[m for m in group if m in change]].mean()
            for name, group in GROUPS.items()
            if any(m in change for m in group)
        }
        kinds = {kind: by_set(of_pairs(moved, kind)).mean() for kind in PAIRS}
        table[depth] = {"sets": len(by_set(moved)), **groups, **kinds}
    return pd.DataFrame(table).T.rename_axis("depth").astype({"sets": int})


def drawn(rows, caption):
    """Both panels."""
    table = by_depth(rows)
    with plots.figure(columns=2, width=7.6, height=3.9) as (drawing, axes):
        for axis, names in zip(axes, (GROUPS, PAIRS), strict=True):
            for number, name in enumerate(n for n in names if n in table):
                axis.plot(
                    table.index,
                    table[name],
                    marker=plots.MARKERS[number],
                    color=plots.COLORS[number],
                    label=name,
                )
            axis.set_xscale("log", base=2)
            axis.set_xticks(table.index, [f"{depth:,}" for depth in table.index])
            axis.minorticks_off()
            axis.set_xlabel("documents that the surrogate finds")
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        axes[0].set_ylabel("change of the score, points")
        axes[1].set_ylabel("change of a difference, points")
        axes[1].axhline(bound, color=plots.MUTED, linewidth=1, linestyle="--")
        axes[1].set_ylim(bottom=0)
    ends = [
        f"{depth:,} documents: {table.loc[depth, 'all pairs']:.2f} points for all pairs, {table.loc[depth, 'two trained models']:.2f} "
        f"for two trained models, and BM25's score changes by {table.loc[depth, 'BM25']:.2f}"
        for depth in dict.fromkeys((table.index[0], table.index[-1]))
    ]
    return plots.show(
        drawing,
        alt=(
            "Two line charts over the number of documents that the surrogate finds, on a logarithmic axis: the change of the "
            "score of each kind of model, and the mean absolute change of the difference of two models. "
            + "; ".join(ends)
            + "."
        ),
        caption=caption,
        data=table.reset_index(),
        answers="CDE Table 6 and §10.9",
    )


from cde.book import claims
from cde.provenance import account

SHORTCUT = "cde-s109-reranking-shortcut"
ledger = claims.ledger()
bound = ledger[SHORTCUT].expect["below"]
drawn(
    results,
    f"What the shortcut changes on {results['set'].nunique()} sets out of domain, by its depth. Dashed: the claim's bound.",
)


# %% [markdown]
# Sets one by one. *Recall* is the share of the relevant documents that the surrogate finds, the mean over queries: no model can
# find the others. The change of differences stands with its interval over queries; chance among queries
# makes a mean of absolute values larger, never smaller, so that the interval may lie above its estimate.


# %% tags=["hide-input"]
def set_table(rows):
    """Each set: its size, what the surrogate finds, and how far differences move at the tested depth."""
    table = {}
    for name in dict.fromkeys(rows["set"]):
        some = rows[rows["set"] == name]
        entry = {
            "documents": f"{some['documents'].iloc[0]:,}",
            "queries": some["queries"].iloc[0],
        }
        for depth in DEPTHS:
            recall = some.loc[some["depth"] == depth, "recall"].iloc[0]
            entry[f"recall at {depth:,}"] = f"{recall:.3f}"
        here = some[(some["depth"] == TESTED) & (some["documents"] > TESTED)]
        entry[f"change of differences at {TESTED:,}"] = "no cut: none"
        if len(here):
            mean = by_set(change_of_differences(some, TESTED)).iloc[0]
            low, high = 100 * here["low"].iloc[0], 100 * here["high"].iloc[0]
            entry[f"change of differences at {TESTED:,}"] = (
                f"{mean:.3f} [{low:.3f}, {high:.3f}]"
            )
        table[name] = entry
    return pd.DataFrame(table).T.rename_axis("set")


def model_table(rows):
    """Each model: NDCG@10 points of full search, and the change at each depth, means over sets."""
    table = {"full search": scores(rows, FULL).mean().map("{:.1f}".format)}
    for depth in cut_by(rows):
        change = change_of_scores(rows, depth).mean()
        table[f"{depth:,}"] = change.map("{:+.2f}".format)
    return pd.DataFrame(table).reindex(scores(rows, FULL).columns).rename_axis("model")


display(plots.table(set_table(results)), plots.table(model_table(results)))

# %% [markdown]
# ## Does a conclusion change?
#
# For each pair and set, a randomisation test over queries by full search and by the shortcut, each at 5 % after Holm's correction
# over the pairs of a set. (Over all sets together the smallest p of 9,999 swaps, 0.0002, could not come below 5 %.) A significant difference *vanishes* if the shortcut does not find it, *appears* if only the shortcut finds it,
# and *flips* if both are significant with opposite signs. *Slope* is that of the differences by the shortcut on those by full search,
# through nought: below one, the shortcut makes models look more alike than they are.


# %% tags=["hide-input"]
def signs(some):
    """Of one set: the sign of each difference that is significant after Holm's correction, and nought for the others."""
    order = np.argsort(some["p"].to_numpy(), kind="stable")
    raised = some["p"].to_numpy()[order] * np.arange(len(some), 0, -1)
    corrected = np.empty(len(some))
    corrected[order] = np.maximum.accumulate(raised).clip(max=1)
    sign = np.sign(some["first_score"] - some["second_score"])
    return sign.where(corrected < 0.05, 0)


def significant(some):
    """The same for all sets, each corrected by itself."""
    return pd.concat([signs(one) for _, one in some.groupby("set", sort=False)])


def conclusions(rows, depth):
    """How many pairs are what."""
    short = at(rows, depth)
    whole = at(rows, FULL).loc[short.index]
    before, after = (
        some["first_score"] - some["second_score"] for some in (whole, short)
    )
    slope = (before * after).sum() / (before**2).sum()
    full, short = significant(whole), significant(short)
    moved = change_of_differences(rows, depth)
    return {
        "sets": len(by_set(moved)),
        "pairs": len(full),
        "significant by full search": int((full != 0).sum()),
        "vanish": int(((full != 0) & (short == 0)).sum()),
        "appear": int(((full == 0) & (short != 0)).sum()),
        "flip": int((full * short < 0).sum()),
        "slope": f"{slope:.3f}",
        "mean change": f"{by_set(moved).mean():.3f}",
        "largest change": f"{moved.max():.2f}",
    }


def conclusion_table(rows):
    """For each depth."""
    table = {f"{depth:,}": conclusions(rows, depth) for depth in cut_by(rows)}
    return pd.DataFrame(table).T.rename_axis("depth")


plots.table(conclusion_table(results))


# %% [markdown]
# ## Collections
#
# In packages each query has one relevant document, its own docstring without the summary. With `$CDE_DATA` the same models search
# collections with queries of other kinds, some with dozens of relevant documents a query; several are subsets or shrunk, so that no
# score compares with a leaderboard's. The numbers are recorded for readers without the data.


# %%
def from_data():
    """The collections that the packages' part does not have."""
    names = [name for name in settings.collections if name not in set(results["set"])]
    return search_all({name: load_retrieval(f"beir/{name}") for name in names})


further = set(settings.collections) - set(results["set"])
real = recorded(
    "small_benchmark-collections",
    profile,
    from_data,
    can_run=bool(further) and is_available(*(f"beir/{name}" for name in further)),
    settings=kept("collections"),
    costly=True,
)
print(
    "none: no collections asked for, or no $CDE_DATA and no record at this profile"
    if real is None
    else real.note or "computed here"
)

# %% tags=["hide-input"]
if real is not None:
    display(
        drawn(
            real.rows,
            f"The same on {real.rows['set'].nunique()} collections of $CDE_DATA.",
        ),
        plots.table(set_table(real.rows)),
        plots.table(model_table(real.rows)),
        plots.table(conclusion_table(real.rows)),
    )

# %% [markdown]
# ## Verdict
#
# One value a set: how far the difference of two models moves, the mean over all pairs, with Student's interval over sets. Packages and
# collections are two measurements, and both test the claim, at the paper's depth alone. Other depths and kinds of pairs are exploratory.
# A single set gives no interval and is exploratory too.


# %% tags=["hide-input"]
def measure(rows, what, depth, kind, role):
    """Enter the mean absolute change of differences."""
    values = by_set(of_pairs(change_of_differences(rows, depth), kind))
    what = f"{what}, the best {depth:,}, {kind}"
    if len(values) < 2:
        one = float(values.iloc[0])
        over = Interval(one, one, one, 1, "one set: no interval")
        role = "exploratory" if role == "test" else role
    else:
        over = replace(run_interval(values), method="Student's t over sets")
    claims.measure(SHORTCUT, over, what, role=role)
    return over


# with a reader's own depths nothing tests the claim, unless the paper's is among them
role = settings.role if PAPERS in DEPTHS or profile == "smoke" else "exploratory"
parts = {PART: results} | ({} if real is None else {"collections": real.rows})
moved = {}
for what, rows in parts.items():
    moved[what] = measure(rows, what, TESTED, "all pairs", role)
    for kind in list(PAIRS)[1:]:
        measure(rows, what, TESTED, kind, "exploratory")
    for depth in cut_by(rows):
        if depth != TESTED:
            measure(rows, what, depth, "all pairs", "exploratory")
claims.verdicts()


# %% tags=["hide-cell"]
def verdict(name):
    """In words."""
    return claims.decide(ledger[name], account.measured).verdict


def said(what):
    """A part's findings."""
    rows = parts[what]
    cut = at(rows, TESTED)
    counted = conclusions(rows, TESTED)
    change = change_of_scores(rows, TESTED).mean()
    sizes = cut["documents"]
    trained = change[list(arms)].mean()
    descend = (
        ", which descend from the surrogate," if using.base.start == "minilm" else ""
    )
    return f"""On {counted["sets"]} {what} of {sizes.min():,} to {sizes.max():,} documents, the difference between two of
    {len(change)} models moves by {moved[what]} points of NDCG@10, at most by {counted["largest change"]}. The surrogate's best
    {TESTED:,} hold {100 * cut["recall"].groupby("set").first().mean():.1f} % of the relevant documents; BM25's score
    changes by {change[LEXICAL]:+.2f} points, that of the trained models{descend} by
    {trained:+.2f}. Of {counted["pairs"]} comparisons {counted["significant by full search"]} are significant by full search;
    by the shortcut {counted["vanish"]} vanish, {counted["appear"]} appear and {counted["flip"]} flip."""


page.answer(
    f"""**Ranking a surrogate's best {TESTED:,} documents can stand in for a search of the whole: {verdict(SHORTCUT)}.**
    {" ".join(said(what) for what in parts)}"""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper's surrogate is GTR, its models have six layers, and its collections are BEIR's, up to MS MARCO's 8.8 million
# documents: there 1,024 are a far smaller part, and smaller depths on this page are nearer to that case than its depth of 1,024.
# Corpora here have some thousand documents, and 1,024 are a large part of each. In packages each query has a single relevant document.
# At the profiles that start from MiniLM all encoders start from the surrogate's own lowest layers, so that they may agree with it
# more than the paper's models did with GTR; BM25 is the model that owes it nothing. Models of a few dozen steps are also farther
# from the surrogate in quality than the paper's were from theirs. Encoders read the beginning of a text (`max_tokens`). Means at
# two depths need not be of the same sets: a set counts at the depths that cut it.
#
# ## Run it again
#
# {rerun}
