"""Products in bfloat16: those of autocast, near to float32, and never left behind."""

from __future__ import annotations

import copy
import gc
import weakref
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import cde
from cde import hardware, products
from cde.corpus.encoders import record_of
from cde.models import BiEncoder, ContextualEncoder
from cde.models.contextual import fingerprint
from cde.products import Bfloat16Weight, multiplying
from cde.surrogate import Surrogate

Vectors = NDArray[np.float32]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Docstrings of every length."""
    return cde.load_pairs().sample(60, seed=3).documents


def minilm(precision: str, **options: Any) -> BiEncoder:
    options = {"max_tokens": 64, **options}
    return BiEncoder.from_backbone(precision=cast(Any, precision), device="cpu", **options)


def cosines(some: Vectors, others: Vectors) -> Vectors:
    return cast(Vectors, (some * others).sum(axis=1))


needs_bfloat16 = pytest.mark.skipif(
    not hardware.onednn_has_bfloat16(), reason="no bfloat16 in oneDNN here"
)


@needs_bfloat16
def test_in_bfloat16_layers_give_what_autocast_gives_and_a_gradient_as_before() -> None:
    torch.manual_seed(0)
    states = torch.randn(3, 50, 64)
    for layer in (torch.nn.Linear(64, 48), torch.nn.Linear(64, 48, bias=False)):
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            expected = layer(states)
        for _ in range(2):  # made, and found again
            with torch.inference_mode(), multiplying("bfloat16", CPU):
                found = layer(states)
            assert found.dtype == torch.bfloat16
            apart = (found.float() - expected.float()).abs().max()
            assert apart <= 2**-7 * expected.float().abs().max()  # the last bit of the largest
        assert layer.weight in Bfloat16Weight.known
        with multiplying("bfloat16", CPU):
            layer(states).float().sum().backward()
        np.testing.assert_allclose(
            layer.weight.grad[0], states.sum(dim=(0, 1)), rtol=0.02, atol=0.2
        )


@needs_bfloat16
def test_gelu_within_the_product_is_gelu_of_it_and_has_a_gradient() -> None:
    torch.manual_seed(0)
    layer, states = torch.nn.Linear(64, 48), 3 * torch.randn(2, 50, 64)
    given = states, layer.weight, layer.bias
    expected = torch.nn.functional.gelu(layer(states))
    assert torch.equal(products.gelu_of_linear(*given), expected)
    with torch.inference_mode(), multiplying("bfloat16", CPU):
        found = products.gelu_of_linear(*given)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected.detach(), rtol=2**-6, atol=0.02)
    with multiplying("bfloat16", CPU):
        products.gelu_of_linear(*given).float().sum().backward()
    (plain,) = torch.autograd.grad(expected.sum(), layer.weight)
    torch.testing.assert_close(layer.weight.grad, plain, rtol=0.05, atol=0.5)


@needs_bfloat16
def test_states_that_change_between_two_layers_are_rounded_again() -> None:
    torch.manual_seed(0)
    layers, states = [torch.nn.Linear(64, 48) for _ in range(2)], torch.randn(1, 5, 64)

    def change(how: str) -> torch.Tensor:
        own = states.clone()
        layers[0](own)
        if how == "method":
            own.mul_(3)
        elif how == "operator":
            own *= 3
        elif how == "item":
            own[:] = 3 * own
        else:
            torch.mul(own, 3, out=own)
        return layers[1](own)

    with torch.inference_mode(), multiplying("bfloat16", CPU):
        expected = layers[1](3 * states)
        for how in ("method", "operator", "item", "out"):
            assert torch.equal(change(how), expected), how


@pytest.mark.parametrize("attention", ["full", "cached"])
def test_both_stages_of_a_contextual_encoder_take_bfloat16(
    attention: str, texts: list[str]
) -> None:
    model = ContextualEncoder.from_backbone(
        layers=2, attention=attention, max_tokens=64, device="cpu", precision="float32"
    )
    model._untrained = None  # quiet: it is not what it finds that matters
    some, corpus = texts[:12], texts[40:52]
    exact_context, exact = model.embed_context(corpus), model.with_context(corpus)
    expected = exact.encode_documents(some)
    model.precision = "bfloat16"
    context = model.embed_context(corpus)
    lengths = np.linalg.norm(context, axis=1) * np.linalg.norm(exact_context, axis=1)
    assert (cosines(context, exact_context) / lengths).min() > 0.999
    assert not np.array_equal(context, exact_context)  # and it is another arithmetic
    bound = model.with_context(exact_context)
    found = bound.encode_documents(some)
    assert cosines(found, expected).min() > 0.999 and not np.array_equal(found, expected)
    # keys and values of the context that bfloat16 computed are not read in float32
    model.precision = "float32"
    again = model.with_context(corpus).encode_documents(some)
    np.testing.assert_array_equal(again, expected)
    assert np.abs(bound.encode_documents(some) - expected).max() < 1e-5


def test_a_weight_that_changes_is_rounded_again(texts: list[str]) -> None:
    encoder, some = minilm("bfloat16", layers=1), texts[:6]
    before = encoder.encode_documents(some)
    with torch.no_grad():
        for parameter in encoder.backbone.encoder.parameters():
            parameter.add_(0.05 * torch.sign(parameter))
    after = encoder.encode_documents(some)
    copied = copy.deepcopy(encoder).encode_documents(some)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(after, copied)
    encoder.load_state_dict(minilm("bfloat16", layers=1).state_dict())
    np.testing.assert_array_equal(encoder.encode_documents(some), before)


def test_what_was_rounded_goes_with_its_weight() -> None:
    layer = torch.nn.Linear(64, 16)
    with torch.inference_mode(), multiplying("bfloat16", CPU):
        layer(torch.randn(1, 2, 64))
    kept = weakref.ref(Bfloat16Weight.known[layer.weight])
    assert kept() is not None
    del layer
    gc.collect()
    assert kept() is None


def test_nothing_of_it_is_saved(tmp_path: Path, texts: list[str]) -> None:
    encoder = minilm("float32", layers=1)
    encoder.save_pretrained(tmp_path / "before")
    encoder.precision = "bfloat16"
    encoder.encode_documents(texts[:3])
    encoder.save_pretrained(tmp_path / "after")
    files = sorted(path.name for path in (tmp_path / "before").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "after").iterdir())
    for name in files:
        one, other = (tmp_path / folder / name for folder in ("before", "after"))
        assert one.read_bytes() == other.read_bytes(), name


def test_an_index_of_either_precision_is_searched_in_the_other(tmp_path: Path) -> None:
    names = {word: Surrogate("minilm", 64, cast(Any, word)).fingerprint for word in WORDS}
    assert names == {"float32": "3bee00e09e9f7375", "bfloat16": "022497d0539cc1b6"}
    assert len({fingerprint(minilm(word, layers=1)) for word in ("auto", *WORDS)}) == 1
    records = [record_of(Surrogate("minilm", 64, cast(Any, word))) for word in WORDS]
    assert records[0]["fingerprint"] == records[1]["fingerprint"]
    corpus = ["red boats", "blue ships on the sea", "a soup of onions"]
    folder = cde.Index(corpus, encoder=minilm("float32", layers=1)).save(tmp_path / "index")
    loaded = cde.Index.load(folder, encoder=minilm("bfloat16", layers=1))
    assert loaded.search("a soup", depth=1)["id"].tolist() == ["2"]


WORDS = ("float32", "bfloat16")
