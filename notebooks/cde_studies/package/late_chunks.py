"""Late chunking (arXiv 2409.04701): vectors of chunks that know what stands around them.

A chunk that is embedded by itself has lost what the text before it said: who "she" is, of which
queue "its length" is. Here the text is read whole, and a chunk is the mean of its tokens' states. A
text with more tokens than the encoder reads at once is read in windows that overlap; each token is
taken of the window in which more stands around it.

Cost: each text once, plus the overlaps; attention is over the whole window and not over the chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cde.adaptation import unit
from cde.hardware import tokens_at_once
from cde.models.encoder import BiEncoder, padded, token_batches
from cde.products import multiplying
from cde.progress import progress
from cde.validation import Vectors, checked_whole, encodable


def encode_chunks(
    encoder: BiEncoder,
    texts: Sequence[str],
    spans: Sequence[Sequence[tuple[int, int]]],
    overlap: int | None = None,
) -> list[Vectors]:
    """Unit vectors of the chunks of each text, read with what stands around them.

    A single chunk that is the whole text has the vector of `encode_documents`. To search, score a
    document by its best chunk. `cde.corpus.chunks.passages` says where a text may be cut.

    Args:
        encoder: one that pools by the mean.
        texts: documents, which are read in windows of `encoder.most_tokens`.
        spans: of each text the chunks, first character and end (exclusive).
        overlap: tokens that a window repeats of the one before it, by default an eighth of them.

    Returns:
        For each text `(chunks, dim)` float32. The encoder's prefix, and the mark before it, belong
        to a chunk that begins at 0, the mark at the end to one that ends where the text does.

    Raises:
        ValueError: another pooling; not as many lists of spans as texts, or one that is outside of
            its text or holds no token; an overlap that leaves a window nothing of its own.
    """
    prefix, windows = encoder.config.document_prefix, _windows(encoder, encodable(texts), overlap)
    if len(spans) != len(texts):
        raise ValueError(
            f"spans must be a list for each of {len(texts)} texts; they are {len(spans)} lists"
        )
    inside = [_inside(one, len(prefix), texts[one.owner], spans[one.owner]) for one in windows]
    counts = [np.zeros(len(some)) for some in spans]
    for window, tokens_of in zip(windows, inside, strict=True):
        counts[window.owner] += tokens_of.sum(axis=1)
    for text, (some, found) in enumerate(zip(spans, counts, strict=True)):
        for (start, end), tokens in zip(some, found, strict=True):
            if not tokens or not 0 <= start <= end <= len(texts[text]):
                raise ValueError(
                    f"each span must hold a token of its text, which has {len(texts[text])} "
                    f"characters; of text {text} one is ({start}, {end})"
                )
    sums = [np.zeros((len(some), encoder.dim)) for some in spans]
    work = tokens_at_once(encoder.device.type, encoder.precision)
    batches = token_batches([len(one.ids) for one in windows], work)
    with (
        encoder.evaluating(),
        torch.inference_mode(),
        multiplying(encoder.precision, encoder.device),
    ):
        for batch in progress(batches, f"embedding {len(texts):,} texts", unit="batches"):
            ids = [windows[place].ids for place in batch]
            given = padded(ids, encoder.tokenizer.pad_token_id or 0, encoder.device)
            states = encoder.token_states(*given)[0].float().cpu().numpy()
            for place, of_tokens in zip(batch, states, strict=True):
                tokens_of = inside[place]
                sums[windows[place].owner] += tokens_of @ of_tokens[: tokens_of.shape[1]]
    return [unit(some) for some in sums]


class _Window(NamedTuple):
    """A part of a text that is read at once."""

    owner: int  #: which text's
    ids: NDArray[np.int32]
    #: where each token begins and ends in the text that is read, and whether it is a mark
    ends: NDArray[np.int64]
    marks: NDArray[np.bool_]
    #: tokens at its beginning, and at its end, of which another window has more around them; None
    #: where the text begins, or ends
    left: int | None
    right: int | None


def _windows(encoder: BiEncoder, texts: list[str], overlap: int | None) -> list[_Window]:
    if encoder.config.pooling != "mean":
        raise ValueError(
            f"late chunks are means of tokens, and this encoder pools by "
            f"{encoder.config.pooling!r}: embed the texts of the chunks by encode_documents"
        )
    tokenizer, most = encoder.tokenizer, encoder.most_tokens
    if tokenizer is None:
        raise ValueError("the encoder has no tokenizer: set encoder.tokenizer")
    room = most - tokenizer.num_special_tokens_to_add()
    overlap = room // 8 if overlap is None else checked_whole(overlap, "overlap", 0)
    if overlap >= room:
        raise ValueError(f"overlap must be below the {room} tokens of a window; it is {overlap}")
    if not texts:
        return []
    read = tokenizer(
        [encoder.config.document_prefix + text for text in texts],
        truncation=True,
        max_length=most,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
    )
    owners = [-1, *read["overflow_to_sample_mapping"], -1]
    columns = zip(
        read["input_ids"], read["offset_mapping"], read["special_tokens_mask"], strict=True
    )
    return [
        _Window(
            owners[place],
            np.array(ids, np.int32),
            np.array(ends, np.int64),
            np.array(marks, bool),
            overlap // 2 if owners[place - 1] == owners[place] else None,
            overlap - overlap // 2 if owners[place + 1] == owners[place] else None,
        )
        for place, (ids, ends, marks) in enumerate(columns, start=1)
    ]


def _inside(
    window: _Window, prefix: int, text: str, spans: Sequence[tuple[int, int]]
) -> NDArray[np.float64]:
    """Which tokens of a window each span holds, wholly or in part: 0 or 1, `(spans, tokens)`."""
    content = np.flatnonzero(~window.marks)
    own = np.zeros(len(window.ids), bool)
    own[content[window.left or 0 : len(content) - (window.right or 0)]] = True
    # the prefix and the first mark stand at the first character, the last mark at the last one
    ends = np.maximum(window.ends - prefix, (0, 1))
    after = np.arange(len(own)) > (content[-1] if len(content) else 0)
    ends[window.marks & after] = max(len(text) - 1, 0), max(len(text), 1)
    own |= window.marks & np.where(after, window.right is None, window.left is None)
    starts, stops = np.array(spans, np.int64).reshape(-1, 2).T[:, :, None]
    stops = np.maximum(stops, starts + 1)  # of an empty text
    held = own & (ends[:, 0] < stops) & (ends[:, 1] > starts)
    return np.asarray(held, np.float64)
