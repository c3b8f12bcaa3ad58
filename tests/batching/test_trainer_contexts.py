"""In the trainer of sentence-transformers a contextual encoder has the gradients of `cde.train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from tiny_encoders import CORPUS, TEXTS, contextual, load
from torch import Tensor

import cde
from cde.models import ContextualEncoder
from cde.training import BatchTexts, backward, contrastive_loss

PREFIXES = {"query_prefix": "query: ", "document_prefix": "text: "}
ROWS = [{"query": query, "document": text} for query, text in zip(TEXTS, CORPUS, strict=False)]
LOSSES: dict[str, Any] = {
    "plain": lambda model: MultipleNegativesRankingLoss(model, scale=20.0),
    "cached": lambda model: CachedMultipleNegativesRankingLoss(model, 20.0, mini_batch_size=2),
}


def new_model(attention: str = "full", **settings: Any) -> ContextualEncoder:
    return contextual(attention=attention, **{"sequence_dropout": 0.0, **PREFIXES, **settings})


def saved(encoder: Any, folder: Path) -> SentenceTransformer:
    encoder.save_pretrained(folder)
    return SentenceTransformer(str(folder), device="cpu")


def gradients_there(
    model: SentenceTransformer, loss: str, batch: dict[str, Any]
) -> dict[str, Tensor]:
    columns = [
        {key.removeprefix(name): value for key, value in batch.items() if key.startswith(name)}
        for name in ("query_", "document_")
    ]
    model.train()
    LOSSES[loss](model)(columns, None).backward()
    return {
        name.removeprefix("0.model.encoder."): parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def gradients_here(model: ContextualEncoder, context: list[str]) -> dict[str, Tensor]:
    def ids(texts: list[str], prefix: str) -> list[Any]:
        return [np.array(model.tokenizer(prefix + text)["input_ids"], np.int32) for text in texts]

    texts = ids(TEXTS, "query: ") + ids([row["document"] for row in ROWS], "text: ")
    size = len(TEXTS)
    backward(
        model.train(),
        BatchTexts(texts, ids(context, "text: ")),
        lambda rows: contrastive_loss(rows[:size], rows[size:], temperature=1 / 20),
        chunk_tokens=4096,
        cache=False,
    )
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


def assert_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        # a parameter of the reader stands for 32 times itself, and so does its gradient's rounding
        pace = 32 if name.startswith("second_stage.reader.") and gradient.ndim < 2 else 1
        assert float((gradient - theirs[name]).abs().max()) < 1e-5 * pace, name


@pytest.mark.parametrize("attention", ["full", "cached", "gated"])
@pytest.mark.parametrize("loss", LOSSES)
def test_both_stages_have_the_gradient_that_cde_gives_them(
    attention: str, loss: str, tmp_path: Path
) -> None:
    encoder = new_model(attention)
    model = saved(encoder, tmp_path)
    collate = cde.contextual_batches(model, size=3)
    theirs = gradients_there(model, loss, collate(ROWS))
    context = collate.drawn([row["document"] for row in ROWS])
    assert len(context) == 3
    assert_equal(gradients_here(encoder, context), theirs)
    first = [name for name in theirs if name.startswith("first_stage.")]
    assert sum(float(theirs[name].abs().max()) > 1e-4 for name in first) > 10
    if attention == "full":  # the context matters: another one gives another gradient
        encoder.zero_grad()
        other = gradients_here(encoder, CORPUS[-3:])
        assert max(float((other[name] - theirs[name]).abs().max()) for name in other) > 1e-3


@pytest.mark.parametrize("loss", LOSSES)
def test_in_the_context_of_one_corpus_the_second_stage_is_trained(
    loss: str, tmp_path: Path
) -> None:
    encoder = new_model()
    encoder.with_context(CORPUS[:4]).save_pretrained(tmp_path, first_stage=True)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    batch = model.preprocess([row["query"] for row in ROWS], prompt="query: ")
    documents = model.preprocess([row["document"] for row in ROWS], prompt="text: ")
    both = {f"query_{key}": value for key, value in batch.items()}
    both |= {f"document_{key}": value for key, value in documents.items()}
    theirs = gradients_there(model, loss, both)
    encoder.first_stage.requires_grad_(False)
    assert_equal(gradients_here(encoder, CORPUS[:4]), theirs)
    assert all(name.startswith("second_stage.") for name in theirs)


def test_prompts_stand_before_columns_and_context(tmp_path: Path) -> None:
    model = saved(new_model(), tmp_path)

    def ids(prompt: str, column: str) -> list[list[int]]:
        return [model.tokenizer(prompt + row[column])["input_ids"] for row in ROWS]

    def read(tokens: Tensor) -> list[list[int]]:
        return [[token for token in row if token] for row in tokens.tolist()]

    named = [{"dataset_name": "a", **row} for row in ROWS]  # as the trainer gives those of several
    batch = cde.contextual_batches(model, size=2)(named)
    assert read(batch["query_input_ids"]) == ids("query: ", "query")
    assert read(batch["document_input_ids"]) == ids("text: ", "document")
    context, mask = batch["query_context_texts"]
    assert len(read(context)) == 2
    assert all(row in ids("text: ", "document") for row in read(context))
    assert (mask == (context != 0)).all()
    assert batch["document_context_texts"][0] is context
    batch = cde.contextual_batches(model, size=2, tokens=4)(ROWS)
    assert batch["document_context_texts"][0].shape == (2, 4)


def test_a_context_is_of_its_batch_and_depends_on_nothing_else(tmp_path: Path) -> None:
    model = saved(new_model(), tmp_path)
    collate = cde.contextual_batches(model, size=3)
    first, second = collate.drawn(CORPUS[:5]), collate.drawn(CORPUS[2:])
    assert set(first) <= set(CORPUS[:5])
    assert set(second) <= set(CORPUS[2:])
    assert (
        collate.drawn(CORPUS[:5])
        == cde.contextual_batches(model, size=3).drawn(CORPUS[:5])
        == first
    )
    seeds = {tuple(cde.contextual_batches(model, 3, seed=seed).drawn(CORPUS)) for seed in range(9)}
    assert len(seeds) > 5
    assert sorted(cde.contextual_batches(model, 64).drawn(CORPUS)) == sorted(CORPUS)
    batches = [[f"{text} {number}" for text in CORPUS] for number in range(9)]
    places = {tuple(batch.index(one) for one in collate.drawn(batch)) for batch in batches}
    assert len(places) > 3, "where it stands in its batch depends on the batch"


def trainer_of(
    model: SentenceTransformer, folder: Path, rows: Any, **given: Any
) -> SentenceTransformerTrainer:
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": 4, "max_steps": 4, "learning_rate": 1e-2,
        "report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_strategy": "steps",
        "save_steps": 2, **given,
    }  # fmt: skip
    return SentenceTransformerTrainer(
        model,
        SentenceTransformerTrainingArguments(str(folder), **arguments),
        train_dataset=rows,
        loss=LOSSES["cached"](model),
        data_collator=cde.contextual_batches(model, size=3),
    )


def test_training_goes_on_after_an_interruption_and_comes_back_as_an_encoder(
    tmp_path: Path,
) -> None:
    rows = Dataset.from_list(
        [
            {"query": f"{text} {mark}", "document": f"{mark} {text}"}
            for text in CORPUS
            for mark in "ab"
        ]
    )
    encoder = new_model(sequence_dropout=0.2)
    encoder.save_pretrained(tmp_path / "start")
    whole, again = (SentenceTransformer(str(tmp_path / "start"), device="cpu") for _ in range(2))
    trainer_of(whole, tmp_path / "runs", rows).train()
    trainer_of(again, tmp_path / "runs", rows).train(
        resume_from_checkpoint=str(tmp_path / "runs" / "checkpoint-2")
    )
    for name, tensor in whole.state_dict().items():
        assert torch.allclose(tensor, again.state_dict()[name], atol=1e-6), name
    whole.save_pretrained(str(tmp_path / "trained"))
    trained = load(tmp_path / "trained")
    moved = {
        name
        for name, tensor in trained.state_dict().items()
        if not tensor.equal(encoder.state_dict()[name])
    }
    assert {name.partition(".")[0] for name in moved} == {"first_stage", "second_stage"}
    assert trained.with_context(CORPUS).encode_queries(TEXTS).shape == (5, 32)
