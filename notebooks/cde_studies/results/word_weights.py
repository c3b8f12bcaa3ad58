"""What a contextual encoder makes of a corpus' words: how common it takes a word to be, and how
much the word then counts.

The *weight* of a word in a text is how far the text's vector moves when the word is left out, as a
cosine distance. A statistical ranker gives a word less weight where more documents hold it. Whether
an encoder does so is seen in two corpora: one text is embedded in the context of both, so that text
and model are the same, and only the word's document frequencies differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from cde.models import ContextualEncoder
from cde.models.encoder import padded, tokenise
from cde.validation import encoded


def _plain(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum())


def document_shares(documents: Sequence[str]) -> Callable[[Iterable[str]], NDArray[np.float64]]:
    """In which share of a corpus' documents each word stands, whatever its case and its stops; with
    half a document more on either side, so that the logarithm of the share is finite.
    """
    every = ({_plain(word) for word in document.split()} for document in documents)
    counts = Counter(word for words in every for word in words)

    def of_words(words: Iterable[str]) -> NDArray[np.float64]:
        held = np.array([counts[_plain(word)] for word in words], dtype=np.float64)
        return (held + 0.5) / (len(documents) + 1)

    return of_words


def word_weights(encoder: Any, texts: Sequence[str], most: int = 30) -> pd.DataFrame:
    """How far each text's vector moves when one of its words is left out: text (its place), word,
    weight (cosine distance), a row for each word of a text that has two or more.
    """
    kept = [text.split()[:most] for text in texts]
    rows, shorter = [], []
    for number, words in enumerate(kept):
        for place, word in enumerate(words if len(words) > 1 else []):
            rows.append({"text": number, "word": word})
            shorter.append(" ".join(words[:place] + words[place + 1 :]))
    table = pd.DataFrame(rows, columns=["text", "word"])
    whole = encoded(encoder, [" ".join(words) for words in kept], "documents").astype(np.float64)
    without = encoded(encoder, shorter, "documents").astype(np.float64)
    table["weight"] = 1 - (whole[table["text"].to_numpy()] * without).sum(axis=1)
    return table


@torch.no_grad()
def shares_read(
    model: ContextualEncoder, texts: Sequence[str], context: Sequence[str]
) -> pd.DataFrame:
    """A gated reader's soft document frequency of word pieces, how much of the context resembles
    them: piece (token id), read (mean over its occurrences, 0 to 1) and count.
    """
    stage = model.second_stage
    assert stage.reader is not None
    tokens = model.with_context(list(context)).context
    assert tokens is not None
    vectors = tokens.reshape(1, -1, model.dim)
    found = []
    rows = tokenise(model.tokenizer, list(texts), model.config.max_tokens)
    for start in range(0, len(rows), 64):
        some = rows[start : start + 64]
        ids, mask = padded(some, model.tokenizer.pad_token_id or 0, model.device)
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        states = stage.family.embed(stage.backbone, ids, places)
        read = stage.reader.shares(stage.family.normalise(stage.backbone, states), vectors)
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        shares = read.sum(dim=-1)[real].cpu().numpy()
        found.append(pd.DataFrame({"piece": ids[real].cpu().numpy(), "read": shares}))
    every = pd.concat(found)
    every = every[~every["piece"].isin(model.tokenizer.all_special_ids)]
    grouped = every.groupby("piece")["read"]
    return grouped.agg(["mean", "size"]).set_axis(["read", "count"], axis=1).reset_index()
