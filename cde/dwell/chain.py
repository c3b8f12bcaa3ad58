"""Three stages make a retriever of an encoder–decoder (Dwell §3.2): a chain of stored trainings.

    restore   span corruption: 15 % of the tokens, mean span 3
    crops     contrastive: two independent crops of a document, 10 to 50 % of it each, are a pair
    tune      contrastive: queries and their documents with hard negatives; an episode each.
              Negatives are mined anew before each one with the model that it starts from (ANCE),
              for the first with the surrogate. What scores above the labelled document is no
              negative.

A `Stage` names what it goes on from, so that a table of "with and without" is a few chains that
share their beginnings; what two chains have in common is trained once. Contrastive stages are
`cde.training.Trainer` on our encoder–decoder: its loss, its gradient cache, its checkpoints.

Cost: that of the training. A stage lies in the cache folder under a hash of its settings, its data,
what it goes on from, and the code.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from filelock import FileLock

from cde.data import Pairs
from cde.dwell.encoder_decoder import EncoderDecoder
from cde.dwell.probes import segments, token_spans
from cde.dwell.span_corruption import pretrain
from cde.experiments.runs import PROCEDURE as TRAINING
from cde.experiments.runs import provenance
from cde.hardware import half_precision
from cde.storage import atomic_path, cache_folder, content_hash
from cde.training import TrainConfig, Trainer
from cde.training.preparation import mine_hard_negatives

__all__ = ["Stage", "crop_pairs", "shuffle_segments", "train_stage"]

#: the version of the procedure of each stage, beside that of every training run; see
#: `cde.experiments.runs.PROCEDURE`
PROCEDURE = 1


@dataclass(frozen=True)
class Stage:
    """One stage of training and what it goes on from.

    Attributes:
        kind: "start" (no training), "restore", "crops" or "tune".
        settings: for "start" those of `EncoderDecoder.small`, or `model`, a T5 for
            `EncoderDecoder.from_backbone`. For "restore" they are those of `pretrain`, for "crops"
            and "tune" those of `TrainConfig`. Three belong to "crops" alone: `placement`
            (`crop_pairs`), `shuffled` (documents with their segments shuffled), `pooling` (from
            here on).
        after: the stage before; None for "start" alone.

    Example:
        >>> start = Stage("start", {"layers": 1})
        >>> Stage("restore", {"steps": 2}, start).chain
        ['start', 'restore']
    """

    kind: Literal["start", "restore", "crops", "tune"]
    settings: dict[str, Any] = field(default_factory=dict)
    after: Stage | None = None

    def __post_init__(self) -> None:
        if (self.kind == "start") != (self.after is None):
            raise ValueError(
                "a chain begins with the stage 'start' and has it nowhere else; this is "
                f"{self.kind!r}"
            )

    @property
    def chain(self) -> list[str]:
        """The kinds of all stages, the first one first."""
        return [*(self.after.chain if self.after else []), self.kind]


def _slice(text: str, spans: np.ndarray, low: int, high: int) -> str:
    """The text from token `low` to before token `high`, widened to whole words."""
    start, end = int(spans[low][0]), int(spans[high - 1][1])
    while start > 0 and not text[start - 1].isspace():
        start -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    return text[start:end].strip()


def crop_pairs(
    texts: Sequence[str],
    tokenizer: Any,
    count: int,
    seed: int = 0,
    shares: tuple[float, float] = (0.1, 0.5),
    placement: Literal["inside", "around"] = "inside",
) -> Pairs:
    """Pairs of two independent random crops of a document.

    Args:
        texts: documents; each is drawn once before any is drawn twice. Those of fewer than 10
            tokens are left out.
        tokenizer: by whose tokens a crop is measured (fast).
        count: of pairs.
        seed: of the draws.
        shares: least and most share of the document's tokens.
        placement: "inside", as the paper, or "around". Inside, a crop begins anywhere it fits, so
            that the document's ends are seen less often than its middle. Around, it may run over
            the end and go on at the beginning, so that every token is seen equally often.

    Raises:
        ValueError: no text that is long enough, or shares outside 0 to 1.

    Used by the chapters `training_stages` and `context_and_position` (Dwell §3.2).

    Example:
        >>> from cde.models.encoder import load_tokenizer
        >>> text = "a b c d e f g h i j k l"
        >>> pair = crop_pairs([text], load_tokenizer("minilm"), 1)
        >>> pair.queries[0] in text and pair.documents[0] in text
        True
    """
    low, high = shares
    if not 0 < low <= high <= 1:
        raise ValueError(
            f"shares must be two numbers above 0, up to 1, in order; they are {shares}"
        )
    generator = np.random.default_rng(seed)
    places = [(text, token_spans(text, tokenizer)[1]) for text in texts]
    long = [(text, spans) for text, spans in places if len(spans) >= 10]
    if not long:
        raise ValueError(f"none of {len(texts)} texts has 10 tokens or more")
    order = np.concatenate(
        [generator.permutation(len(long)) for _ in range(-(-count // len(long)))]
    )[:count]
    sides: tuple[list[str], list[str]] = ([], [])
    for row in order:
        text, spans = long[row]
        for side in sides:
            size = max(1, round(generator.uniform(low, high) * len(spans)))
            if placement == "inside":
                start = int(generator.integers(0, len(spans) - size + 1))
                side.append(_slice(text, spans, start, start + size))
            else:
                start = int(generator.integers(0, len(spans)))
                over = start + size - len(spans)
                parts = [_slice(text, spans, start, min(start + size, len(spans)))]
                side.append(" ".join(parts + ([_slice(text, spans, 0, over)] if over > 0 else [])))
    ids = [f"crop/{number}" for number in range(count)]
    return Pairs(*sides, domains=["crops"] * count, ids=ids, name=f"crops, {placement}")


def shuffle_segments(
    texts: Sequence[str], tokenizer: Any, parts: int = 10, seed: int = 0
) -> list[str]:
    """Documents with their ten segments in random order; those that cannot be cut stay as they are.

    What is written first no longer stands first: if the bias comes from how documents are written,
        it should go.

    Used by the chapter `context_and_position` (Dwell §4.3).
    """
    generator = np.random.default_rng(seed)
    shuffled = []
    for text in texts:
        found = segments(text, tokenizer, parts)
        order = generator.permutation(parts)
        shuffled.append(
            text if isinstance(found, str) else " ".join(found[place].strip() for place in order)
        )
    return shuffled


def train_stage(stage: Stage, texts: Sequence[str], pairs: Pairs, seed: int = 0) -> Path:
    """Train a stage and those before it, as far as the store lacks them.

    Args:
        stage: the last one.
        texts: for "restore" and "crops".
        pairs: for "tune".
        seed: of weights and draws.

    Returns:
        The folder: `model/` for `EncoderDecoder.from_pretrained`, and `stage.json` with settings,
        metrics and provenance.

    Raises:
        ValueError: settings that do not fit.

    Used by the chapters on *Dwell in the Beginning*.
    """
    before = train_stage(stage.after, texts, pairs, seed) if stage.after else None
    data = content_hash(texts) if stage.kind in ("restore", "crops") else pairs.fingerprint
    precision = "bfloat16" if half_precision("auto") else "float32"
    parts = [
        stage.kind,
        json.dumps(stage.settings, sort_keys=True),
        str(before.name if before else ""),
        str(seed),
    ]
    key = content_hash(
        [
            *parts,
            data if stage.kind != "start" else "",
            f"procedure {TRAINING} {PROCEDURE}",
            precision,
        ]
    )
    folder = cache_folder("stages", key)
    with FileLock(folder / ".lock"):
        if not (folder / "stage.json").is_file():
            _train(stage, before, texts, pairs, seed, folder)
    return folder


def _train(
    stage: Stage, before: Path | None, texts: Sequence[str], pairs: Pairs, seed: int, folder: Path
) -> None:
    begun = time.perf_counter()
    torch.manual_seed(seed)
    settings = dict(stage.settings)
    metrics: list[dict[str, float]] = []
    if before is None:
        source = settings.pop("model", None)
        model = (
            EncoderDecoder.from_backbone(source, **settings)
            if source
            else EncoderDecoder.small(**settings)
        )
    else:
        model = EncoderDecoder.from_pretrained(before / "model")
    if stage.kind == "restore":
        metrics = pretrain(model, texts, folder, seed=seed, **settings)
    elif stage.kind in ("crops", "tune"):
        hard: Any = None
        episode = stage.chain[:-1].count("tune") if stage.kind == "tune" else 0
        if stage.kind == "crops":
            placement = settings.pop("placement", "inside")
            model.config.pooling = settings.pop("pooling", model.config.pooling)
            if settings.pop("shuffled", False):
                texts = shuffle_segments(texts, model.tokenizer, seed=seed)
            count = settings["steps"] * settings["batch_size"]
            pairs = crop_pairs(texts, model.tokenizer, count, seed, placement=placement)
        else:  # hard negatives come from the whole collection
            pairs = replace(pairs, domains=["all"] * len(pairs))
        if episode and settings.get("hard_negatives"):
            # by the surrogate's rule: documents that score above the labelled one may answer as
            # well
            vectors = model.encode_queries(pairs.queries), model.encode_documents(pairs.documents)
            hard = mine_hard_negatives(*vectors, settings["hard_negatives"])
        config = replace(
            TrainConfig(
                architecture="bi-encoder", batches="random", filter_epsilon=None, warmup_steps=0
            ),
            **settings,
            seed=seed + 1000 * episode,  # another episode sees other batches
        )
        trained, metrics = Trainer(config, pairs, folder, model=model, hard_negatives=hard).run()
        assert isinstance(trained, EncoderDecoder)
        model = trained
    model.save_pretrained(folder / "model")
    values = {
        "stage": asdict(stage),
        "metrics": metrics,
        "provenance": provenance(time.perf_counter() - begun, seed),
    }
    with atomic_path(folder / "stage.json") as temporary:
        temporary.write_text(json.dumps(values, indent=1), encoding="utf-8")
    for left in ("checkpoint.pt", "span_corruption.pt"):
        (folder / left).unlink(missing_ok=True)
