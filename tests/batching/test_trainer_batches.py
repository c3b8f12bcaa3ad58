"""Clustered batches in the trainer of sentence-transformers are the epochs of `cde.train`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import cde
from cde.batching.packing import BatchSampler
from cde.batching.sentence_trainer import EpochBatches, filtered_loss
from cde.data import Pairs
from cde.models.encoder import load_tokenizer
from cde.surrogate import Surrogate, minilm_folder
from cde.training import Preparation, TrainConfig

SIZE, SEED = 8, 3


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    return cde.load_pairs("pydocs/rich").sample(44)


@pytest.fixture(scope="module")
def rows(pairs: Pairs) -> Dataset:
    return Dataset.from_dict({"query": pairs.queries, "document": pairs.documents})


class Watched:
    """A collator that notes which rows each batch has."""

    def __init__(self, collator: Any, pairs: Pairs) -> None:
        self._collator, self.batches = collator, []
        self._place = {text: place for place, text in enumerate(pairs.documents)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collator, name)

    def __call__(self, features: list[dict[str, Any]]) -> Any:
        self.batches.append([self._place[row["document"]] for row in features])
        return self._collator(features)


def trainer_of(
    rows: Any, folder: Path, batches: Callable[..., EpochBatches], **arguments: Any
) -> SentenceTransformerTrainer:
    model = SentenceTransformer(str(minilm_folder()), device="cpu")
    model.max_seq_length = 8
    given: dict[str, Any] = {
        "per_device_train_batch_size": SIZE, "batch_sampler": batches,
        "dataloader_drop_last": True, "seed": SEED, "report_to": "none", "use_cpu": True,
        "disable_tqdm": True, "save_strategy": "no",
    }  # fmt: skip
    settings = SentenceTransformerTrainingArguments(str(folder), **(given | arguments))
    return SentenceTransformerTrainer(
        model, settings, train_dataset=rows, loss=MultipleNegativesRankingLoss(model)
    )


@pytest.mark.slow
def test_epochs_are_those_of_cde_s_own_training_and_go_on_after_an_interruption(
    rows: Dataset, pairs: Pairs, tmp_path: Path
) -> None:
    assert len(set(pairs.documents)) == len(pairs)
    config = TrainConfig(
        architecture="bi-encoder", batch_size=SIZE, cluster_size=SIZE, filter_epsilon=None,
        seed=SEED,
    )  # fmt: skip
    sampler = Preparation(config, pairs, load_tokenizer("minilm"), ("", "")).sampler
    steps = [next(sampler).tolist() for _ in range(2 * sampler.batches_per_epoch)]
    whole = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 7}
    batches = cde.clustered_batches(surrogate=Surrogate(max_tokens=64))
    first = trainer_of(rows, tmp_path, batches, **whole)
    first.data_collator = seen = Watched(first.data_collator, pairs)
    first.train()
    assert seen.batches == steps
    second = trainer_of(rows, tmp_path, cde.clustered_batches(), **whole)
    second.data_collator = seen = Watched(second.data_collator, pairs)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))
    assert seen.batches == steps[7:]


def test_an_iteration_is_one_epoch_whoever_iterates_beside_it() -> None:
    labels = np.arange(40) // 8
    native = BatchSampler(labels, 8, seed=SEED)
    epochs = [[next(native).tolist() for _ in range(5)] for _ in range(3)]
    batches = EpochBatches(BatchSampler(labels, 8, seed=SEED))
    assert list(batches) == list(batches) == epochs[0]
    one, other = iter(batches), iter(batches)
    assert [next(one), next(other), next(one)] == [epochs[0][0], epochs[0][0], epochs[0][1]]
    batches.set_epoch(2)
    assert list(batches) == epochs[2]
    batches.set_epoch(1)
    assert list(batches) == epochs[1]


def test_no_batch_mixes_sources_nor_the_datasets_of_a_dictionary(
    rows: Dataset, pairs: Pairs, tmp_path: Path
) -> None:
    sources = ["a" if place % 2 else "b" for place in range(len(rows))]
    batches = cde.clustered_batches(domains=sources)(rows, batch_size=SIZE, drop_last=True)
    assert len(batches) == 4
    assert all(len({sources[row] for row in batch}) == 1 for batch in batches)
    half = DatasetDict(
        {name: rows.select([i for i, one in enumerate(sources) if one == name]) for name in "ab"}
    )
    trainer = trainer_of(half, tmp_path, cde.clustered_batches(), max_steps=4)
    trainer.data_collator = seen = Watched(trainer.data_collator, pairs)
    trainer.train()
    assert len(seen.batches) >= 4
    assert all(len({sources[row] for row in batch}) == 1 for batch in seen.batches)


def test_short_batches_are_kept_unless_dropped(rows: Dataset) -> None:
    kept = list(cde.clustered_batches(seed=SEED)(rows, batch_size=SIZE))
    assert sorted(row for batch in kept for row in batch) == list(range(len(rows)))
    dropped = list(cde.clustered_batches(seed=SEED)(rows, batch_size=SIZE, drop_last=True))
    assert {len(batch) for batch in dropped} == {SIZE}
    assert len(dropped) == 5


@pytest.mark.parametrize("epsilon", [0.0, -0.1, 0.2])
def test_the_filtered_loss_leaves_out_what_equation_4_says(epsilon: float) -> None:
    """Copies of an answer, which share a batch of neighbours, are not negatives of each other."""
    queries = ["red boats", "ships in red", "a green house", "leek soup", "boats"]
    documents = ["boats are red", "boats are red", "houses are green", "soup of leeks", "a boat"]
    model = SentenceTransformer(str(minilm_folder()), device="cpu")
    columns = [model.preprocess(texts) for texts in (queries, documents)]
    loss = filtered_loss(model.eval(), epsilon, temperature=0.05)(columns, torch.zeros(5))
    vectors = [model.encode(texts, convert_to_tensor=True) for texts in (queries, documents)]
    surrogate = Surrogate(max_tokens=64, precision="float32")
    left_out = cde.false_negatives(
        surrogate.encode_queries(queries), surrogate.encode_documents(documents), epsilon
    )
    assert epsilon > 0 or (left_out[0, 1] and left_out[1, 0])
    scores = (vectors[0] @ vectors[1].T / 0.05).masked_fill(torch.from_numpy(left_out), -torch.inf)
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(5))
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
