# %% [markdown]
# # How many context documents does the contextual encoder need?
#
# *The answer stands here once the chapter has run.*
#
# This page answers **CDE Fig. 16, §10.5** {cite}`morris2024contextual`. One trained model is tested with fewer context
# documents than its window holds, null tokens in the empty places. The paper plots the scores and gives no numbers: it is best
# with a full window, uses a partly filled one, and still works with none. It does not say how much the score depends on
# *which* documents are drawn, nor what more documents than in training do. This page measures both.

# %% tags=["hide-input"]
from cde.book.page import claims_under_test

claims_under_test("context_size")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: str = "laptop"
seed: int = 0  # the first seed
seeds: int | None = None  # training runs of each encoder
draws: int | None = None  # contexts drawn for each size and test set
shares: list[float] | None = None  # of the window; must hold 0.5 and 1
data: str | None = None  # pairs to train on
pairs: int | None = None
steps: int | None = None
batch_size: int | None = None
cluster_size: int | None = None
context_size: int | None = None  # the window: context documents in training
layers: int | None = None  # of the start's transformer, in either stage
learning_rate: float | None = None

# %% tags=["hide-input"]
from cde.book import page

laptop = {
    "seeds": 3, "draws": 2, "shares": [0.25, 0.5, 1.0, 2.0], "data": None, "pairs": None, "steps": None,
    "batch_size": None, "cluster_size": None, "context_size": None, "layers": None, "learning_rate": None,
}  # fmt: skip
settings = page.settings(
    profile,
    {
        "smoke": {**laptop, "seeds": 2},
        "laptop": laptop,
        "fresh": {**laptop, "seeds": 1, "steps": 12},
        "gpu": {**laptop, "draws": 5, "shares": [0.25, 0.5, 1.0, 2.0, 4.0]},
        "paper": {**laptop, "draws": 5, "shares": [0.25, 0.5, 1.0, 2.0, 4.0]},
    },
    seeds=seeds, draws=draws, shares=shares, data=data, pairs=pairs, steps=steps, batch_size=batch_size,
    cluster_size=cluster_size, context_size=context_size, layers=layers, learning_rate=learning_rate,
)  # fmt: skip
if not {0.5, 1.0} <= set(settings.shares):
    raise ValueError(f"shares must hold 0.5 and 1; they are {settings.shares}")
settings

# %% [markdown]
# ## Two encoders, many contexts
#
# The encoders are those of the chapter on Table 1, trained on clustered batches: attention `full`, which is the paper's, and
# `cached`. Each is tested on the corpora that training never saw. For each size, the context is drawn from the corpus that is
# searched, `draws` times; null tokens fill the window where the documents do not. Context tokens have no positions in this
# model, so that it can also read more of them than it was trained with.
#
# A short context can also be left short instead of being filled. In training the window was full and hardly a token of it null,
# so that both are new to the model: the sizes below a full window are tested both ways, with `full`.

# %%

import pandas as pd

from cde.book.records import recorded
from cde.experiments.recipes import recipe_of
from cde.progress import progress
from cde.retrieval import evaluate

using = recipe_of(settings)
FULL, CACHED = "full", "cached"
ARMS = {
    attention: {"architecture": "contextual", "attention": attention, "batches": "cluster"}
    for attention in (FULL, CACHED)
}  # fmt: skip
WINDOW = using.base.context_size
SIZES = {share: round(share * WINDOW) for share in sorted(settings.shares)}
HALF = SIZES[0.5]
if min(SIZES.values()) < 2:
    raise ValueError(
        f"shares of a window of {WINDOW} must give 2 documents or more each; they give {list(SIZES.values())}"
    )
NULL, SHORTER = "null", "shorter"
contexts = [(0, NULL, 0)] + [
    (size, fill, draw)
    for size in SIZES.values()
    for fill in ((NULL, SHORTER) if size < WINDOW else (NULL,))
    for draw in range(settings.draws)
]
print(f"a window of {WINDOW} documents; sizes {[0, *SIZES.values()]}")

# %%
first = seed


def score_all():
    """NDCG@10 of every encoder, seed and set in every context."""
    tests = [test for test in using.tests() if test.where == "out"]
    every = range(first, first + settings.seeds)
    jobs = [(attention, number) for attention in ARMS for number in every]
    rows = []
    for attention, number in progress(jobs, "training and testing", unit="runs"):
        model = using.train(ARMS[attention], number).model()
        for test in tests:
            for size, fill, draw in contexts:
                if fill == SHORTER and attention != FULL:
                    continue
                encoder = model.with_context(
                    test.collection.documents if size else None,
                    size=size or None,
                    seed=draw,
                    fill=fill,
                )
                rows.append(
                    {
                        "attention": attention,
                        "seed": number,
                        "set": test.name,
                        "size": size,
                        "fill": fill,
                        "draw": draw,
                        "taken": min(size, len(test.collection.documents)),
                        "ndcg": evaluate(encoder, test.collection)["ndcg@10"],
                    }
                )
    return pd.DataFrame(rows)


found = recorded(
    "context_size-scores",
    profile,
    score_all,
    can_run=True,
    settings=using.kept(
        seed=seed,
        seeds=settings.seeds,
        draws=settings.draws,
        shares=sorted(settings.shares),
    ),
    costly=True,
)
results = found.rows
print(found.note)

# %% [markdown]
# ## Score by size
#
# NDCG@10 times 100, the mean over sets and draws, then mean and standard deviation over the seeds. *Spread over draws* is the
# standard deviation over contexts of one size, with the same model: of the mean over sets, and of a single set. It is pooled
# over seeds (and sets).

# %% tags=["hide-input"]
import numpy as np

from cde.book import plots


def of(attention, size, fill=NULL):
    """The rows of one encoder, size and way to fill."""
    rows = results[(results["attention"] == attention) & (results["size"] == size)]
    return rows[rows["fill"] == fill]


def score(attention, size, fill=NULL):
    """NDCG@10 points of each seed: the mean over sets and draws."""
    return 100 * of(attention, size, fill).groupby("seed")["ndcg"].mean()


def spread(attention, size, fill=NULL, single=False):
    """Points between draws of a context: standard deviation, pooled over seeds (and over sets, if of a single one)."""
    rows = of(attention, size, fill)
    if not single:
        rows = rows.groupby(["seed", "draw"])["ndcg"].mean().reset_index()
    by = ["seed", "set"] if single else ["seed"]
    return 100 * float(np.sqrt(rows.groupby(by)["ndcg"].var().mean()))


def points(value):
    """A spread in words, where there is one."""
    return "–" if np.isnan(value) else f"{value:.2f}"


lines = [
    (FULL, 0, NULL),
    *((FULL, size, NULL) for size in SIZES.values()),
    *((FULL, size, SHORTER) for size in SIZES.values() if size < WINDOW),
    (CACHED, 0, NULL),
    *((CACHED, size, NULL) for size in SIZES.values()),
]


def rest_of(size, fill):
    """What stands in the window's empty places."""
    return ("null tokens" if fill == NULL else "left short") if size < WINDOW else ""


plots.table(
    pd.DataFrame(
        [
            {
                "attention": attention,
                "context documents": size,
                "the rest": rest_of(size, fill),
                "NDCG@10": page.mean_and_spread(score(attention, size, fill)),
                "spread over draws": points(spread(attention, size, fill)),
                "of a single set": points(spread(attention, size, fill, single=True)),
            }
            for attention, size, fill in lines
        ]
    )
)

# %% tags=["hide-input"]
places = {size: place for place, size in enumerate([0, *SIZES.values()])}
with plots.figure(1, 2, width=7.6, height=3.4, sharey=True) as (drawing, axes):
    for axis, attention in zip(axes, ARMS, strict=True):
        kinds = (
            (NULL, "empty places: null tokens"),
            (SHORTER, "context left short"),
        )
        for color, (fill, label) in enumerate(kinds):
            sizes = [s for a, s, f in lines if (a, f) == (attention, fill)]
            if not sizes:
                continue
            for size in sizes:
                each = of(attention, size, fill).groupby(["seed", "draw"])["ndcg"]
                values = 100 * each.mean()
                axis.plot(
                    [places[size] + 0.12 * color] * len(values),
                    values,
                    linestyle="none",
                    marker=plots.MARKERS[color],
                    color=plots.COLORS[color],
                    alpha=0.45,
                    markersize=3.5,
                )
            axis.plot(
                [places[size] + 0.12 * color for size in sizes],
                [score(attention, size, fill).mean() for size in sizes],
                marker=plots.MARKERS[color],
                color=plots.COLORS[color],
                label=label,
            )
        axis.axvline(places[WINDOW], color=plots.MUTED, linewidth=0.8, linestyle=":")
        axis.set_xticks(list(places.values()), [str(size) for size in places])
        axis.set_title(f"attention {attention}")
        axis.set_xlabel(f"context documents (window: {WINDOW})")
    axes[0].set_ylabel("NDCG@10 out of domain, times 100")
    axes[0].legend(loc="best")
means = {
    attention: {size: score(attention, size).mean() for size in places}
    for attention in ARMS
}
best = {attention: max(found, key=found.get) for attention, found in means.items()}
plots.show(
    drawing,
    alt=(
        f"Two line charts of NDCG@10 over the number of context documents, a small point for each seed and draw. With attention "
        f"full the mean is {means[FULL][0]:.1f} without context, {means[FULL][HALF]:.1f} with {HALF} documents, "
        f"{means[FULL][WINDOW]:.1f} with the full window of {WINDOW}, and highest at {best[FULL]}, "
        f"{means[FULL][best[FULL]]:.1f}. With attention cached it is {means[CACHED][0]:.1f} without context and "
        f"{means[CACHED][WINDOW]:.1f} with the full window."
    ),
    caption="Retrieval by number of context documents; small points are seeds and draws, the line is their mean, the "
    "dotted line the window of training.",
    data=results.groupby(["attention", "size", "fill", "seed", "draw"], sort=False)[
        "ndcg"
    ]
    .mean()
    .reset_index(),
    answers="CDE Fig. 16",
)

# %% [markdown]
# ## Size or luck of the draw?
#
# Differences to the full window, seed by seed, beside the spread over draws. A difference that is no larger than that spread
# could have come from another draw of the context. (Exploratory.)

# %% tags=["hide-input"]


plots.table(
    pd.DataFrame(
        [
            {
                "attention": attention,
                "context documents": size,
                "the rest": rest_of(size, fill),
                "full window minus this": page.mean_and_interval(
                    score(attention, WINDOW) - score(attention, size, fill)
                ),
                "spread over draws": points(spread(attention, size, fill)),
                "spread, full window": points(spread(attention, WINDOW)),
            }
            for attention, size, fill in lines
            if size != WINDOW
        ]
    )
)

# %% [markdown]
# ## Verdict
#
# Tested with the paper's attention, `full`, and null tokens in the empty places; `cached` is exploratory. *Smaller contexts* are
# all sizes below a full window, none included. Each size alone, sizes above the window, and contexts left short are
# exploratory. Intervals are Student's over seeds: each value is a mean over sets and draws.

# %% tags=["hide-input"]
from cde.book import claims
from cde.provenance import account

A = "cde-fig16-"
role = settings.role
n_sets = results["set"].nunique()
over = f"out of domain, {n_sets} sets, window of {WINDOW}"
smaller = [size for size in places if size < WINDOW]
for attention, counts in ((FULL, role), (CACHED, "exploratory")):
    whole, none = score(attention, WINDOW), score(attention, 0)
    below = sum(score(attention, size) for size in smaller) / len(smaller)
    what = f"{attention}; {over}"
    claims.measure_runs("cde-fig16-full-context-best", whole - below, what, counts)
    claims.measure_runs(
        "cde-fig16-partial-context", score(attention, HALF) - none, what, counts
    )
    claims.measure_runs("cde-fig16-no-context", none / whole, what, counts)
for size in places:
    if size != WINDOW:
        claims.measure_runs(
            A + "full-context-best",
            score(FULL, WINDOW) - score(FULL, size),
            f"{FULL}; {size} documents alone",
            "exploratory",
        )
claims.measure_runs(
    A + "partial-context",
    score(FULL, HALF, SHORTER) - score(FULL, 0),
    f"{FULL}; context left short",
    "exploratory",
)
claims.verdicts()

# %% tags=["hide-cell"]
ledger = claims.ledger()


def verdict(name):
    """In words."""
    return claims.decide(ledger[name], account.measured).verdict


drawn_means = [means[FULL][size] for size in SIZES.values()]
luck = float(np.sqrt(np.mean([spread(FULL, size) ** 2 for size in SIZES.values()])))
drawing_matters = (
    f"Another draw of the context moves the mean over the sets by {luck:.2f} points (standard deviation, all sizes pooled); "
    f"the means of the sizes, from {min(SIZES.values())} to {max(SIZES.values())} documents, lie within "
    f"{max(drawn_means) - min(drawn_means):.2f} points."
    if not np.isnan(luck)
    else "With one draw of each context, the spread over draws is not known."
)
largest = max(SIZES.values())
beyond = (
    f" With {largest} documents, more than in training, it is {means[FULL][largest]:.1f}."
    if largest > WINDOW
    else ""
)
page.answer(
    f"""**A full window is best: {verdict(A + "full-context-best")}. A partly filled one already helps:
    {verdict(A + "partial-context")}. The model still works well with none: {verdict(A + "no-context")}.** Out of domain and over
    {settings.seeds} seed(s), NDCG@10 times 100 is {means[FULL][0]:.1f} without context, {means[FULL][HALF]:.1f} with {HALF}
    documents and {means[FULL][WINDOW]:.1f} with the full window of {WINDOW} (`cached`: {means[CACHED][0]:.1f},
    {means[CACHED][HALF]:.1f} and {means[CACHED][WINDOW]:.1f}).{beyond} The full window minus none is
    {page.mean_and_interval(score(FULL, WINDOW) - score(FULL, 0))} points. {drawing_matters}"""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper tests its large model, with a window of 512 documents, on MTEB. At `laptop` the window is 32 and the model has two
# layers in each stage, trained for some dozens of steps; it is tested on samples of the documentation of packages that were
# held out. With a probability of 0.005 a context token is null in training, here as in the paper. In so few steps the null
# token has hardly been trained, so that a window full of null tokens is a harsher test than the paper's. Contexts are drawn at
# random from the corpus, relevant documents among them; the paper does not say how many draws its points stand for. Where a
# corpus has fewer documents than were asked for, all are taken, and draws do not differ (column `taken` of the record). A
# context of a single document is not tested: every embedding would lean towards it.
#
# ## Run it again
#
# {rerun}
