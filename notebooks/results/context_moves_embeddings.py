# %% [markdown]
# # How far does a document move when its context changes?
#
# *The answer stands in the last cells, and here on the rendered page.*
#
# This page answers **CDE Fig. 15, §10.5** {cite}`morris2024contextual`. The paper embeds a few
# documents of TREC-COVID under several contexts and shows them on two principal axes, with a colour
# for each document. The points of one document differ, but stay closer to each other than to other
# documents. The paper gives no numbers. This page measures both distances, and asks what the
# picture cannot show: whether all documents move together.

# %%
from cde_book import charts, claims, page, plots
from cde_book.parameters import Count, Layers, Long, Profile, Rate, Seed, Several

page.claims_under_test("context_moves_embeddings")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0  # the first seed
seeds: Count | None = None  # training runs of each encoder
of_set: str | None = None  # the test set whose documents are embedded
documents: Count | None = None  # so many of them
draws: Count | None = None  # contexts drawn from each corpus
neighbours: Count | None = None  # looked at for each document
pictured: Count | None = None  # documents in the figure, at most six
data: str | None = None  # pairs to train on
pairs: Long | None = None
steps: Long | None = None
batch_size: Several | None = None
cluster_size: Count | None = None
context_size: Count | None = None
layers: Layers | None = None  # of the start's transformer, in either stage
learning_rate: Rate | None = None

# %%
from cde_studies import recipes

sizes = {"documents": 100, "draws": 2, "neighbours": 10, "pictured": 6}
settings = page.settings(
    globals(),
    recipes.PARAMETERS,
    laptop={"seeds": 3, "of_set": None, **sizes},
    smoke={"seeds": 2, "documents": 20, "neighbours": 5},
    fresh={"seeds": 1, "steps": 6},
    gpu={"documents": 1000},
    paper={"documents": 1000},
)
if not 2 <= settings.pictured <= 6:
    raise ValueError(f"pictured must be 2 to 6 documents; it is {settings.pictured}")
settings

# %% [markdown]
# ## One sample, many contexts
#
# The encoders are those of the chapter on Table 1, trained on clustered batches: attention `full`,
# which is the paper's, and `cached`. We take a sample of the documents of one set that training
# never saw. We embed it in contexts from its own corpus and from that of each other test set,
# `draws` times each, and with null tokens (placeholders in the empty places of the context). Pairs
# of contexts are of these kinds:
#
# - *own, drawn again*: two draws from the documents' own corpus, which shows how much the draw
#   alone moves a document;
# - *other, drawn again*: two draws from one other corpus;
# - *own and other*: the own corpus and another one;
# - *two others*: two corpora, neither of which is the documents' own;
# - *null*: null tokens and any real context;
# - *all real*: the first four together.

# %%
recipe = recipes.recipe_of(settings)
FULL, CACHED, NULL = "full", "cached", "null"
CONTEXTUAL = {"architecture": "contextual", "batches": "cluster"}
loaded = recipe.tests()
tests = {test.name: test.collection for test in loaded}
unseen = [test.name for test in loaded if test.where == "out"]
own = settings.of_set or ("networkx" if "networkx" in unseen else unseen[0])
if own not in unseen:
    raise ValueError(f"of_set must be one of {', '.join(unseen)}, out of domain; it is {own!r}")

# %%
import numpy as np

corpus, generator = tests[own].documents, np.random.default_rng(seed)
count, needed = min(settings.documents, len(corpus)), max(settings.neighbours, settings.pictured)
if count <= needed:
    raise ValueError(f"{count} documents are too few: more than {needed} are needed")
sample = [corpus[row] for row in generator.choice(len(corpus), count, replace=False)]
contexts = [(name, draw) for name in tests for draw in range(settings.draws)] + [(NULL, 0)]
print(f"{count} documents of {own} in {len(contexts)} contexts")

# %%
OWN_AGAIN, OTHER_AGAIN = "own, drawn again", "other, drawn again"
OWN_OTHER, TWO_OTHERS = "own and other", "two others"
WITH_NULL, ALL_REAL = "null", "all real"
KINDS = (OWN_AGAIN, OTHER_AGAIN, OWN_OTHER, TWO_OTHERS, ALL_REAL, WITH_NULL)


def kind_of(one, other):
    """Which kind of pair two contexts are."""
    names = {contexts[one][0], contexts[other][0]}
    if NULL in names:
        return WITH_NULL
    if len(names) == 1:
        return OWN_AGAIN if own in names else OTHER_AGAIN
    return OWN_OTHER if own in names else TWO_OTHERS


# %%
import pandas as pd

from cde_studies.results.movement import movement


def by_kind(embedded):
    """The distances of all pairs of contexts: a row for each kind of pair."""
    each = movement(embedded, settings.neighbours)
    each["kind"] = [
        kind_of(*pair) for pair in zip(each.pop("first"), each.pop("second"), strict=True)
    ]
    real = each[each["kind"] != WITH_NULL].assign(kind=ALL_REAL)
    grouped = pd.concat([each, real]).groupby("kind", sort=False)
    table = grouped.mean().assign(pairs=grouped.size(), what="distance")
    table["common"] /= table.pop("total")
    return table.reset_index()


# %%
def on_axes(embedded):
    """Places of some documents on the two first principal axes of all, in all contexts."""
    flat = embedded.reshape(-1, embedded.shape[-1])
    centred = flat - flat.mean(axis=0)
    _, lengths, axes = np.linalg.svd(centred, full_matrices=False)
    places = (centred @ axes[:2].T).reshape(len(contexts), count, 2)[:, : settings.pictured]
    explained = lengths**2 / (lengths**2).sum()
    rows = [{"what": "axes", "x": float(explained[0]), "y": float(explained[1])}]
    for (name, draw), of_context in zip(contexts, places.tolist(), strict=True):
        place = {"what": "point", "context": name, "draw": draw}
        for number, (x, y) in enumerate(of_context):
            rows.append({**place, "document": number, "x": x, "y": y})
    return pd.DataFrame(rows)


# %%
from cde.progress import progress


def embed(attention, run_seed):
    """The sample's vectors in every context, by the model of one training run."""
    model = recipe.train({**CONTEXTUAL, "attention": attention}, run_seed).model()
    vectors = []
    for name, draw in contexts:
        documents_of = None if name == NULL else tests[name].documents
        vectors.append(model.with_context(documents_of, seed=draw).encode_documents(sample))
    return np.stack(vectors).astype(np.float64)


def move_all():
    """Distances of every encoder and seed; the places of the first seed's documents."""
    jobs = [(attention, one) for attention in (FULL, CACHED) for one in settings.every_seed]
    tables = []
    for attention, run_seed in progress(jobs, "training and embedding", unit="runs"):
        embedded = embed(attention, run_seed)
        made = [by_kind(embedded), *([on_axes(embedded)] if run_seed == seed else [])]
        tables += [table.assign(attention=attention, seed=run_seed) for table in made]
    return pd.concat(tables, ignore_index=True)


# %%
names = ("seeds", "draws", "neighbours", "pictured")
key = settings.only(*names, of_set=own, documents=count)
results = page.experiment("context_moves_embeddings-distances", move_all, key, recipe)

# %% [markdown]
# ## How far documents move
#
# The table shows cosine distances, averaged over documents and pairs of contexts, as mean and
# standard deviation over the seeds. *Moved* is the distance of a document from itself in the other
# context; *between* is the distance of two documents in the same context; *ratio* is the first
# divided by the second. Because means can hide single documents, *finds itself* is stricter: it is
# the share of documents whose nearest point, among all documents in the other context, is the same
# document. A tie counts, because documents that are cut to the same tokens have the same vector.

# %%
distances = results[results["what"] == "distance"]
kinds = [kind for kind in KINDS if kind in set(distances["kind"])]
CELLS = [(attention, kind) for attention in (FULL, CACHED) for kind in kinds]


def measured_by(attention, kind, column):
    """A number of each seed; `ratio` is distance within a document by that between documents."""
    if column == "ratio":
        within, between = (measured_by(attention, kind, one) for one in ("moved", "between"))
        return within / between
    rows = distances[(distances["attention"] == attention) & (distances["kind"] == kind)]
    return rows.set_index("seed")[column].astype(float)


def line(attention, kind, columns):
    """A line of a table: title → a column of the numbers, and its digits."""
    numbers = {
        title: page.mean_and_spread(measured_by(attention, kind, column), digits)
        for title, (column, digits) in columns.items()
    }
    return {"attention": attention, "contexts": kind, **numbers}


# %%
columns = {"pairs": ("pairs", 0), "moved": ("moved", 4), "between": ("between", 3)}
columns |= {"ratio": ("ratio", 3), "finds itself": ("itself", 3)}
table = pd.DataFrame([line(*cell, columns) for cell in CELLS])
table["pairs"] = [int(measured_by(*cell, "pairs").iloc[0]) for cell in CELLS]
plots.table(table)

# %% [markdown]
# ## The picture
#
# Does a document stay near itself? The figure shows the first documents of the sample, which is in
# random order, in every context: one model, the first seed, attention `full`. The axes are the
# first two principal axes of all documents of the sample in all contexts. On the left, each
# document has a colour and a marker, as in the paper. On the right, the same points are coloured by
# context, and lines join the points of a document to its place in its own corpus' context.

# %%
of_picture = results[results["attention"] == FULL]
explained = of_picture[of_picture["what"] == "axes"].iloc[0]
points = of_picture.loc[of_picture["what"] == "point", ["document", "context", "draw", "x", "y"]]
points = points.astype({"document": int, "draw": int})


# %%
def on_plane(parts):
    """The places of each part's points."""
    return {label: (rows["x"], rows["y"]) for label, rows in parts.items()}


by_document = {f"document {number + 1}": rows for number, rows in points.groupby("document")}
is_own, is_null = points["context"] == own, points["context"] == NULL
groups = {"own corpus": is_own, "other corpora": ~(is_own | is_null), "null tokens": is_null}
with plots.figure(1, 2, width=7.6, height=3.9, sharex=True, sharey=True) as (drawing, axes):
    charts.points(axes[0], on_plane(by_document), markersize=4, alpha=0.8)
    thin = {"color": plots.MUTED, "linewidth": 0.5, "marker": "none", "zorder": 1}
    for rows in by_document.values():
        start = rows[(rows["context"] == own) & (rows["draw"] == 0)].iloc[0]
        for x, y in zip(rows["x"], rows["y"], strict=True):
            axes[1].plot([start["x"], x], [start["y"], y], **thin)
    of_groups = on_plane({label: points[chosen] for label, chosen in groups.items()})
    charts.points(axes[1], of_groups, markersize=4, alpha=0.8)
    for axis, title in zip(axes, ("by document", "by context"), strict=True):
        axis.set(title=title, xlabel=f"first axis ({explained['x']:.0%} of variance)")
        axis.legend(loc="best", fontsize=7.5)
    axes[0].set_ylabel(f"second axis ({explained['y']:.0%} of variance)")


# %% tags=["hide-input"]
plots.show(
    drawing,
    caption="Documents under different contexts, on the first two principal axes; thin lines join "
    "a document's points to its place in its own corpus' context.",
    data=points.round(4),
    answers="CDE Fig. 15",
)

# %% [markdown]
# ## Do all documents move together?
#
# If a context moved all documents (and queries) by the same vector, the distances among them would
# not change, and neither would the ranking. *Common* is the share of the squared movement that the
# mean movement of all documents explains. If documents moved independently, it would be one divided
# by the number of documents. Over all real contexts it is the share of the variance within
# documents that the mean of each context explains. *Neighbours kept* looks at the ranking itself:
# how many of a document's nearest other documents are the same in both contexts. (All exploratory.)

# %%
near = f"of {settings.neighbours} neighbours kept"
table = pd.DataFrame([line(*cell, {"common": ("common", 3), near: ("kept", 3)}) for cell in CELLS])
table.insert(3, "if independent", f"{1 / count:.3f}")
plots.table(table.assign(**{"by chance": f"{settings.neighbours / (count - 1):.3f}"}))

# %% [markdown]
# ## How far must documents move for a context to matter?
#
# Claims that credit a context have a gate: the encoder has to use its context. We set the bound of
# that gate from records of encoders that were tested in two contexts. *Moved* is how far a document
# moves between its own and another corpus' context, as a share of the distance between documents.
# *Changes by* is the mean absolute difference in NDCG@10 between the two contexts, over seeds and
# sets.

# %%
from cde_book.ledger import gates as known_gates
from cde_book.records import rows_of_record
from cde_studies.sweeps import Sweep

MOVERS = ("minilm_with_context-arms", "taught_to_read-graded", "taught_to_read-sets")


def movers(name):
    """How far a record's encoders move documents, and what that does to their scores."""
    record = rows_of_record(name, "hours")
    rows = record.rows if record else pd.DataFrame({"context": []})
    read = rows[rows["context"].isin(["own", "other"])]
    for (arm, where), of in read.groupby(["arm", "where"]) if len(read) else ():
        own, other = ({"arm": arm, "context": one, "where": where} for one in ("own", "other"))
        changed = Sweep(of).gain(own, other, by=["seed", "set"]).abs()
        yield {
            "encoders of": name,
            "arm": arm,
            "sets": "made to need it" if where == "in" else "judged collections",
            "moved": f"{of['moved'].min():.1%} to {of['moved'].max():.1%}",
            "changes by, points": f"{changed.mean():.2f}",
            "seeds × sets": len(changed),
            "least": of["moved"].min(),
        }


seen = pd.DataFrame([line for name in MOVERS for line in movers(name)])
plots.table(seen.sort_values("least").drop(columns="least")) if len(seen) else None

# %% tags=["hide-input"]
from IPython.display import Markdown

Markdown(
    f"""The gate asks for more than {known_gates()["reads-context"].above:.0%}. This bound separates
    the encoders that barely move documents from the others; none of ours lies near it."""
)

# %% [markdown]
# ## Verdict
#
# We measure how far a document moves as a share of the distance between documents; one that moves
# by less than a twentieth of it has almost the same embedding as before. That documents stay apart
# means something only if they move, so this is a gate. The test uses the paper's attention, `full`,
# over all pairs of real contexts. Exploratory are the null context (which is not a corpus), each
# kind of pair alone, and `cached`. Documents of one package are closer to each other than documents
# of many packages would be, which makes the second claim harder to pass. Intervals are Student's
# over seeds.

# %%
from cde_book import gates

gates.of_recipe("context_moves_embeddings", recipe)

# %%
MOVES, APART = "cde-fig15-context-moves", "cde-fig15-documents-stay-apart"
for attention, kind in sorted(CELLS, key=lambda cell: cell[1] != ALL_REAL):
    role = "test" if (attention, kind) == (FULL, ALL_REAL) else "exploratory"
    what = f"{attention}; {count} documents of {own}, contexts: {kind}"
    moved = measured_by(attention, kind, "moved") / measured_by(attention, kind, "between")
    claims.measure_runs(MOVES, moved, what, role)
    claims.measure_runs(APART, measured_by(attention, kind, "ratio"), what, role)
claims.verdicts()


# %% tags=["hide-cell"]
share = page.mean_and_interval(100 * measured_by(FULL, ALL_REAL, "ratio"), digits=1)
page.answer(
    f"""A document moves by {share} % of the distance between two documents when its context
    changes, and keeps {measured_by(FULL, ALL_REAL, "kept").mean():.0%} of its nearest
    neighbours."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper shows documents of TREC-COVID, but it does not say of which model or in which contexts.
# At `laptop` the model has two layers in each stage, trained for some dozens of steps, with a
# window of 32 documents; it embeds the documentation of one package, in contexts from seven. How
# far documents move is a property of the trained model: longer training may make it use the context
# more, or less. A principal axis shows the directions of most variance, and most variance is
# between documents. Therefore the picture alone says little about how far each document moves in
# the whole space. The null token is barely trained here, so the distance to it does not show what
# having no context means. The sample can include documents that are part of their own context.
#
# ## Run it again

# %% tags=["remove-input"]
page.provenance("context_moves_embeddings")
