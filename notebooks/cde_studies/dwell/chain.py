"""Three phases of training make a retriever of an encoder–decoder (Dwell §3.2): a chain of stored
runs. (The paper calls them stages; here a stage is a part of the contextual encoder.)

- `restore`: span corruption: 15 % of the tokens, mean span 3.
- `crops`: contrastive: two independent crops of a document, 10 to 50 % of it each, are a pair.
- `tune`: contrastive: queries and their documents with hard negatives; an episode each. Negatives
  are mined anew before each one with the model that it starts from (ANCE), for the first with the
  surrogate. What scores above the labelled document is not a negative.

A `Phase` names what it goes on from, so that a table of "with and without" is a few chains that
share their beginnings; what two chains have in common is trained once. Contrastive phases are
`cde.training.Trainer` on our encoder–decoder: its loss, its gradient cache, its checkpoints.

A phase lies in the store of runs (`cde.training.runs`) under a hash of its settings, its data, what
it goes on from, and the versions of the procedures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from cde.batching.negatives import mine_hard_negatives
from cde.data import Pairs
from cde.hardware import chosen_precision
from cde.progress import progress
from cde.storage import content_hash
from cde.training import Processes, TrainConfig, Trainer
from cde.training.runs import PROCEDURE as TRAINING
from cde.training.runs import stored
from cde_studies.dwell.encoder_decoder import EncoderDecoder
from cde_studies.dwell.span_corruption import pretrain
from cde_studies.dwell.substrings import segments, token_spans, whole_words

#: the version of the procedure of each phase, beside that of every training run; see
#: `cde.training.runs.PROCEDURE`
PROCEDURE = 1


@dataclass(frozen=True)
class Phase:
    """One phase of training and what it goes on from."""

    kind: Literal["start", "restore", "crops", "tune"]
    settings: dict[str, Any] = field(default_factory=dict)
    after: Phase | None = None

    @property
    def chain(self) -> list[str]:
        """The kinds of all phases, the first one first."""
        return [*(self.after.chain if self.after else []), self.kind]


def crop_pairs(
    texts: Sequence[str],
    tokenizer: Any,
    count: int,
    seed: int = 0,
    shares: tuple[float, float] = (0.1, 0.5),
) -> Pairs:
    """Pairs of two independent random crops of a document."""
    generator = np.random.default_rng(seed)
    shown = progress(texts, "cropping", unit="documents")
    places = [(text, token_spans(text, tokenizer)[1]) for text in shown]
    long = [(text, spans) for text, spans in places if len(spans) >= 10]
    if not long:
        raise ValueError(f"none of {len(texts)} texts has 10 tokens or more")
    rounds = [generator.permutation(len(long)) for _ in range(-(-count // len(long)))]
    order = np.concatenate(rounds)[:count]
    sides: tuple[list[str], list[str]] = ([], [])
    for row in order:
        text, spans = long[row]
        for side in sides:
            size = max(1, round(generator.uniform(*shares) * len(spans)))
            start = int(generator.integers(0, len(spans) - size + 1))
            begin, end = whole_words(text, int(spans[start][0]), int(spans[start + size - 1][1]))
            side.append(text[begin:end].strip())
    ids = [f"crop/{number}" for number in range(count)]
    return Pairs(*sides, domains=["crops"] * count, ids=ids, name="crops, inside")


def shuffle_segments(
    texts: Sequence[str], tokenizer: Any, parts: int = 10, seed: int = 0
) -> list[str]:
    """Documents with their ten segments in random order, as far as they can be cut: a bias that
    comes from how documents are written should go.
    """
    generator = np.random.default_rng(seed)
    shuffled = []
    for text in progress(texts, "shuffling segments", unit="documents"):
        pieces = segments(text, tokenizer, parts)
        order = generator.permutation(parts)
        if not isinstance(pieces, str):
            text = " ".join(pieces[place].strip() for place in order)
        shuffled.append(text)
    return shuffled


def train_phase(phase: Phase, texts: Sequence[str], pairs: Pairs, seed: int = 0) -> Path:
    """Train a phase and those before it, as far as the store lacks them: the folder with `model/`
    for `EncoderDecoder.from_pretrained`, and `run.json` with settings, metrics and provenance.
    """
    before = train_phase(phase.after, texts, pairs, seed) if phase.after else None
    data = content_hash(texts) if phase.kind in ("restore", "crops") else pairs.fingerprint
    key = content_hash(
        [
            phase.kind,
            json.dumps(phase.settings, sort_keys=True),
            str(before.name if before else ""),
            str(seed),
            data if phase.kind != "start" else "",
            f"procedure {TRAINING} {PROCEDURE}",
            chosen_precision("auto"),
        ]
    )

    def make(folder: Path) -> dict[str, Any]:
        torch.manual_seed(seed)
        model, metrics = _trained(phase, before, texts, pairs, seed, folder)
        if Processes.connect().rank == 0:
            model.save_pretrained(folder / "model")
        return {"phase": asdict(phase), "metrics": metrics}

    return stored(key, make, seed)


def _trained(
    phase: Phase, before: Path | None, texts: Sequence[str], pairs: Pairs, seed: int, folder: Path
) -> tuple[EncoderDecoder, list[dict[str, float]]]:
    """The model at the end of a phase, and a row for each of its steps."""
    settings, hard = dict(phase.settings), None
    if before is None:
        named = settings.pop("model", None)
        start = partial(EncoderDecoder.from_backbone, named) if named else EncoderDecoder.small
        return start(**settings), []
    model = EncoderDecoder.from_pretrained(before / "model")
    if phase.kind == "restore":
        return model, pretrain(model, texts, folder, seed=seed, **settings)
    if phase.kind == "crops":
        model.config.pooling = settings.pop("pooling", model.config.pooling)
        count = settings["steps"] * settings["batch_size"]
        pairs = crop_pairs(texts, model.tokenizer, count, seed)
    else:
        episode = phase.chain[:-1].count("tune")
        pairs = replace(pairs, domains=["all"] * len(pairs))  # negatives of the whole collection
        if episode and settings.get("hard_negatives"):
            # by the surrogate's rule: documents that score above the labelled one may answer too
            vectors = model.encode_queries(pairs.queries), model.encode_documents(pairs.documents)
            hard = mine_hard_negatives(*vectors, settings["hard_negatives"])
        seed = seed + 1000 * episode  # another episode sees other batches
    base = TrainConfig(
        architecture="bi-encoder", batches="random", filter_epsilon=None, warmup_steps=0
    )
    config = replace(base, **settings, seed=seed)
    trained, metrics = Trainer(config, pairs, folder, model=model, hard_negatives=hard).run()
    assert isinstance(trained, EncoderDecoder)
    return trained, metrics
