# %% [markdown]
# # How far does a document move when its context changes?
#
# *The answer stands here once the chapter has run.*
#
# This page answers **CDE Fig. 15, §10.5** {cite}`morris2024contextual`. The paper embeds a few documents of TREC-COVID under
# several contexts and shows them on two principal axes, a colour for each document: the points of one document differ, and stay
# closer to each other than to other documents. It gives no numbers. This page measures both distances, and asks what the
# picture cannot show: whether all documents move together.

# %% tags=["hide-input"]
from cde.book.page import claims_under_test

claims_under_test("context_moves_embeddings")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: str = "laptop"
seed: int = 0  # the first seed
seeds: int | None = None  # training runs of each encoder
of_set: str | None = None  # the test set whose documents are embedded
documents: int | None = None  # so many of them
draws: int | None = None  # contexts drawn from each corpus
neighbours: int | None = None  # looked at for each document
pictured: int | None = None  # documents in the figure, at most six
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
    "seeds": 3, "of_set": None, "documents": 100, "draws": 2, "neighbours": 10, "pictured": 6, "data": None, "pairs": None,
    "steps": None, "batch_size": None, "cluster_size": None, "context_size": None, "layers": None, "learning_rate": None,
}  # fmt: skip
settings = page.settings(
    profile,
    {
        "smoke": {**laptop, "seeds": 2, "documents": 20, "neighbours": 5},
        "laptop": laptop,
        "fresh": {**laptop, "seeds": 1, "steps": 12},
        "gpu": {**laptop, "documents": 1000},
        "paper": {**laptop, "documents": 1000},
    },
    seeds=seeds, of_set=of_set, documents=documents, draws=draws, neighbours=neighbours, pictured=pictured, data=data,
    pairs=pairs, steps=steps, batch_size=batch_size, cluster_size=cluster_size, context_size=context_size, layers=layers,
    learning_rate=learning_rate,
)  # fmt: skip
if not 2 <= settings.pictured <= 6:
    raise ValueError(f"pictured must be 2 to 6 documents; it is {settings.pictured}")
settings

# %% [markdown]
# ## One sample, many contexts
#
# The encoders are those of the chapter on Table 1, trained on clustered batches: attention `full`, which is the paper's, and
# `cached`. A sample of the documents of one set that training never saw is embedded in contexts drawn from its own corpus and
# from that of each other test set, `draws` times each, and with null tokens. Pairs of contexts are of these kinds:
#
# - *own, drawn again*: two draws from the documents' own corpus, which is how much the draw alone moves;
# - *other, drawn again*: two draws from one other corpus;
# - *own and other*: the own corpus and another one;
# - *two others*: two corpora, neither of which is the own one;
# - *null*: null tokens and any real context;
# - *all real*: the first four together.

# %%
import numpy as np
import pandas as pd

from cde.experiments.recipes import recipe_of

using = recipe_of(settings)
FULL, CACHED = "full", "cached"
ARMS = {
    attention: {"architecture": "contextual", "attention": attention, "batches": "cluster"}
    for attention in (FULL, CACHED)
}  # fmt: skip
loaded = using.tests()
tests = {test.name: test.collection for test in loaded}
unseen = [test.name for test in loaded if test.where == "out"]
own = settings.of_set or ("networkx" if "networkx" in unseen else unseen[0])
if own not in unseen:
    raise ValueError(
        f"of_set must be a test set out of domain, one of {', '.join(unseen)}; it is {own!r}"
    )
count = min(settings.documents, len(tests[own].documents))
if count <= max(settings.neighbours, settings.pictured):
    raise ValueError(
        f"{count} documents are too few for {settings.neighbours} neighbours and {settings.pictured} pictured ones"
    )
generator = np.random.default_rng(seed)
rows = generator.choice(len(tests[own].documents), count, replace=False)
sample = [tests[own].documents[row] for row in rows]
NULL = "null"
contexts = [(name, draw) for name in tests for draw in range(settings.draws)] + [
    (NULL, 0)
]
print(f"{count} documents of {own} in {len(contexts)} contexts")

# %%
OWN_AGAIN, OTHER_AGAIN = "own, drawn again", "other, drawn again"
OWN_OTHER, TWO_OTHERS = "own and other", "two others"
WITH_NULL, ALL_REAL = "null", "all real"
KINDS = (OWN_AGAIN, OTHER_AGAIN, OWN_OTHER, TWO_OTHERS, ALL_REAL, WITH_NULL)
TIE = 1e-6  # of cosines: documents that are cut to the same tokens have one vector


def kind_of(one, other):
    """Which kind of pair two contexts are."""
    names = {one[0], other[0]}
    if NULL in names:
        return WITH_NULL
    if len(names) == 1:
        return OWN_AGAIN if own in names else OTHER_AGAIN
    return OWN_OTHER if own in names else TWO_OTHERS


def nearest(vectors):
    """The nearest other documents of each, in one context: a matrix of 0 and 1."""
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -np.inf)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, : settings.neighbours]
    marks = np.zeros(cosine.shape, dtype=bool)
    np.put_along_axis(marks, order, True, axis=1)
    return marks


def compare(embedded):
    """A row for each kind of pair of contexts, of unit vectors `(contexts, documents, dim)`."""
    apart = ~np.eye(count, dtype=bool)
    between = [(1 - vectors @ vectors.T)[apart].mean() for vectors in embedded]
    near = [nearest(vectors) for vectors in embedded]
    each = []
    for i in range(len(contexts)):
        for j in range(i):
            cosine = embedded[i] @ embedded[j].T
            step = embedded[i] - embedded[j]
            itself = np.diag(cosine) + TIE
            hits = [itself >= cosine.max(axis=axis) for axis in (0, 1)]
            each.append(
                {
                    "kind": kind_of(contexts[i], contexts[j]),
                    "moved": float(np.mean(1 - np.diag(cosine))),
                    "between": (between[i] + between[j]) / 2,
                    "itself": float(np.mean(hits)),
                    "kept": (near[i] & near[j]).sum() / (count * settings.neighbours),
                    "common": count * float((step.mean(axis=0) ** 2).sum()),
                    "total": float((step**2).sum()),
                }
            )
    each = pd.DataFrame(each)
    real = each[each["kind"] != WITH_NULL].assign(kind=ALL_REAL)
    grouped = pd.concat([each, real]).groupby("kind", sort=False)
    found = grouped.mean().assign(pairs=grouped.size())
    found["common"] = found["common"] / found["total"]
    return found.drop(columns="total").reset_index().assign(what="distance")


def picture(embedded):
    """Places of some documents on the two first principal axes of all documents in all contexts."""
    flat = embedded.reshape(-1, embedded.shape[-1])
    centred = flat - flat.mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    places = (centred @ axes[:2].T).reshape(len(contexts), count, 2)
    explained = sizes**2 / (sizes**2).sum()
    points = [
        {
            "what": "point",
            "document": document,
            "context": name,
            "draw": draw,
            "x": float(places[number, document, 0]),
            "y": float(places[number, document, 1]),
        }
        for number, (name, draw) in enumerate(contexts)
        for document in range(settings.pictured)
    ]
    axes_row = {"what": "axes", "x": float(explained[0]), "y": float(explained[1])}
    return pd.DataFrame([axes_row, *points])


# %%

from cde.book.records import recorded
from cde.progress import progress

first = seed


def move_all():
    """Distances of every encoder and seed; the places of the first seed's documents for the picture."""
    every = range(first, first + settings.seeds)
    jobs = [(attention, number) for attention in ARMS for number in every]
    tables = []
    for attention, number in progress(jobs, "training and embedding", unit="runs"):
        model = using.train(ARMS[attention], number).model()
        embedded = np.stack(
            [
                model.with_context(
                    None if name == NULL else tests[name].documents, seed=draw
                ).encode_documents(sample)
                for name, draw in contexts
            ]
        ).astype(np.float64)
        made = [compare(embedded)]
        if number == first:
            made.append(picture(embedded))
        tables += [table.assign(attention=attention, seed=number) for table in made]
    return pd.concat(tables, ignore_index=True)


found = recorded(
    "context_moves_embeddings-distances",
    profile,
    move_all,
    can_run=True,
    settings=using.kept(
        seed=seed,
        seeds=settings.seeds,
        of_set=own,
        documents=count,
        draws=settings.draws,
        neighbours=settings.neighbours,
        pictured=settings.pictured,
    ),
    costly=True,
)
results = found.rows
print(found.note)

# %% [markdown]
# ## How far documents move
#
# Cosine distances, means over documents and pairs of contexts, then mean and standard deviation over the seeds. *Moved* is the
# distance of a document from itself in the other context; *between* is that of two documents in the same context; *ratio* is the
# first by the second. Means can hide single documents, so *finds itself* is stricter: the share of documents whose nearest
# point, among all documents in the other context, is the same document. A tie counts: documents that are cut to the same tokens
# have one vector.

# %% tags=["hide-input"]
from cde.book import plots

distances = results[results["what"] == "distance"]
kinds = [kind for kind in KINDS if kind in set(distances["kind"])]


def measured_by(attention, kind, column):
    """A number of each seed."""
    rows = distances[
        (distances["attention"] == attention) & (distances["kind"] == kind)
    ]
    return rows.set_index("seed")[column].astype(float)


def ratio(attention, kind):
    """Distance within a document by distance between documents, of each seed."""
    return measured_by(attention, kind, "moved") / measured_by(
        attention, kind, "between"
    )


plots.table(
    pd.DataFrame(
        [
            {
                "attention": attention,
                "contexts": kind,
                "pairs": int(measured_by(attention, kind, "pairs").iloc[0]),
                "moved": page.mean_and_spread(measured_by(attention, kind, "moved"), 4),
                "between": page.mean_and_spread(
                    measured_by(attention, kind, "between"), 3
                ),
                "ratio": page.mean_and_spread(ratio(attention, kind), 3),
                "finds itself": page.mean_and_spread(
                    measured_by(attention, kind, "itself"), 3
                ),
            }
            for attention in ARMS
            for kind in kinds
        ]
    )
)

# %% [markdown]
# ## The picture
#
# The first documents of the sample, which is in random order, in every context: one model, the first seed, attention `full`. The
# axes are the first two principal axes of all documents of the sample in all contexts. Left, a colour and a marker for each
# document, as in the paper; right, the same points coloured by context, those of one document joined to its place in the own
# context.

# %% tags=["hide-input"]
of_picture = results[results["attention"] == FULL]
points = of_picture[of_picture["what"] == "point"][
    ["document", "context", "draw", "x", "y"]
].astype({"document": int, "draw": int})
explained = of_picture[of_picture["what"] == "axes"].iloc[0]
GROUPS = (
    ("own corpus", points["context"] == own),
    ("other corpora", ~points["context"].isin((own, NULL))),
    ("null tokens", points["context"] == NULL),
)
with plots.figure(1, 2, width=7.6, height=3.9, sharex=True, sharey=True) as (
    drawing,
    axes,
):
    for place, (document, rows) in enumerate(points.groupby("document")):
        axes[0].plot(
            rows["x"],
            rows["y"],
            linestyle="none",
            marker=plots.MARKERS[place],
            color=plots.COLORS[place],
            markersize=4,
            alpha=0.8,
            label=f"{document + 1}",
        )
        start = rows[(rows["context"] == own) & (rows["draw"] == 0)].iloc[0]
        for row in rows.itertuples():
            axes[1].plot(
                [start["x"], row.x],
                [start["y"], row.y],
                color=plots.MUTED,
                linewidth=0.5,
                marker="none",
                zorder=1,
            )
    for place, (label, chosen) in enumerate(GROUPS):
        axes[1].plot(
            points.loc[chosen, "x"],
            points.loc[chosen, "y"],
            linestyle="none",
            marker=plots.MARKERS[place],
            color=plots.COLORS[place],
            markersize=4,
            alpha=0.8,
            label=label,
        )
    axes[0].set_title("by document")
    axes[1].set_title("by context")
    for axis in axes:
        axis.set_xlabel(f"first axis ({explained['x']:.0%} of variance)")
        axis.legend(loc="best", fontsize=7.5)
    axes[0].set_ylabel(f"second axis ({explained['y']:.0%} of variance)")


def flat_ratio():
    """Distance in the plane within a document by that between documents in the same context, of the points drawn."""
    place = points.pivot_table(
        index=["context", "draw"], columns="document", values=["x", "y"]
    )
    both = np.stack([place["x"].to_numpy(), place["y"].to_numpy()], axis=-1)
    real = both[place.index.get_level_values("context") != NULL]

    def mean_distance(values):
        gaps = np.linalg.norm(values[:, :, None] - values[:, None], axis=-1)
        n = values.shape[1]
        return gaps.sum() / (len(values) * n * (n - 1))

    return mean_distance(real.transpose(1, 0, 2)) / mean_distance(real)


plots.show(
    drawing,
    alt=(
        f"Two scatter plots of the same points: {settings.pictured} documents of {own} in {len(contexts)} contexts, on two axes "
        f"that explain {explained['x'] + explained['y']:.0%} of the variance, coloured by document and by context. In the plane, "
        f"and without the null context, the mean distance within a document is {flat_ratio():.2f} of that between documents."
    ),
    caption="Documents under different contexts, on the first two principal axes; thin lines join a document's points to its "
    "place in its own corpus' context.",
    data=points.round(4),
    answers="CDE Fig. 15",
)

# %% [markdown]
# ## Do all documents move together?
#
# If a context moved all documents (and queries) by the same vector, distances among them would stay, and so would the ranking.
# *Common* is the share of the squared movement that the mean movement of all documents explains. If documents moved
# independently, it would be one by the number of documents. Over all real contexts it is the share of the variance within
# documents that the mean of each context explains. *Neighbours kept* looks at ranking itself: of the nearest other documents of
# each document, how many are the same in both contexts. (All exploratory.)

# %% tags=["hide-input"]
plots.table(
    pd.DataFrame(
        [
            {
                "attention": attention,
                "contexts": kind,
                "common": page.mean_and_spread(
                    measured_by(attention, kind, "common"), 3
                ),
                "if independent": f"{1 / count:.3f}",
                f"of {settings.neighbours} neighbours kept": page.mean_and_spread(
                    measured_by(attention, kind, "kept"), 3
                ),
                "by chance": f"{settings.neighbours / (count - 1):.3f}",
            }
            for attention in ARMS
            for kind in kinds
        ]
    )
)

# %% [markdown]
# ## Verdict
#
# Tested with the paper's attention, `full`, over all pairs of real contexts; the null context, which is no corpus, the kinds of
# pairs alone, and `cached` are exploratory. Documents of one package are closer to each other than documents of many would
# be, which makes the second claim harder. Intervals are Student's over seeds.

# %% tags=["hide-input"]
from cde.book import claims
from cde.provenance import account

A = "cde-fig15-"
MOVES, APART = "cde-fig15-context-moves", "cde-fig15-documents-stay-apart"
role = settings.role
for attention in ARMS:
    for kind in sorted(kinds, key=lambda kind: kind != ALL_REAL):
        counts = role if (attention, kind) == (FULL, ALL_REAL) else "exploratory"
        what = f"{attention}; {count} documents of {own}, contexts: {kind}"
        claims.measure_runs(MOVES, measured_by(attention, kind, "moved"), what, counts)
        claims.measure_runs(APART, ratio(attention, kind), what, counts)
claims.verdicts()

# %% tags=["hide-cell"]
ledger = claims.ledger()


def verdict(name):
    """In words."""
    return claims.decide(ledger[name], account.measured).verdict


def mean_of(kind, column, attention=FULL):
    """The mean over the seeds; nothing, where no such pair was drawn."""
    return (
        measured_by(attention, kind, column).mean() if kind in kinds else float("nan")
    )


again = (
    f" Another draw from the own corpus moves it by {mean_of(OWN_AGAIN, 'moved'):.4f}, another corpus by "
    f"{mean_of(OWN_OTHER, 'moved'):.4f}, null tokens by {mean_of(WITH_NULL, 'moved'):.4f}."
    if {OWN_AGAIN, OWN_OTHER} <= set(kinds)
    else ""
)
page.answer(
    f"""**The same text gets another embedding when its context changes: {verdict(MOVES)}. It stays closer to itself than to other
    documents: {verdict(APART)}.** Over {settings.seeds} seed(s), a document moves by a cosine distance of
    {page.mean_and_interval(measured_by(FULL, ALL_REAL, "moved"))} between two real contexts; two documents of {own} in one context are
    {mean_of(ALL_REAL, "between"):.3f} apart. The ratio is {page.mean_and_interval(ratio(FULL, ALL_REAL))} (`cached`:
    {page.mean_and_interval(ratio(CACHED, ALL_REAL))}).{again} A document's nearest point in the other context is itself for
    {mean_of(ALL_REAL, "itself"):.1%}. One shift of all documents explains {mean_of(ALL_REAL, "common"):.0%} of the movement
    ({1 / count:.0%} would be expected if documents moved independently), and of {settings.neighbours} nearest documents
    {mean_of(ALL_REAL, "kept"):.0%} stay the same."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper shows its large model and documents of TREC-COVID; it does not say which contexts it draws. At `laptop` the model has
# two layers in each stage, trained for some dozens of steps, with a window of 32 documents; it embeds documentation of one
# package, in contexts from seven. How far documents move is a property of the trained model: longer training may make it use
# the context more, or less. A principal axis shows the directions of most variance, which is mostly that between documents, so
# that the picture alone says little about how far each moves in the whole space. The null token is hardly trained here, and the
# distance to it should not be read as what no context means. The sample can hold documents that stand in their own context.
#
# ## Run it again
#
# {rerun}
