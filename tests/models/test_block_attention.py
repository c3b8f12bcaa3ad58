"""Attention in blocks is attention: against exact arithmetic, with and without hidden keys."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cde.models import BiEncoder, ContextualEncoder, attention
from cde.models.attention import attend_in_blocks, blocks_are_faster

pytestmark = pytest.mark.filterwarnings("ignore:this encoder comes from a plain transformer")


def states(batch: int, queries: int, keys: int, seed: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    shapes = [(batch, 3, count, 16) for count in (queries, keys, keys)]
    return [torch.randn(shape).bfloat16() for shape in shapes]


def exactly(query, key, value, mask, scaling):
    """The definition, in float64."""
    scores = query.double() @ key.double().transpose(-2, -1) * scaling
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) @ value.double()).transpose(1, 2)


@pytest.mark.parametrize("queries", [1, 127, 128, 300])
@pytest.mark.parametrize("scaling", [None, 0.5])
def test_it_is_attention(queries: int, scaling: float | None) -> None:
    query, key, value = states(2, queries, 400)
    found = attend_in_blocks(query, key, value, None, scaling).double()
    expected = exactly(query, key, value, None, scaling or 16**-0.5)
    error = (found - expected).square().mean().sqrt()
    # values of unit variance; scores and weights are rounded to eight bits
    assert error < 2**-8


@pytest.mark.parametrize("shared", [False, True])
def test_hidden_keys_are_not_read_and_hidden_queries_give_zeros(shared: bool) -> None:
    query, key, value = states(3, 200, 300, seed=1)
    seen = torch.ones(1 if shared else 3, 1, 1, 300, dtype=torch.bool)
    seen[-1, ..., 250:] = False  # padding on the right: own tokens 150 to 199
    seen[0, ..., 20] = False  # a hidden context token
    found = attend_in_blocks(query, key, value, seen, None)
    changed, others = key.clone(), value.clone()
    hidden = ~seen.expand(3, 1, 1, 300)[:, 0, 0]
    changed.transpose(1, 2)[hidden] = torch.nan
    others.transpose(1, 2)[hidden] = torch.nan
    assert torch.equal(attend_in_blocks(query, changed, others, seen, None), found)
    expected = exactly(query, key, value, seen, 16**-0.5)
    for text in range(3):
        own = ~hidden[text, 100:]
        assert (found[text, own].double() - expected[text, own]).abs().max() < 0.03
        assert not found[text, ~own].any()


def test_a_text_does_not_depend_on_the_others_of_its_batch() -> None:
    query, key, value = states(4, 150, 280, seed=2)
    together = attend_in_blocks(query, key, value, None, None)
    for text in range(4):
        one = slice(text, text + 1)
        alone = attend_in_blocks(query[one], key[one], value[one], None, None)
        assert torch.equal(alone[0], together[text])


def test_it_is_not_taken_where_it_would_give_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query, key, _ = states(2, 100, 256)
    some = torch.ones(2, 1, 1, 256, dtype=torch.bool)
    monkeypatch.setattr(attention, "has_amx", lambda: False)
    with torch.no_grad():
        assert blocks_are_faster(query, key, None) and blocks_are_faster(query, key, some)
        assert not blocks_are_faster(query.float(), key.float(), None)
        assert not blocks_are_faster(query, key, some.expand(2, 1, 100, 256))  # a window
        with torch.autocast("cpu", torch.float16):
            assert not blocks_are_faster(query, key, None)
    assert not blocks_are_faster(query, key, None)  # a gradient is wanted


@pytest.mark.parametrize("kind", ["bi-encoder", "cached", "full"])
@pytest.mark.slow
def test_long_texts_lie_as_near_to_float32_as_with_the_fused_kernel(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["boats", "hills", "rivers", "lamps", "books", "stones"]
    texts = [" ".join(np.random.default_rng(n).choice(words, 100 + 60 * n)) for n in range(4)]
    context = [f"{one} and {other}" for one in words for other in words]

    def vectors(precision: str) -> np.ndarray:
        options = {"max_tokens": 384, "precision": precision, "device": "cpu"}
        if kind == "bi-encoder":
            return BiEncoder.from_backbone(layers=2, **options).encode_documents(texts)
        options |= {"attention": kind, "context_size": 36}
        contextual = ContextualEncoder.from_backbone(layers=1, **options)
        return contextual.with_context(context).encode_documents(texts)

    monkeypatch.setattr(attention, "has_amx", lambda: False)
    exact = vectors("float32")
    asked = []
    kernel = attention.attend_in_blocks

    def counted(*arguments):
        asked.append(arguments[1].shape[2])
        return kernel(*arguments)

    monkeypatch.setattr(attention, "attend_in_blocks", counted)
    in_blocks = vectors("bfloat16")
    assert asked and min(asked) >= 256
    monkeypatch.setattr(attention, "blocks_are_faster", lambda *_: False)
    fused = vectors("bfloat16")
    away, fused_away = (1 - (some * exact).sum(axis=1) for some in (in_blocks, fused))
    assert away.max() < 2e-4 and away.mean() < 3 * fused_away.mean()


def test_in_training_a_pass_without_gradients_is_that_with_them() -> None:
    """Gradient caching embeds without a graph and then with one: dropout has to fall alike."""
    model = BiEncoder.from_backbone("minilm", layers=1, dropout=0.2, precision="bfloat16").train()
    tokens, found = torch.arange(1000, 1300).reshape(1, 300), []
    for gradients in (False, True):
        torch.manual_seed(1)
        with torch.set_grad_enabled(gradients), torch.autocast("cpu", torch.bfloat16):
            found.append(model.embed_batch(tokens, torch.ones_like(tokens)).detach())
    assert torch.equal(*found)
