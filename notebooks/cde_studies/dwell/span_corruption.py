"""Span corruption, T5's language-model task: restore short spans that were cut out of a text.

*Corrupting* (Raffel et al. 2020, §3.1.4). Of n tokens, round(0.15 n) are taken out, in round(that /
3) spans. Lengths of spans and of what lies between them are random compositions of the two totals,
so that the mean length is 3. Each span leaves one sentinel; the target lists sentinel and span in
turn and ends with one more sentinel.

*Accuracy by position* (Dwell §4.4, Fig. 4). A document is divided into ten windows of equally many
tokens. Spans of three tokens are cut out of one window at a time, and the share of their tokens
that the model ranks first, given the target's earlier tokens, is that window's accuracy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from cde.hardware import half_precision
from cde.models.encoder import padded
from cde.progress import progress
from cde_studies.dwell.encoder_decoder import EncoderDecoder
from cde_studies.dwell.language_modelling import Ids, bare_ids, train_on_stretches

#: the share of the tokens that is taken out, and the (mean) length of a span
_RATE, _SPAN = 0.15, 3


class Corrupted(NamedTuple):
    """A text with sentinels in place of its spans, and the target that restores them."""

    text: Ids
    target: Ids


def sentinels(tokenizer: Any) -> Ids:
    """The tokenizer's tokens that stand for a span: T5's `<extra_id_…>`, or BERT's `[unused…]`."""
    known = tokenizer.get_vocab()
    for form in ("<extra_id_{}>", "[unused{}]"):
        marks = [known[form.format(number)] for number in range(99) if form.format(number) in known]
        if len(marks) > 1:
            return np.array(marks, dtype=np.int32)
    raise ValueError("the tokenizer has no sentinels: neither <extra_id_0> … nor [unused0] …")


def _composition(total: int, parts: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """A random way to write `total` as a sum of so many positive whole numbers, each alike."""
    cuts = np.sort(generator.choice(total - 1, parts - 1, replace=False) + 1)
    return np.diff(np.concatenate([[0], cuts, [total]]))


def _cut(ids: Ids, spans: Sequence[tuple[Any, Any]], marks: Ids) -> Corrupted:
    """Take spans out, which lie in order and apart."""
    text: list[Ids] = []
    target: list[Ids] = []
    before = 0
    for (start, end), mark in zip(spans, marks, strict=False):
        text += [ids[before:start], np.array([mark], dtype=np.int32)]
        target += [np.array([mark], dtype=np.int32), ids[start:end]]
        before = end
    return Corrupted(
        np.concatenate([*text, ids[before:]]),
        np.concatenate([*target, marks[len(spans) : len(spans) + 1]]),
    )


def corrupt(ids: Ids, marks: Ids, generator: np.random.Generator) -> Corrupted:
    """Take spans out of a text of four tokens or more at random."""
    out = max(1, round(_RATE * len(ids)))
    count = min(max(1, round(out / _SPAN)), len(marks) - 1)
    lengths = _composition(out, count, generator)
    # as many gaps before spans, and one after the last
    gaps = _composition(len(ids) - out, count + 1, generator)
    starts = np.cumsum(gaps[:-1]) + np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return _cut(ids, list(zip(starts, starts + lengths, strict=True)), marks)


def _loss(
    model: EncoderDecoder, rows: Sequence[Corrupted]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean loss a target token; of each row and place, the label and whether it is ranked first."""
    device = model.device
    ids, mask = padded([row.text for row in rows], model.tokenizer.pad_token_id or 0, device)
    targets = [torch.from_numpy(row.target.astype(np.int64)) for row in rows]
    labels = pad_sequence(targets, batch_first=True, padding_value=-100).to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=half_precision(model.precision)):
        scores = model.restore(ids, mask, labels)
    loss = cross_entropy(scores.float().flatten(0, 1), labels.flatten(), ignore_index=-100)
    return loss, labels, scores.argmax(dim=-1) == labels


def pretrain(
    model: EncoderDecoder,
    texts: Sequence[str],
    folder: Path,
    *,
    chunk: int | None = None,
    **settings: Any,
) -> list[dict[str, float]]:
    """Train a model on span corruption, in place; see `train_on_stretches`."""
    marks = sentinels(model.tokenizer)
    return train_on_stretches(
        model,
        [row for row in bare_ids(model.tokenizer, texts) if len(row) >= 4],
        texts,
        folder,
        lambda ids, generator: corrupt(ids, marks, generator),
        lambda batch: _gradients(model, batch, chunk or len(batch)),
        task="span corruption",
        **settings,
    )


def _gradients(
    model: EncoderDecoder, batch: Sequence[Corrupted], chunk: int
) -> tuple[float, float]:
    """Loss and accuracy of a batch, whose gradients are added up chunk by chunk."""
    targets, total, share = sum(len(one.target) for one in batch), 0.0, 0.0
    for start in range(0, len(batch), chunk):
        loss, labels, right = _loss(model, batch[start : start + chunk])
        # mean of all the batch's target tokens, not of the chunk's
        loss = loss * (int((labels != -100).sum()) / targets)
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
        share += float(right.sum()) / targets
    return total, share


def windows_corrupted(
    ids: Ids, marks: Ids, generator: np.random.Generator, windows: int
) -> list[Corrupted] | str:
    """A text corrupted in one window at a time; or, in words, why it cannot be. Spans, as many as
    come nearest to the rate and one at least, are apart from each other and from a window's ends.
    """
    size = len(ids) // windows
    if size < _SPAN + 2:
        return f"fewer than {windows * (_SPAN + 2)} tokens"
    count = min(max(1, round(_RATE * size / _SPAN)), len(marks) - 1)
    corrupted = []
    for edges in np.array_split(np.arange(len(ids)), windows):
        gaps = _composition(len(edges) - count * _SPAN, count + 1, generator)
        starts = edges[0] + np.cumsum(gaps[:-1]) + _SPAN * np.arange(count)
        corrupted.append(_cut(ids, [(at, at + _SPAN) for at in starts], marks))
    return corrupted


def span_accuracy(
    model: EncoderDecoder,
    texts: Sequence[str],
    windows: int = 10,
    tokens: int = 512,
    batch_size: int = 32,
    seed: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, int]]:
    """How well spans are restored in the first tenth of a document, in the second, and so on: the
    `(n, windows)` share of span tokens ranked first; the same for a model that always names the
    commonest token of these texts; and how many documents were left out, by reason.
    """
    marks = sentinels(model.tokenizer)
    rows: list[Corrupted] = []
    left_out: Counter[str] = Counter()
    for number, ids in enumerate(bare_ids(model.tokenizer, texts)):
        generator = np.random.default_rng([seed, number])
        corrupted = windows_corrupted(ids[:tokens], marks, generator, windows)
        if isinstance(corrupted, str):
            left_out[corrupted] += 1
        else:
            rows += corrupted
    if not rows:
        raise ValueError(f"no document can be probed: {dict(left_out)}")
    commonest = int(np.bincount(np.concatenate([row.text for row in rows])).argmax())
    shares: list[float] = []
    guessed: list[float] = []
    with torch.inference_mode():
        for start in progress(range(0, len(rows), batch_size), "restoring spans", unit="batches"):
            _, labels, right = _loss(model, rows[start : start + batch_size])
            # sentinels are told by their order alone: only the spans' own tokens count
            own = (labels != -100) & ~torch.isin(labels, torch.from_numpy(marks).to(labels))
            shares += ((right & own).sum(dim=1) / own.sum(dim=1)).tolist()
            guessed += (((labels == commonest) & own).sum(dim=1) / own.sum(dim=1)).tolist()
    return np.array(shares).reshape(-1, windows), np.array(guessed).reshape(-1, windows), left_out
