"""Attention that is evened out, chunks of equal weight, and two orders: what each does to a text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cde.models import BiEncoder
from cde.models.backbones import mean_of_tokens, mean_of_unit_parts
from cde_studies.dwell.calibration import BothOrders, calibrated, even_out

TEXTS = [
    "red boats lie in the harbour while the tide runs out and gulls wait on the wall",
    "leeks, potatoes and cream make a soup",
    "boats",
]


def weights(keys: int = 10) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 3, keys, keys, dtype=torch.float64).softmax(dim=-1)


def test_all_baskets_have_the_same_share_at_full_strength() -> None:
    even = even_out(weights(), None, basket=5, strength=1.0)
    shares = even.unflatten(-1, (2, 5)).sum(dim=-1)
    torch.testing.assert_close(shares, torch.full_like(shares, 0.5))
    # within a basket nothing is reordered: the ratios of weights stay
    before = weights()
    torch.testing.assert_close(
        even[..., 1] / even[..., 0], before[..., 1] / before[..., 0], rtol=1e-9, atol=0
    )


def test_a_smaller_last_basket_counts_by_its_tokens_and_hidden_keys_by_none() -> None:
    mask = torch.ones(2, 1, 1, 10, dtype=torch.bool)
    mask[1, ..., 7:] = False
    shown = weights().masked_fill(~mask, 0)
    shown = shown / shown.sum(dim=-1, keepdim=True)
    even = even_out(shown, mask, basket=4, strength=1.0)
    torch.testing.assert_close(even.sum(dim=-1), torch.ones(2, 3, 10, dtype=torch.float64))
    first = even[..., :4].sum(dim=-1)
    torch.testing.assert_close(first[0], torch.full_like(first[0], 4 / 10))
    torch.testing.assert_close(first[1], torch.full_like(first[1], 4 / 7))
    assert not even[1, ..., 7:].any()


def test_strength_draws_shares_on_a_straight_line() -> None:
    shares = [
        even_out(weights(), None, 5, strength)[..., :5].sum(dim=-1) for strength in (0, 0.5, 1)
    ]
    torch.testing.assert_close(shares[0], weights()[..., :5].sum(dim=-1))
    torch.testing.assert_close(shares[1], (shares[0] + shares[2]) / 2)


@pytest.mark.parametrize("layers", [1, 2])
def test_without_strength_nothing_changes_and_afterwards_neither(layers: int) -> None:
    encoder = BiEncoder.from_backbone("minilm", layers, precision="float32")
    before = encoder.encode_documents(TEXTS)
    with calibrated(encoder, basket=4, strength=0.0) as same:
        np.testing.assert_allclose(same.encode_documents(TEXTS), before, atol=2e-6)
    with calibrated(encoder, basket=4, strength=1.0) as evened:
        moved = evened.encode_documents(TEXTS)
    assert np.abs(moved[0] - before[0]).max() > 1e-3
    # a single basket has all weight already
    with calibrated(encoder, basket=64, strength=1.0) as one_basket:
        np.testing.assert_allclose(one_basket.encode_documents(TEXTS), before, atol=2e-6)
    np.testing.assert_array_equal(encoder.encode_documents(TEXTS), before)


def test_a_chunk_of_long_vectors_counts_no_more_than_another() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(2, 16, 8)
    louder = hidden.clone()
    louder[:, :2] *= 50
    mask = torch.ones(2, 16, dtype=torch.bool)
    mask[1, 9:] = False
    torch.testing.assert_close(
        mean_of_unit_parts(louder, mask)[:1], mean_of_unit_parts(hidden, mask)[:1]
    )
    assert not torch.allclose(mean_of_tokens(louder, mask), mean_of_tokens(hidden, mask))
    # padding has no say
    longer = torch.nn.functional.pad(hidden[1:, :9], (0, 0, 0, 5), value=9.0)
    seen = torch.arange(14)[None] < 9
    torch.testing.assert_close(
        mean_of_unit_parts(longer, seen), mean_of_unit_parts(hidden, mask)[1:]
    )


class FirstWords:
    """An encoder that looks at a text's first two words alone."""

    WORDS = ("red", "boats", "leek", "soup")

    def encode_queries(self, texts):
        rows = [[float(word in text.split()[:2]) for word in self.WORDS] for text in texts]
        return np.array(rows, dtype=np.float32) + 1e-3

    encode_documents = encode_queries


def test_what_stands_late_is_seen_in_the_other_order() -> None:
    tokenizer = BiEncoder.from_backbone("minilm", layers=1).tokenizer
    texts = ["red boats leek soup", "leek soup red boats"]
    one, other = BothOrders(FirstWords(), tokenizer).encode_documents(texts)
    np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(one, np.full(4, 0.5), atol=1e-3)
    assert abs(np.linalg.norm(one) - 1) < 1e-6
