# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Is a document's embedding nearer to its beginning?
#
# *The answer stands here once the chapter has run.*
#
# This page answers **Dwell Figs. 3 and 5, §4.3 and §4.4** {cite}`coelho2024dwell`. A document is cut into ten segments of
# equally many tokens, and each segment's embedding is compared with the whole document's. An embedding that holds all of its
# text alike is as near to the last segment as to the first. The paper finds a decline from first to last after contrastive
# pre-training, with decoder pooling and with average pooling, and none before it. It shows violins and prints no numbers.

# %% tags=["hide-input"]
from cde.page import claims_under_test

claims_under_test("substring_similarity")

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
profile: str = "laptop"
seed: int = 0  # the first seed
seeds: int | None = None  # trainings of each chain
documents: int | None = None  # for training
queries: int | None = None  # documents that are probed
parts: int | None = None  # segments of a document

# %% tags=["hide-input"]
from cde import page

laptop = {"seeds": 3, "documents": None, "queries": None, "parts": 10}
settings = page.settings(
    profile,
    {
        "smoke": {**laptop, "seeds": 2},
        "laptop": laptop,
        "fresh": {**laptop, "seeds": 1},
        "gpu": laptop,
        "paper": laptop,
    },
    seeds=seeds, documents=documents, queries=queries, parts=parts,
)  # fmt: skip
settings

# %% [markdown]
# ## The models
#
# The paper's subject is a T5 with rotary positions that goes through three stages. Ours is the same at a smaller size:
# `cde.encoder_decoder`, trained by `cde.dwell` on docstrings. It is probed after the first stage (*language model*), after contrastive
# pre-training on crops with either pooling (*crops*, *mean*), and after a first episode of fine-tuning (*tuned*). Beside them stands
# MiniLM, a sentence encoder that others trained on a billion pairs, with learned positions.
#
# Documents are docstrings of packages that no stage has seen, and as long as the training documents. Segments begin and end
# at whole words, so that each has exactly its tokens of the document.

# %%
import numpy as np
import pandas as pd

from cde.dwell import dwell_recipe
from cde.intervals import mean_interval
from cde.models import BiEncoder
from cde.models.encoder import load_tokenizer
from cde.probes import substring_similarity
from cde.progress import progress
from cde.records import recorded

using = dwell_recipe(profile, documents=settings.documents, queries=settings.queries)
LANGUAGE, CROPS, MEAN, TUNED, MINILM = (
    "language model",
    "crops",
    "mean",
    "tuned",
    "MiniLM",
)
TRAINED = (LANGUAGE, CROPS, MEAN, TUNED)
SHARES = (5, 25, 50, 75, 95)
first = seed


def probe_all():
    """Cosines of each model: their mean and spread over documents for each segment, and the decline."""
    texts, rows = using.passages.collection.documents, []
    asked = {using.passages.document_of(query) for query in using.passages.spans}
    ids = using.passages.collection.document_ids
    texts = [text for name, text in zip(ids, texts, strict=True) if name in asked]
    tokenizer = load_tokenizer("minilm")
    jobs = [
        (chain, number)
        for chain in TRAINED
        for number in range(first, first + settings.seeds)
    ]
    for chain, number in progress([(MINILM, first), *jobs], "probing", unit="models"):
        if chain == MINILM:
            model = BiEncoder.from_backbone("minilm", max_tokens=512)
        else:
            model = using.model(chain, number)
        longest = model.config.max_tokens - 2
        found = substring_similarity(model, texts, tokenizer, settings.parts, longest)
        decline = mean_interval(found.cosines[:, 0] - found.cosines[:, -1])
        rows += [
            {
                "model": chain,
                "seed": number,
                "segment": part + 1,
                "cosine": float(found.cosines[:, part].mean()),
                **{
                    f"q{share}": float(np.percentile(found.cosines[:, part], share))
                    for share in SHARES
                },
                "decline": decline.estimate,
                "low": decline.low,
                "high": decline.high,
                "documents": len(found.rows),
                "left_out": sum(found.left_out.values()),
            }
            for part in range(settings.parts)
        ]
    return pd.DataFrame(rows)


found = recorded(
    "substring_similarity-cosines",
    profile,
    probe_all,
    here=True,
    settings=using.kept(seed=seed, seeds=settings.seeds, parts=settings.parts),
    costly=True,
)
results = found.rows
print(found.note)

# %% [markdown]
# ## Similarity by segment
#
# Means over documents and seeds; bands hold the middle half of the documents. Levels differ between models for reasons that have
# nothing to do with position: what counts is the slope.

# %% tags=["hide-input"]
from cde import plots

MODELS = (MINILM, *TRAINED)
by_segment = results.groupby(["model", "segment"])[["cosine", "q25", "q75"]].mean()
with plots.figure(width=6.4, height=3.8) as (drawing, axis):
    for number, model in enumerate(MODELS):
        some = by_segment.loc[model]
        look = {"color": plots.COLORS[number % 6], "marker": plots.MARKERS[number % 6]}
        axis.plot(some.index, some["cosine"], label=model, **look)
        axis.fill_between(
            some.index, some["q25"], some["q75"], color=look["color"], alpha=0.12
        )
    axis.set_xlabel(f"segment of the document, of {settings.parts}")
    axis.set_ylabel("cosine with the whole document")
    axis.set_xticks(sorted(results["segment"].unique()))
    axis.legend(loc="best")
ends = {
    model: (
        by_segment.loc[model, "cosine"].iloc[0],
        by_segment.loc[model, "cosine"].iloc[-1],
    )
    for model in MODELS
}
plots.show(
    drawing,
    alt=(
        "Line chart of the cosine of a segment with its document, over segments, a line for each model. From first to last: "
        + "; ".join(
            f"{model} {begin:.2f} to {end:.2f}" for model, (begin, end) in ends.items()
        )
        + "."
    ),
    caption="Similarity of a document with each of its segments; bands are the middle half of the documents.",
    data=results[
        ["model", "seed", "segment", "cosine", *(f"q{share}" for share in SHARES)]
    ],
    answers="Dwell Figs. 3 and 5",
)

# %% [markdown]
# ## The decline
#
# First segment minus last, the mean over documents. Over seeds the interval is Student's; of a single model it is a bootstrap over
# documents, which says nothing about other trainings. The middle is the mean of segments 4 to 7: a bias towards the *start* shows
# against it too, and is told from a mere difference between the two ends.

# %% tags=["hide-input"]


def cosines(model, segment):
    """Mean cosine of each seed."""
    rows = results[(results["model"] == model) & (results["segment"] == segment)]
    return rows.set_index("seed")["cosine"]


def decline(model):
    """First segment minus last, of each seed."""
    return cosines(model, 1) - cosines(model, settings.parts)


def against_middle(model):
    """First segment minus the mean of the middle ones, of each seed."""
    middle = [
        part
        for part in range(1, settings.parts + 1)
        if 0.3 < part / settings.parts <= 0.7
    ]
    return cosines(model, 1) - sum(cosines(model, part) for part in middle) / len(
        middle
    )


def of_documents(model):
    """The decline of a single model with its bootstrap over documents."""
    row = results[results["model"] == model].iloc[0]
    return f"{row['decline']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"


plots.table(
    pd.DataFrame(
        {
            model: {
                "first minus last": of_documents(model)
                if len(decline(model)) == 1
                else page.mean_and_interval(decline(model)),
                "first minus middle": page.mean_and_interval(against_middle(model)),
                "models": len(decline(model)),
                "documents": int(
                    results.loc[results["model"] == model, "documents"].iloc[0]
                ),
                "left out": int(
                    results.loc[results["model"] == model, "left_out"].iloc[0]
                ),
            }
            for model in MODELS
        }
    ).T.rename_axis("model")
)

# %% [markdown]
# ## Verdict
#
# Tested on our encoder–decoder, over seeds. MiniLM counts as exploratory: it is no model of the paper.

# %% tags=["hide-input"]
from cde import claims
from cde.intervals import Interval

FALLS = "dwell-fig3-similarity-falls"
AVERAGE = "dwell-fig3-average-pooling"
BEFORE = "dwell-fig5-no-bias-before"
what = f"{settings.parts} segments, {int(results['documents'].iloc[0])} docstrings of held-out packages"
for name, chain in ((FALLS, CROPS), (AVERAGE, MEAN), (BEFORE, LANGUAGE)):
    claims.measure_runs(name, decline(chain), f"{chain}; {what}", settings.role)
row = results[results["model"] == MINILM].iloc[0]
claims.measure(
    FALLS,
    Interval(
        row["decline"],
        row["low"],
        row["high"],
        int(row["documents"]),
        "percentile bootstrap over documents",
    ),
    f"MiniLM; {what}",
    role="rehearsal" if settings.role == "rehearsal" else "exploratory",
)
claims.verdicts()

# %% tags=["hide-cell"]
ledger = claims.ledger()


def verdict(name):
    """In words."""
    return claims.decide(ledger[name], claims.measured).verdict


page.answer(
    f"""**After contrastive pre-training a document's embedding is nearer to its beginning: {verdict(FALLS)}. With average
    pooling too: {verdict(AVERAGE)}. Before it there is no bias: {verdict(BEFORE)}.** Cosine with the first segment minus cosine with the last, over
    {settings.seeds} seed(s): {page.mean_and_interval(decline(LANGUAGE))} after language modelling,
    {page.mean_and_interval(decline(CROPS))} after contrastive pre-training with decoder pooling, {page.mean_and_interval(decline(MEAN))} with
    average pooling, {page.mean_and_interval(decline(TUNED))} after an episode of fine-tuning. MiniLM, on the same documents:
    {of_documents(MINILM)} (over documents)."""
)

# %% [markdown]
# ## What differs from the paper's setting
#
# The paper's model is T5-base, continued on 8 billion tokens of web documents of up to 2,048 tokens. At `laptop` ours has three layers
# over MiniLM's word embeddings, learns from some thousands of docstrings for some hundreds of steps, and is probed on docstrings of
# a few hundred tokens. Docstrings are not written like news: a summary leads, but parameters, notes and examples follow in an order of
# their own, and a first segment of prose differs from a last one of code whatever the encoder. A decline of MiniLM or of ours can be
# the documents' as well as the model's; the chapter on context and position trains on shuffled documents to tell them apart.
#
# ## Run it again
#
# {rerun}
