"""Laws of the two stages: context as a set, texts apart from their batch, null context, pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import (
    BACKBONES,
    DIM,
    FAMILIES,
    PATTERNS,
    VOCABULARY,
    new_model,
    padded,
    random_context,
    shared_model,
)
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cde.models import ContextualConfig
from cde.models.backbones import mean_of_chunks, mean_of_parts, mean_of_tokens

tokens = st.integers(3, VOCABULARY - 1)
texts = st.lists(st.lists(tokens, min_size=1, max_size=9), min_size=1, max_size=4)
seeds = st.integers(0, 1000)
few = settings(max_examples=20)
every_model = pytest.mark.parametrize(
    ("family", "attention"), [(family, attention) for family in FAMILIES for attention in PATTERNS]
)
TEXTS = [[5, 9, 10, 33, 7, 41, 10, 2, 60, 3], [8, 61, 20, 3, 4, 15], [11]]


def assert_near(actual: Tensor, expected: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def stages(family: str, attention: str, **settings: Any) -> tuple[Any, Any]:
    model = shared_model(family, attention, soft_prompt_tokens=2, **settings)
    return model.first_stage, model.second_stage


# --- the context is a set


@every_model
@few
@given(texts, st.permutations(range(6)), seeds)
def test_permuting_the_context_changes_nothing(
    family: str, attention: str, texts: list[list[int]], order: list[int], seed: int
) -> None:
    _, second = stages(family, attention)
    context = random_context(6, seed)
    with torch.no_grad():
        assert_near(second(*padded(texts), context[order]), second(*padded(texts), context))


@every_model
@few
@given(st.lists(tokens, min_size=3, max_size=9, unique=True), st.integers(0, 4))
def test_permuting_the_tokens_of_a_text_changes_something(
    family: str, attention: str, text: list[int], documents: int
) -> None:
    first, second = stages(family, attention)
    ids = torch.tensor([text, text[::-1]])
    with torch.no_grad():
        for embeddings in (first(ids), second(ids, None, random_context(documents))):
            assert (embeddings[0] - embeddings[1]).abs().max() > 1e-4


@every_model
@few
@given(texts, st.integers(0, 3), seeds)
def test_every_context_document_changes_something(
    family: str, attention: str, texts: list[list[int]], place: int, seed: int
) -> None:
    _, second = stages(family, attention)
    context = random_context(4, seed)
    other = context.clone()
    other[place] = random_context(1, seed + 2000)
    with torch.no_grad():
        difference = (
            (second(*padded(texts), other) - second(*padded(texts), context)).abs().amax(dim=1)
        )
    assert (difference > 1e-4).all()


# --- a text is embedded by itself


@every_model
@few
@given(texts, st.booleans(), st.integers(0, 4), st.integers(0, 4))
def test_a_text_s_embedding_depends_neither_on_its_batch_nor_on_its_padding(
    family: str, attention: str, texts: list[list[int]], left: bool, extra: int, documents: int
) -> None:
    first, second = stages(family, attention)
    in_parts, _ = stages(family, attention, vectors_per_document=3)
    context, batch = random_context(documents), padded(texts, left, extra)
    with torch.no_grad():
        together = first(*batch), in_parts(*batch), second(*batch, context)
        for row, text in enumerate(texts):
            alone = torch.tensor([text])
            assert_near(together[0][row], first(alone)[0])
            parts = mean_of_parts(in_parts.hidden_states(alone, None), None, 3)
            assert_near(together[1][row], in_parts.mlp(parts)[0])
            assert_near(together[2][row], second(alone, None, context)[0])


@every_model
@few
@given(texts, st.integers(0, 4), seeds)
def test_one_context_a_text_is_each_text_in_its_own(
    family: str, attention: str, texts: list[list[int]], documents: int, seed: int
) -> None:
    _, second = stages(family, attention)
    contexts = random_context(documents, seed, batch=len(texts))
    with torch.no_grad():
        embeddings = second(*padded(texts), contexts)
        for row, text in enumerate(texts):
            assert_near(embeddings[row], second(torch.tensor([text]), None, contexts[row])[0])


# --- the null context


@every_model
@few
@given(texts, st.integers(0, 5), seeds)
def test_in_the_null_context_only_the_number_of_documents_matters(
    family: str, attention: str, texts: list[list[int]], documents: int, seed: int
) -> None:
    _, second = stages(family, attention)
    with torch.no_grad():
        embeddings = second(*padded(texts), random_context(documents, seed), null_context=True)
        written_out = second.null_embedding.expand(documents, -1)
        assert_near(embeddings, second(*padded(texts), written_out))
        assert torch.equal(
            embeddings, second(*padded(texts), torch.ones(documents, DIM), null_context=True)
        )
        assert_near(
            second(*padded(texts), random_context(4, seed), null_context=True),
            second(*padded(texts), None),
        )


# --- sequence dropout


@every_model
def test_almost_certain_sequence_dropout_is_the_null_context_in_training_alone(
    family: str, attention: str
) -> None:
    model = new_model(family, attention, sequence_dropout=0.999999, soft_prompt_tokens=2)
    context = random_context(5)
    torch.manual_seed(0)
    with torch.no_grad():
        whole = model.second_stage(*padded(TEXTS), context)
        null = model.second_stage(*padded(TEXTS), context, null_context=True)
        assert_near(model.train().second_stage(*padded(TEXTS), context), null)
        assert torch.equal(model.eval().second_stage(*padded(TEXTS), context), whole)
    assert (whole - null).abs().max() > 1e-2
    without = new_model(family, attention, sequence_dropout=0.0, soft_prompt_tokens=2)
    assert torch.equal(without.train().second_stage(*padded(TEXTS), context), whole)


@pytest.mark.parametrize("per_text", [False, True])
@pytest.mark.parametrize("attention", PATTERNS)
@pytest.mark.parametrize("rate", [0.005, 0.3])
def test_context_tokens_are_dropped_independently_at_the_rate(
    attention: str, rate: float, per_text: bool
) -> None:
    model = new_model("nomic_bert", attention, sequence_dropout=rate).train()
    batch = 40
    context = random_context(500, batch=batch if per_text else None)
    torch.manual_seed(1)
    rows = [
        model.second_stage.context_tokens(context, False, batch)
        for _ in range(40 if attention == "cached" else 1)
    ]
    context_tokens = torch.cat([row.flatten(0, -3) if row.ndim > 3 else row for row in rows])
    dropped = (context_tokens == model.second_stage.null_embedding).all(dim=-1)
    count, expected = dropped.numel(), rate * dropped.numel()
    assert count >= 20_000
    # five standard deviations, of all drops, of those of the fullest row and of one text's
    # neighbours
    assert abs(int(dropped.sum()) - expected) < 5 * np.sqrt(expected * (1 - rate))
    rows_expected = rate * 500
    assert (dropped.sum(dim=1) - rows_expected).abs().max() < 5.5 * np.sqrt(
        rows_expected * (1 - rate)
    ) + 1
    joint, both = int((dropped[1:] & dropped[:-1]).sum()), rate**2 * dropped[1:].numel()
    assert abs(joint - both) < 6 * np.sqrt(both) + 1
    kept = context if per_text else context[None]
    untouched = ~dropped
    wide = kept.repeat(len(rows) if attention == "cached" else 1, 1, 1).expand(*dropped.shape, -1)
    assert torch.equal(context_tokens[untouched], wide[untouched])


@every_model
def test_dropped_documents_get_no_gradient_and_the_null_token_gets_theirs(
    family: str, attention: str
) -> None:
    model = new_model(family, attention, sequence_dropout=0.5).train()
    context = random_context(8).requires_grad_()
    torch.manual_seed(2)
    dropped = (
        model.second_stage.context_tokens(context, False, 1)[0] == model.second_stage.null_embedding
    ).all(dim=-1)
    assert 0 < dropped.sum() < 8
    torch.manual_seed(2)
    model.second_stage(*padded(TEXTS[:1]), context).pow(2).sum().backward()
    assert ((context.grad == 0).all(dim=-1) == dropped).all()
    assert model.second_stage.null_embedding.grad.abs().sum() > 0


# --- weights and gradients


@every_model
def test_gradients_flow_through_the_context_into_the_whole_first_stage(
    family: str, attention: str
) -> None:
    model = new_model(family, attention)
    ids, mask = padded(TEXTS)
    model(ids, mask, model.first_stage(ids, mask)).pow(2).sum().backward()
    still = {
        name
        for name, part in model.first_stage.named_parameters()
        if part.grad is None or not part.grad.any()
    }
    # BERT's key biases move no softmax, and rounding alone decides whether that comes out as zero
    assert all(name.endswith("key.bias") for name in still)
    model.zero_grad()
    context = model.first_stage(ids, mask)
    model.second_stage(ids, mask, context, null_context=True).sum().backward()
    assert all(part.grad is None for part in model.first_stage.parameters())


# --- several vectors a document


@every_model
@few
@given(texts, st.integers(0, 3), seeds)
def test_vectors_of_a_document_are_context_tokens_like_any(
    family: str, attention: str, texts: list[list[int]], documents: int, seed: int
) -> None:
    _, several = stages(family, attention, vectors_per_document=3)
    _, single = stages(family, attention)
    context = random_context(3 * documents, seed)
    each = random_context(3 * documents, seed, batch=len(texts))
    with torch.no_grad():
        for flat in (context, each):
            shaped = flat.unflatten(-2, (documents, 3))
            assert_near(several(*padded(texts), shaped), single(*padded(texts), flat))


# --- shapes that do not fit


@pytest.mark.parametrize("family", FAMILIES)
def test_stages_of_two_sizes_are_refused_unless_an_mlp_joins_them(family: str) -> None:
    wide = {**BACKBONES[family], "hidden_size": 48}
    with pytest.raises(ValueError, match="48 dimensions.*32.*first_stage_mlp=True"):
        new_model(family, first_backbone=wide, first_stage_mlp=False)
    model, (ids, mask) = new_model(family, first_backbone=wide), padded(TEXTS)
    assert model.first_stage.hidden_states(ids, mask.bool()).shape[-1] == 48
    assert model(ids, mask, model.first_stage(ids, mask)).shape == (3, model.dim) == (3, DIM)


def test_word_embeddings_of_two_vocabularies_are_not_tied() -> None:
    other = {**BACKBONES["bert"], "vocab_size": 50}
    with pytest.raises(ValueError, match=r"\(50, 32\).*\(64, 32\)"):
        new_model("bert", first_backbone=other, tie_token_embeddings=True)


# --- dropout of the backbones


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variant": "hub", "attention": "cached"}, "'hub'.*'paper'"),
        ({"pool": "all"}, "for published checkpoints"),
        ({"sequence_dropout": 1.0}, "below 1.*1.0"),
        ({"null_token": False}, "null_token must be True"),
        ({"first_backbone": {"model_type": "t5"}}, "first_backbone.*'t5'.*bert,"),
    ],
)
def test_a_setting_that_makes_no_model_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ContextualConfig(**changes)


@every_model
def test_dropout_reaches_every_place_of_both_backbones(family: str, attention: str) -> None:
    model = new_model(family, attention, dropout=0.25)
    told: list[float] = []

    def listening(module: Any, *arguments: Any, dropout: float = 0.0, **options: Any) -> Any:
        told.append(dropout)
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, *arguments, dropout=dropout, **options)

    ALL_ATTENTION_FUNCTIONS.register("listening", listening)
    ids, mask = padded(TEXTS)
    for stage in (model.first_stage, model.second_stage):
        stage.attention["implementation"] = "listening"
        rates = {part.p for part in stage.modules() if isinstance(part, torch.nn.Dropout)}
        assert rates == {0.25}

    def embed() -> tuple[Tensor, Tensor]:
        return model.first_stage(ids, mask), model.second_stage(ids, mask, random_context(4))

    with torch.no_grad():
        still, again = embed(), embed()
        assert set(told) == {0.0}
        told.clear()
        model.train()
        noisy, other = embed(), embed()
        assert set(told) == {0.25}
    for stage in (0, 1):
        assert torch.equal(still[stage], again[stage])
        assert (noisy[stage] - other[stage]).abs().max() > 1e-2


@every_model
def test_training_without_dropout_computes_what_evaluation_does(
    family: str, attention: str
) -> None:
    """Also where the backbone's own config asks for dropout: the encoder's setting replaces it."""
    rates = ["hidden_dropout_prob", "attention_probs_dropout_prob"]
    if family == "modernbert":
        rates = ["attention_dropout", "embedding_dropout", "mlp_dropout"]
    noisy = BACKBONES[family] | dict.fromkeys(rates, 0.4)
    backbones = {"first_backbone": noisy, "second_backbone": noisy}
    model = new_model(family, attention, sequence_dropout=0.0, **backbones)
    ids, mask = padded(TEXTS)
    embeddings = []
    for training in (False, True):
        model.train(training)
        embeddings.append(model(ids, mask, model.first_stage(ids, mask)))
    assert torch.equal(*embeddings)


# --- the soft prompt and pooling


@every_model
def test_the_soft_prompt_is_two_layers_on_ones_and_acts_as_context(
    family: str, attention: str
) -> None:
    """`soft_prompt` given as context vectors is the same, also where there is no other context."""
    model = new_model(family, attention, soft_prompt_tokens=3)
    inner, outer = model.second_stage.prompt_projection[0], model.second_stage.prompt_projection[2]
    hidden = (inner.weight.sum(dim=1) + inner.bias).clamp(min=0)
    prompt = (outer.weight @ hidden + outer.bias).reshape(3, DIM)
    assert_near(model.second_stage.soft_prompt(), prompt)
    plain = new_model(family, attention)
    plain.load_state_dict(
        {name: value for name, value in model.state_dict().items() if "prompt" not in name}
    )
    for context in (random_context(4), random_context(0)):
        embeddings = model.second_stage(*padded(TEXTS), context)
        assert_near(embeddings, plain.second_stage(*padded(TEXTS), torch.cat([context, prompt])))


@every_model
def test_the_output_is_the_mean_of_the_text_s_own_tokens_with_a_projection_added(
    family: str, attention: str
) -> None:
    model = shared_model(family, attention, soft_prompt_tokens=2)
    second = model.second_stage
    ids, mask = padded(TEXTS)
    embeddings = second(ids, mask, random_context(4))
    hidden, _ = second.hidden_states(ids, mask.bool(), random_context(4))
    inner, outer = second.output_projection[0], second.output_projection[2]
    for row, text in enumerate(TEXTS):
        mean = hidden[row, : len(text)].mean(dim=0)
        assert_near(
            embeddings[row],
            mean + outer.weight @ (inner.weight @ mean + inner.bias).clamp(min=0) + outer.bias,
        )


ROW = torch.tensor([[[1.0], [2.0], [4.0], [8.0], [16.0]]])


@pytest.mark.parametrize(
    ("mask", "mean", "parts", "chunks"),
    [
        # five tokens in two parts: three and two; chunks pad five to six
        ([1, 1, 1, 1, 1], 6.2, [7 / 3, 12], [7 / 3, 12]),
        ([1, 1, 1, 1, 0], 3.75, [1.5, 6], [7 / 3, 8]),
        # a part of no token is the whole text; a chunk of no token the whole row, padding and all
        ([1, 1, 1, 0, 0], 7 / 3, [1.5, 4], [7 / 3, 31 / 6]),
        ([1, 0, 0, 0, 0], 1, [1, 1], [1, 31 / 6]),
    ],
)
def test_means_are_those_on_paper(
    mask: list[int], mean: float, parts: list[float], chunks: list[float]
) -> None:
    kept = torch.tensor([mask], dtype=torch.bool)
    assert mean_of_tokens(ROW, kept).flatten().tolist() == pytest.approx([mean])
    assert mean_of_parts(ROW, kept, 2).flatten().tolist() == pytest.approx(parts)
    assert mean_of_chunks(ROW, kept, 2).flatten().tolist() == pytest.approx(chunks)
    if all(mask):
        assert mean_of_tokens(ROW, None).flatten().tolist() == pytest.approx([mean])
        assert mean_of_parts(ROW, None, 2).flatten().tolist() == pytest.approx(parts)
        assert mean_of_chunks(ROW, None, 2).flatten().tolist() == pytest.approx(chunks)


@given(st.integers(1, 20), st.integers(1, 7), st.integers(0, 5))
def test_parts_are_contiguous_in_order_and_nearly_equal(
    length: int, parts: int, padding: int
) -> None:
    """Of one-hot tokens, a part's mean says which tokens are in it."""
    hidden = torch.eye(length + padding)[None]
    mask = (torch.arange(length + padding) < length)[None]
    inside = mean_of_parts(hidden, mask, parts)[0] > 0
    assert not inside[:, length:].any()
    if length < parts:
        return
    sizes = inside.sum(dim=1).tolist()
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == length
    assert inside[:, :length].nonzero()[:, 1].tolist() == list(range(length))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_are_taken_in_float32(dtype: torch.dtype) -> None:
    hidden = torch.full((1, 3000, 2), 1.0, dtype=dtype)
    hidden[0, 0] = 256.0
    mask = torch.ones(1, 3000, dtype=torch.bool)
    for mean in (
        mean_of_tokens(hidden, mask),
        mean_of_tokens(hidden, None),
        mean_of_parts(hidden, mask, 1),
    ):
        assert mean.dtype == torch.float32
        torch.testing.assert_close(mean.flatten(), torch.full((2,), 3255 / 3000))
