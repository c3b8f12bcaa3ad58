"""Products in bfloat16 and in whole numbers: how near to float32, and never mixed with it."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import cde
from cde import hardware, products
from cde.corpus.encoders import record_of
from cde.data import RetrievalSet
from cde.hardware import chosen_precision, half_precision, trained_in
from cde.models import BiEncoder, ContextualEncoder
from cde.models.contextual import fingerprint
from cde.products import Bfloat16Weight, Int8Weight, multiplying
from cde.retrieval.ranking import rank, score_queries
from cde.surrogate import Surrogate
from cde.training.runs import run_key

Vectors = NDArray[np.float32]
CPU = torch.device("cpu")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Docstrings of every length."""
    return cde.load_pairs().sample(60, seed=3).documents


@pytest.fixture(scope="module")
def exact(texts: list[str]) -> Vectors:
    return minilm("float32").encode_documents(texts)


def minilm(precision: str, **options: Any) -> BiEncoder:
    options = {"max_tokens": 64, **options}
    return BiEncoder.from_backbone(precision=cast(Any, precision), device="cpu", **options)


def cosines(some: Vectors, others: Vectors) -> Vectors:
    return cast(Vectors, (some * others).sum(axis=1))


# --- products


def multiplied(
    weight: torch.Tensor, states: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    whole = Int8Weight(weight)
    return whole.linear(whole.rounded(states), bias)


def bound(weight: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """How far a product can be off where a state is rounded to 255 steps of its token's range, and
    a weight to 127 of its output's two largest neighbours.
    """
    step = (states.amax(-1) - states.amin(-1)) / 255
    largest = weight.abs().reshape(len(weight), -1, 2).sum(2).amax(1)
    of_states = step[..., None] / 2 * weight.abs().sum(1)
    of_weights = (largest / 254) * (states.abs() + step[..., None] / 2).sum(-1)[..., None]
    return of_states + of_weights


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 70),
    st.integers(1, 70),
    st.integers(1, 9),
    st.sampled_from([0.0, 1.0, 1000.0]),
)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_a_product_is_off_by_no_more_than_half_a_step(
    seed: int, inputs: int, outputs: int, tokens: int, outlier: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, 2 * inputs, generator=generator)
    states = torch.randn(2, tokens, 2 * inputs, generator=generator)
    states[..., 0] += outlier
    bias = torch.randn(outputs, generator=generator)
    exact = torch.nn.functional.linear(states.double(), weight.double(), bias.double())
    off = (multiplied(weight, states, bias) - exact).abs()
    assert bool((off <= 1.001 * bound(weight, states) + 1e-3).all())


def test_tokens_without_a_range_and_weights_of_zero_are_exact() -> None:
    same = torch.full((1, 2, 8), 3.0)
    given_back = multiplied(torch.eye(8), same)
    torch.testing.assert_close(given_back, same)
    nothing = multiplied(torch.zeros(4, 8), torch.randn(1, 3, 8), torch.ones(4))
    assert bool((nothing == 1).all())


def test_a_token_has_a_range_of_its_own() -> None:
    """What stands beside a token, however large, moves no bit of its product."""
    torch.manual_seed(0)
    weight, states = torch.randn(32, 64), torch.randn(3, 700, 64)
    alone = multiplied(weight, states)
    states[:, ::2] *= 1e4
    beside = multiplied(weight, states)
    assert torch.equal(alone[:, 1::2], beside[:, 1::2])
    assert not torch.equal(alone[:, ::2], beside[:, ::2])


PRODUCTS = """
import torch
from cde.products import Int8Weight, _require_exact
_require_exact()
torch.manual_seed(0)
weight = torch.where(torch.rand(64, 384) < 0.5, 1.0, -1.0)  # neighbours as large as may be
weight[:, ::2] *= 126
states = torch.where(torch.rand(96, 384) < 0.5, 1.0, -1.0)
whole = Int8Weight(weight)
off = (whole.linear(whole.rounded(states), None) - states @ weight.T).abs().max()
print(torch.get_num_threads(), float(off) < 0.1)
"""


@pytest.mark.parametrize("instructions", ["AVX2", "AVX512_CORE_VNNI"])
@pytest.mark.slow
def test_the_largest_sums_do_not_overflow_on_another_class_of_processor(instructions: str) -> None:
    """Without VNNI two products are added in 16 bits; oneDNN is told to do without."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": instructions, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PRODUCTS], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["1", "True"], done.stderr


def test_a_processor_that_gets_sums_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_int_mm", lambda some, others: torch.zeros(64, 64))
    products._require_exact.cache_clear()
    with (
        pytest.raises(RuntimeError, match="overflow: take precision='float32'"),
        multiplying("int8", CPU),
    ):
        pass
    monkeypatch.undo()
    with multiplying("int8", CPU):
        pass


# --- bfloat16


@pytest.mark.skipif(not products._onednn_has_bfloat16(), reason="no bfloat16 in oneDNN here")
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
        with torch.no_grad():
            layer.weight.mul_(2)
        with torch.inference_mode(), multiplying("bfloat16", CPU):
            twice = layer(states) - (0 if layer.bias is None else layer.bias)
        plain = expected - (0 if layer.bias is None else layer.bias.detach())
        np.testing.assert_allclose(twice.float(), 2 * plain.float(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_states_that_change_between_two_layers_are_rounded_again(precision: str) -> None:
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

    with torch.inference_mode(), multiplying(precision, CPU):
        expected = layers[1](3 * states)
        for how in ("method", "operator", "item", "out"):
            assert torch.equal(change(how), expected), how


# --- embeddings


@pytest.mark.parametrize("kind", ["bi-encoder", "surrogate"])
@pytest.mark.slow
def test_the_cosine_to_float32_is_above_0_99(kind: str, texts: list[str], exact: Vectors) -> None:
    made = minilm("int8") if kind == "bi-encoder" else Surrogate("minilm", 64, "int8", cache=False)
    near = cosines(made.encode_documents(texts), exact)
    assert near.min() > 0.99
    assert near.mean() < 0.9999  # and it is another arithmetic


@pytest.mark.parametrize("attention", ["full", "cached"])
def test_both_stages_of_a_contextual_encoder_take_whole_numbers(
    attention: str, texts: list[str]
) -> None:
    model = ContextualEncoder.from_backbone(
        layers=2, attention=attention, max_tokens=64, device="cpu", precision="float32"
    )
    model._untrained = None  # quiet: it is not what it finds that matters
    some, corpus = texts[:12], texts[40:52]
    exact_context, exact = model.embed_context(corpus), model.with_context(corpus)
    expected = exact.encode_documents(some)
    model.precision = "int8"
    context = model.embed_context(corpus)
    lengths = np.linalg.norm(context, axis=1) * np.linalg.norm(exact_context, axis=1)
    assert 0.99 < (cosines(context, exact_context) / lengths).min() < 1 - 1e-5
    bound_now = model.with_context(corpus)
    assert 0.99 < cosines(bound_now.encode_documents(some), expected).min() < 1 - 1e-5
    # keys and values of the context that int8 computed are not read in float32
    model.precision = "float32"
    again = model.with_context(corpus).encode_documents(some)
    np.testing.assert_array_equal(again, expected)
    assert 0 < np.abs(exact.encode_documents(some) - expected).max() + 1e-9 < 1e-5


@pytest.mark.slow
def test_rankings_agree() -> None:
    """NDCG@10 over a small corpus of one package is the same within half a point."""
    pairs = cde.load_pairs("pydocs/networkx").sample(250, seed=3)
    judged = {name: {name: 1} for name in pairs.ids}
    collection = RetrievalSet(pairs.ids, pairs.documents, pairs.ids, pairs.queries, judged)
    scores = [
        score_queries(rank(minilm(word, max_tokens=32), collection), collection)["ndcg@10"]
        for word in ("float32", "int8")
    ]
    assert abs(100 * (scores[1] - scores[0]).mean()) < 0.5
    assert (scores[1] - scores[0]).abs().max() > 0


def test_float32_is_what_it_was_before_and_after(texts: list[str], exact: Vectors) -> None:
    encoder = minilm("int8")
    encoder.encode_documents(texts[:5])
    encoder.precision = "float32"
    np.testing.assert_array_equal(encoder.encode_documents(texts), exact)


def test_a_weight_that_changes_is_rounded_again(texts: list[str]) -> None:
    encoder, some = minilm("int8", layers=1), texts[:6]
    before = encoder.encode_documents(some)
    with torch.no_grad():
        for parameter in encoder.backbone.encoder.parameters():
            parameter.add_(0.05 * torch.sign(parameter))
    after = encoder.encode_documents(some)
    anew = copy.deepcopy(encoder).encode_documents(some)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(after, anew)
    encoder.load_state_dict(minilm("int8", layers=1).state_dict())
    np.testing.assert_array_equal(encoder.encode_documents(some), before)


def test_what_was_rounded_goes_with_its_weight() -> None:
    layer = torch.nn.Linear(64, 16)
    with torch.inference_mode(), multiplying("int8", CPU):
        layer(torch.randn(1, 2, 64))
    kept = weakref.ref(Int8Weight.known[layer.weight])
    assert kept() is not None
    del layer
    gc.collect()
    assert kept() is None


def test_nothing_of_it_is_saved(tmp_path: Path, texts: list[str]) -> None:
    encoder = minilm("float32", layers=1)
    encoder.save_pretrained(tmp_path / "before")
    encoder.precision = "int8"
    encoder.encode_documents(texts[:3])
    encoder.save_pretrained(tmp_path / "after")
    files = sorted(path.name for path in (tmp_path / "before").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "after").iterdir())
    for name in files:
        one, other = (tmp_path / folder / name for folder in ("before", "after"))
        assert one.read_bytes() == other.read_bytes(), name


# --- never mixed


def test_keys_tell_int8_apart_and_are_else_what_they_were() -> None:
    names = {word: Surrogate("minilm", 64, cast(Any, word)).fingerprint for word in WORDS}
    assert names["float32"] == "3bee00e09e9f7375" and names["bfloat16"] == "022497d0539cc1b6"
    assert len(set(names.values())) == 3
    marks = [fingerprint(minilm(word, layers=1)) for word in ("auto", *WORDS)]
    assert len(set(marks[:3])) == 1 and marks[3] not in marks[:3]
    # an index of either half precision is read with the other; one of int8 is not
    records = [record_of(Surrogate("minilm", 64, cast(Any, word))) for word in WORDS]
    assert records[0]["fingerprint"] == records[1]["fingerprint"] != records[2]["fingerprint"]


WORDS = ("float32", "bfloat16", "int8")
CORPUS = ["red boats", "blue ships on the sea", "a soup of onions"]


@pytest.mark.parametrize("made", ["surrogate", "bi-encoder"])
@pytest.mark.slow
def test_an_index_is_searched_in_the_precision_that_made_it(made: str, tmp_path: Path) -> None:
    def encoder(word: str) -> Any:
        surrogate = made == "surrogate"
        return Surrogate("minilm", 16, cast(Any, word)) if surrogate else minilm(word, layers=1)

    for own, other in (("int8", "float32"), ("float32", "int8"), ("auto", "int8")):
        folder = cde.Index(CORPUS, encoder=encoder(own)).save(tmp_path / f"{own}-{other}")
        with pytest.raises(
            ValueError, match="int8.*another encoder|and .*int8.* is another encoder"
        ):
            cde.Index.load(folder, encoder=encoder(other))
        found = chosen_precision(cde.Index.load(folder).encoder.precision)
        assert found == chosen_precision(own)


def test_an_index_keeps_its_precision_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CDE_PRECISION", raising=False)
    plain = cde.Index(CORPUS, encoder=minilm("auto", layers=1)).save(tmp_path / "plain")
    monkeypatch.setenv("CDE_PRECISION", "int8")
    assert cde.Index.load(plain).encoder.precision in ("bfloat16", "float32")
    whole = cde.Index(CORPUS, encoder=minilm("auto", layers=1)).save(tmp_path / "whole")
    monkeypatch.delenv("CDE_PRECISION")
    assert cde.Index.load(whole).encoder.precision == "int8"


# --- training, and other devices


def test_training_refuses_it() -> None:
    with pytest.raises(ValueError, match="precision.*'int8'"):
        cde.TrainConfig(precision=cast(Any, "int8"))
    with pytest.raises(ValueError, match="it is 'int8', which is for embedding texts alone"):
        half_precision("int8")
    layer = torch.nn.Linear(64, 16)
    with pytest.raises(RuntimeError, match="no gradient"), multiplying("int8", CPU):
        layer(torch.randn(1, 2, 64))


def test_under_int8_texts_are_embedded_in_it_and_training_is_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = cast(Any, SimpleNamespace(fingerprint="pairs"))
    config = cde.TrainConfig(architecture="bi-encoder", precision="float32")
    monkeypatch.setenv("CDE_PRECISION", "float32")
    plain = run_key(config, pairs)
    assert trained_in("auto") == "float32"
    monkeypatch.setenv("CDE_PRECISION", "int8")
    assert (chosen_precision("auto"), half_precision("auto")) == ("int8", False)
    assert Surrogate("minilm").precision == "int8"
    assert chosen_precision("bfloat16") == "bfloat16" and half_precision("bfloat16")
    # its batches are made by other vectors: it is another run
    assert run_key(config, pairs) != plain
    assert hardware.describe().endswith("int8")


def test_another_device_is_refused() -> None:
    with (
        pytest.raises(ValueError, match="'int8' is for CPUs, and the model is on cuda"),
        multiplying("int8", torch.device("cuda")),
    ):
        pass
