"""Late chunks: what they have in common with documents and plain chunks, and what sets them apart."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_encoders import BACKBONES, TEXTS, bi_encoder, without_layers

from cde.models import BiEncoder
from cde_studies.package.late_chunks import encode_chunks

LONG = "red boats lie in the harbour while scarlet ships sail to norway at night"
CLOSE: dict[str, Any] = {"atol": 1e-6, "rtol": 0}


@cache
def small(family: str = "bert") -> BiEncoder:
    return bi_encoder(family, document_prefix="text: ")


def whole(text: str) -> list[tuple[int, int]]:
    return [(0, len(text))]


def words(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


@pytest.mark.parametrize("family", list(BACKBONES))
def test_one_chunk_that_is_the_whole_text_is_the_document(family: str) -> None:
    texts = [*TEXTS, ""]
    chunks = encode_chunks(small(family), texts, [whole(text) for text in texts])
    np.testing.assert_allclose(
        np.concatenate(chunks), small(family).encode_documents(texts), **CLOSE
    )


@given(
    st.lists(st.sampled_from([*TEXTS, LONG]), min_size=1, max_size=6, unique=True),
    st.sampled_from([1, 40, 4096]),
    st.sampled_from([24, 128]),
)
def test_company_and_batches_do_not_change_a_chunk(
    texts: list[str], work: int, window: int
) -> None:
    model = bi_encoder(max_tokens=window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cde_studies.package.late_chunks.tokens_at_once", lambda *_: work)
        together = encode_chunks(model, texts, [words(text) for text in texts])
    for text, chunks in zip(texts, together, strict=True):
        [alone] = encode_chunks(model, [text], [words(text)])
        np.testing.assert_allclose(chunks, alone, **CLOSE)


def test_surroundings_are_what_sets_late_chunks_apart_from_plain_ones() -> None:
    """In others a chunk is another, if anything reads them."""
    chunk = "scarlet ships"
    texts = [f"{chunk} {rest}" for rest in ("sail to norway", "lie in the sand")]
    span = [(0, len(chunk))]
    first, second = np.concatenate(encode_chunks(small(), texts, [span, span]))
    assert first @ second < 0.999
    blind = np.concatenate(encode_chunks(without_layers(), texts, [span, span]))
    np.testing.assert_allclose(blind[0], blind[1], **CLOSE)


@given(window=st.integers(8, 30), overlap=st.integers(0, 5))
def test_each_token_of_a_text_in_windows_counts_once(window: int, overlap: int) -> None:
    expected = without_layers(max_tokens=512).encode_documents([LONG])
    [found] = encode_chunks(without_layers(max_tokens=window), [LONG], [whole(LONG)], overlap)
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_the_overlap_of_windows_is_what_a_token_at_a_border_is_read_with() -> None:
    """Where windows overlap by more than a chunk and its neighbours, a border changes it less."""
    model = bi_encoder("modernbert")  # of local attention: what is far away hardly matters
    model.config.max_tokens = 100
    [read_at_once] = encode_chunks(model, [LONG], [words(LONG)])
    distances = []
    for overlap in (0, 16):
        model.config.max_tokens = 40
        [found] = encode_chunks(model, [LONG], [words(LONG)], overlap)
        distances.append(float((1 - (found * read_at_once).sum(axis=1)).mean()))
    assert distances[1] < distances[0]


def test_a_long_text_s_beginning_is_read_as_if_it_ended_with_its_window() -> None:
    """No window sees what another one holds."""
    model = bi_encoder(max_tokens=24)
    end = [stop for _, stop in words(LONG)][2]
    changed = LONG[: len(LONG) - 5] + "xxxxx"
    first, second = encode_chunks(model, [LONG, changed], [[(0, end)]] * 2, overlap=0)
    np.testing.assert_allclose(first, second, **CLOSE)


def test_a_chunk_within_a_word_is_made_of_the_tokens_that_it_cuts() -> None:
    [found] = encode_chunks(without_layers(), ["qqq red boats"], [[(5, 6), (4, 7)]])
    pieces = without_layers().tokenizer("red", add_special_tokens=False)["input_ids"]
    assert len(pieces) == 3
    assert found[0] @ found[1] < 1 - 1e-4


@pytest.mark.parametrize(
    ("texts", "spans", "options", "message"),
    [
        (["red boats"], [], {}, "for each of 1 texts; they are 0"),
        (["a", "red boats"], [[(0, 1)], [(3, 4)]], {}, r"of text 1 one is \(3, 4\)"),
        (["red boats"], [[(-2, 3)]], {}, r"of text 0 one is \(-2, 3\)"),
        (["red boats"], [[(0, 3)]], {"overlap": 126}, "below the 126 tokens"),
    ],
)
def test_what_is_no_chunk_is_refused_by_name(
    texts: Any, spans: Any, options: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        encode_chunks(bi_encoder(), texts, spans, **options)
    with pytest.raises(ValueError, match="pools by 'cls'"):
        encode_chunks(bi_encoder(pooling="cls"), ["red"], [[(0, 3)]])
