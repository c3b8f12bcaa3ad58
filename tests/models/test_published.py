"""Published checkpoints: the authors' outputs and gradients, and a plain pass from their spec."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import DIM, FAMILIES, padded, random_context, shared_model
from torch import Tensor
from torch.nn import functional

from cde.models import ContextualConfig, ContextualEncoder, load_published
from cde.models.published import (
    BACKBONE_DIMENSIONS,
    PublishedFirstStage,
    PublishedSecondStage,
    published_config,
    published_names,
    row_order,
)
from cde.models.stages import FirstStage, SecondStage

HERE = Path(__file__).parents[1] / "golden"
REFERENCE = os.environ.get("CDE_REFERENCE")
VARIANT_OF = {"hf_model": "hub", "train_flash_emulated": "train", "train_modernbert": "v2"}


def to_published(
    config: ContextualConfig, ours: Mapping[str, Tensor | None], names: list[str]
) -> dict[str, Tensor | None]:
    """Tensors of ours (weights, or gradients) under the published names that are asked for."""
    called = published_names(config, ours)
    result: dict[str, Tensor | None] = {}
    for name in names:
        parts: list[Tensor] = []
        for own in (own for own, theirs in called.items() if theirs == name):
            if (part := ours[own]) is not None:
                order = row_order(config, own)
                parts.append(part if order is None else part[order.argsort()])
        result[name] = torch.cat(parts) if parts else None
    return result


def is_case(path: Path) -> bool:
    return "contextual_config" in json.loads(path.read_text(encoding="utf-8"))


def paths(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.json")) if is_case(path)]


CASES = [pytest.param(path, id=path.stem) for path in paths(HERE)]
if REFERENCE:
    CASES += [
        pytest.param(path, id=f"reference-{path.stem}")
        for path in paths(Path(REFERENCE) / "golden")
    ]
else:
    unset = pytest.mark.skip(
        reason="CDE_REFERENCE is not set: the authors' other golden cases are not here"
    )
    CASES.append(pytest.param(HERE, id="reference", marks=unset))
every_case = pytest.mark.parametrize("path", CASES)


@dataclass(frozen=True)
class Case:
    """One golden case: how the model is made, what goes in and what came out."""

    values: dict[str, Any]
    tensors: dict[str, Tensor]
    weights: dict[str, Tensor]

    @property
    def contextual(self) -> dict[str, Any]:
        # the authors look the colon up in a tokenizer that is not here
        return {**self.values["contextual_config"], "colon_token_id": self.values["colon_token_id"]}

    def model(self, weights: dict[str, Tensor] | None = None, **changes: Any) -> ContextualEncoder:
        return load_published(
            self.weights if weights is None else weights,
            {**self.contextual, **changes},
            self.values["backbone_config"],
            VARIANT_OF[self.values["variant"]],
        )


@cache
def read_case(path: Path) -> Case:
    values = json.loads(path.read_text(encoding="utf-8"))
    tensors = load_file(path.with_name(f"{path.stem}.io.safetensors"))
    return Case(values, tensors, load_file(path.with_name(values["weights_file"])))


def case(name: str) -> Case:
    return read_case(HERE / f"{name}.json")


def outputs(model: ContextualEncoder, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """All that the authors' code was asked for, under the names of the golden files."""
    ids, mask = given["input_ids"], given["attention_mask"]
    dataset_ids, dataset_mask = given["dataset_input_ids"], given["dataset_attention_mask"]
    first, second = model.first_stage, model.second_stage
    context = first(dataset_ids, dataset_mask)
    documents = second(ids, mask, context)
    queries = second(given["query_input_ids"], given["query_attention_mask"], context)
    scores = 50 * functional.normalize(queries, dim=-1) @ functional.normalize(documents, dim=-1).T
    asked = min(scores.shape)
    computed = {
        "first_stage.backbone_last_hidden_state": first.hidden_states(
            dataset_ids, dataset_mask.bool()
        ),
        "first_stage.output": context,
        "soft_prompt": second.soft_prompt(),
        "second_stage.docs": documents,
        "second_stage.docs.hidden_states": second.hidden_states(ids, mask.bool(), context)[0],
        "second_stage.queries": queries,
        "second_stage.docs_null": second(ids, mask, context, null_context=True),
        "second_stage.docs_zero_context": second(ids, mask, torch.zeros_like(context)),
        "second_stage.docs_ctx_reversed": second(ids, mask, context.flip(0)),
        "second_stage.docs_swapped_tokens": second(given["swapped_input_ids"], mask, context),
        "scores_x50": scores,
        "loss": functional.cross_entropy(scores[:asked], torch.arange(asked))[None],
    }
    for name in ("fewer", "oversampled", "more", "per_example"):
        key = f"second_stage.docs_{name}" + ("_ctx" if name == "per_example" else "")
        if key in given:
            computed[key] = second(ids, mask, given[f"ctx_{name}"])
    return computed


INPUTS = ("input_ids", "attention_mask", "query_", "dataset_", "swapped_", "ctx_", "grad:")


@every_case
def test_every_output_is_the_authors_to_1e_5(path: Path) -> None:
    """Of a tensor's largest value (or of 1); float64 is up to 1.4e-5 from the recording."""
    golden = read_case(path)
    expected = {
        name: tensor for name, tensor in golden.tensors.items() if not name.startswith(INPUTS)
    }
    with torch.no_grad():
        computed = outputs(golden.model(), golden.tensors)
    real = {
        "first_stage.backbone_last_hidden_state": golden.tensors["dataset_attention_mask"].bool(),
        "second_stage.docs.hidden_states": golden.tensors["attention_mask"].bool(),
    }
    assert set(expected) <= set(computed)  # nothing that was recorded goes unchecked
    wrong = {}
    for name, tensor in expected.items():
        assert computed[name].shape == tensor.shape, name
        difference = (computed[name] - tensor).abs() / max(1.0, float(tensor.abs().max()))
        worst = float((difference[real[name]] if name in real else difference).max())
        if not worst <= 1e-5:
            wrong[name] = worst
    assert not wrong


@every_case
def test_every_gradient_is_the_authors(path: Path) -> None:
    golden = read_case(path)
    model = golden.model()
    outputs(model, golden.tensors)["loss"].backward()
    norms: dict[str, float | None] = golden.values["grad_norms"]
    own = {
        name: parameter.grad for name, parameter in model.named_parameters(remove_duplicate=False)
    }
    gradients = to_published(model.config, own, list(norms))
    for name, norm in norms.items():
        gradient = gradients[name]
        if norm is None:
            assert gradient is None or not gradient.any(), name
        else:
            assert gradient is not None, name
            assert float(gradient.norm()) == pytest.approx(norm, rel=1e-4), name
    for name, tensor in golden.tensors.items():
        if name.startswith("grad:"):
            ours = gradients[name.removeprefix("grad:")]
            assert ours is not None
            torch.testing.assert_close(
                ours, tensor, rtol=1e-4, atol=2e-5 * float(tensor.abs().max())
            )


# --- a plain pass, from the spec

#: the authors' model "hf_a", of two layers
TINY: dict[str, Any] = case("hf_a").values["backbone_config"]
CONTEXTUAL = case("hf_a").contextual
IDS = torch.tensor([[5, 9, 10, 33, 7, 41, 10, 2], [8, 61, 20, 3, 4, 15, 16, 23]])


def two_layers(
    tensors: dict[str, Tensor], name: str, x: Tensor, activation: Callable[[Tensor], Tensor]
) -> Tensor:
    inner = activation(x @ tensors[f"{name}.0.weight"].T + tensors[f"{name}.0.bias"])
    return inner @ tensors[f"{name}.2.weight"].T + tensors[f"{name}.2.bias"]


def turned(vector: Tensor, angle: float, fraction: float, interleaved: bool) -> Tensor:
    """One query or key of one head, its pairs of dimensions turned one by one (SPEC c5)."""
    result = vector.clone()
    rotated = int(len(vector) * fraction)
    for pair in range(rotated // 2):
        first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + rotated // 2)
        theta = angle * 1000 ** (-2 * pair / rotated)
        x, y = vector[first], vector[second]
        result[first] = x * math.cos(theta) - y * math.sin(theta)
        result[second] = x * math.sin(theta) + y * math.cos(theta)
    return result


def plain_backbone(
    tensors: dict[str, Tensor],
    stage: str,
    x: Tensor,
    start: int,
    backbone: dict[str, Any],
    by_head: bool,
) -> Tensor:
    """Embedding norm and layers over one sequence `(S, 32)` without padding (SPEC c2 to c7)."""

    def norm(name: str, x: Tensor) -> Tensor:
        return functional.layer_norm(
            x, (32,), tensors[f"{stage}{name}.weight"], tensors[f"{stage}{name}.bias"], 1e-12
        )

    fraction, interleaved = backbone["rotary_emb_fraction"], backbone["rotary_emb_interleaved"]
    x = norm("emb_ln", x)
    for layer in range(backbone["n_layer"]):
        own = f"{stage}encoder.layers.{layer}."
        query, key, value = (
            (x @ tensors[f"{own}attn.Wqkv.weight"].T).reshape(len(x), 3, 4, 8).unbind(1)
        )
        mixed = torch.zeros(len(x), 4, 8)
        for head in range(4):

            def turn(states: Tensor, head: int = head) -> Tensor:
                angles = [
                    float(head if by_head else place) if place >= start else 0.0
                    for place in range(len(states))
                ]
                rows = zip(states[:, head], angles, strict=True)
                return torch.stack(
                    [turned(row, angle, fraction, interleaved) for row, angle in rows]
                )

            mixed[:, head] = (turn(query) @ turn(key).T / math.sqrt(8)).softmax(dim=-1) @ value[
                :, head
            ]
        x = norm(
            f"encoder.layers.{layer}.norm1",
            mixed.reshape(len(x), 32) @ tensors[f"{own}attn.out_proj.weight"].T + x,
        )
        gate = functional.silu(x @ tensors[f"{own}mlp.fc12.weight"].T)
        inner = (x @ tensors[f"{own}mlp.fc11.weight"].T) * gate
        x = norm(f"encoder.layers.{layer}.norm2", inner @ tensors[f"{own}mlp.fc2.weight"].T + x)
    return x


def embeddings(tensors: dict[str, Tensor], stage: str, ids: Tensor) -> Tensor:
    words, types = (
        tensors[f"{stage}embeddings.{name}_embeddings.weight"] for name in ("word", "token_type")
    )
    return words[ids] + types[0]


def plain_first_stage(
    tensors: dict[str, Tensor], ids: Tensor, backbone: dict[str, Any], variant: str
) -> Tensor:
    stage = "first_stage_model.embedder."
    x = plain_backbone(
        tensors, stage, embeddings(tensors, stage, ids), 0, backbone, variant == "hub"
    )
    return two_layers(tensors, "first_stage_model.mlp", x.mean(dim=0), functional.gelu)


def plain_second_stage(
    tensors: dict[str, Tensor],
    ids: Tensor,
    context: Tensor,
    backbone: dict[str, Any],
    variant: str,
    start: int,
) -> Tensor:
    stage = "second_stage_model.backbone."
    soft = two_layers(
        tensors, "second_stage_model.prompt_projection", torch.ones(32), torch.relu
    ).reshape(8, 32)
    x = torch.cat([context, soft, embeddings(tensors, stage, ids)])
    if variant == "hub":
        x = x + tensors[f"{stage}embeddings.token_type_embeddings.weight"][0]
    x = plain_backbone(tensors, stage, x, start, backbone, variant == "hub")
    pooled = x[len(context) + 8 :].mean(dim=0)
    projected = two_layers(tensors, "second_stage_model.output_projection", pooled, torch.relu)
    return projected if variant == "hub" else projected + pooled


ROTATIONS = [(fraction, interleaved) for fraction in (1.0, 0.5) for interleaved in (False, True)]


@pytest.mark.parametrize(("fraction", "interleaved"), ROTATIONS)
@pytest.mark.parametrize("variant", ["train", "hub"])
@pytest.mark.parametrize("context_turned", [False, True])
def test_both_stages_are_those_of_a_plain_pass(
    variant: str, fraction: float, interleaved: bool, context_turned: bool
) -> None:
    backbone = {**TINY, "rotary_emb_fraction": fraction, "rotary_emb_interleaved": interleaved}
    weights = case("hf_a").weights
    settings = {**CONTEXTUAL, "disable_transductive_rotary_embedding": not context_turned}
    model = load_published(weights, settings, backbone, variant)
    context = torch.randn(6, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        first, second = model.first_stage(IDS), model.second_stage(IDS, None, context)
    start = 0 if context_turned else 6
    for row, ids in enumerate(IDS):
        torch.testing.assert_close(
            first[row], plain_first_stage(weights, ids, backbone, variant), rtol=0, atol=2e-5
        )
        expected = plain_second_stage(weights, ids, context, backbone, variant, start)
        torch.testing.assert_close(second[row], expected, rtol=0, atol=2e-5)


# --- this book's pass in their terms


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_column_of_the_table_is_this_book_s_pass(family: str) -> None:
    """The published stages, told to run it, compute the same to the bit."""
    model = shared_model(family, soft_prompt_tokens=2)
    first, second = PublishedFirstStage(model.config, DIM), PublishedSecondStage(model.config)
    context, (ids, mask) = random_context(4), padded([[5, 9, 10, 33], [8, 61]])
    for own, theirs in ((model.first_stage, first), (model.second_stage, second)):
        assert type(own) in (FirstStage, SecondStage)
        theirs.load_state_dict(own.state_dict())
    with torch.no_grad():
        assert torch.equal(first.eval()(ids, mask), model.first_stage(ids, mask))
        assert torch.equal(
            second.eval()(ids, mask, context), model.second_stage(ids, mask, context)
        )
    assert second.window_spares_context == model.second_stage.window_spares_context


# --- options without a golden case


@pytest.mark.parametrize("name", ["hf_a", "train_a", "mbert_a"])
def test_a_limit_of_layers_is_a_backbone_with_so_many(name: str) -> None:
    golden = case(name)
    whole, variant = golden.values["backbone_config"], VARIANT_OF[golden.values["variant"]]
    unlimited = published_config(golden.contextual, whole, variant)
    shortened = {**whole, "n_layer" if "n_layer" in whole else "num_hidden_layers": 1}
    for limit, second, first in (
        ("limit_layers", shortened, whole),
        ("limit_layers_first_stage", whole, shortened),
    ):
        limited = published_config({**golden.contextual, limit: 1}, whole, variant)
        expected = published_config(golden.contextual, second, variant, first)
        assert limited.to_dict() == expected.to_dict() != unlimited.to_dict()


@pytest.mark.parametrize(
    "setting", ["pool_ignore_contextual_tokens", "pool_ignore_instruction_tokens"]
)
def test_the_hub_file_pools_over_the_text_whatever_is_set(setting: str) -> None:
    models = [case("hf_a").model(**{setting: value}) for value in (False, True)]
    vectors = [model.second_stage(IDS, None, torch.ones(6, 32)) for model in models]
    assert torch.equal(*vectors)


@pytest.mark.parametrize("pool_text", [True, False])
@pytest.mark.parametrize("name", ["train_a", "mbert_a"])
def test_instructions_up_to_the_first_colon_attend_and_are_not_pooled(
    name: str, pool_text: bool
) -> None:
    golden = case(name)
    settings = {"pool_ignore_instruction_tokens": True, "colon_token_id": 10}
    model = golden.model(**settings, pool_ignore_contextual_tokens=pool_text).second_stage
    context = golden.tensors["first_stage.output"]
    rows = [
        ([5, 10, 7, 8, 9, 6], [2, 3, 4, 5]),  # the usual prompt
        ([5, 6, 10, 8, 10, 9], [3, 4, 5]),  # a second colon is text
        ([10, 6, 7, 8, 9, 5], [0, 1, 2, 3, 4, 5]),  # a colon at the start begins no instruction
        ([10, 6, 10, 8, 9, 5], [3, 4, 5]),  # and does not hide one
        ([5, 6, 7, 8, 9, 4], [0, 1, 2, 3, 4, 5]),  # none
        ([5, 10, 7, 8, 0, 0], [2, 3]),  # padding is never pooled
    ]
    ids = torch.tensor([row for row, _ in rows])
    mask = ids != 0
    with torch.no_grad():
        hidden, prefix = model.hidden_states(ids, mask, context)
        vectors = model(ids, mask, context)
        for row, (_, pooled) in enumerate(rows):
            seen = (
                hidden[row, pooled] if pool_text else torch.cat([prefix[row], hidden[row, pooled]])
            )
            mean = seen.mean(dim=0)
            torch.testing.assert_close(
                vectors[row], model.output_projection(mean) + mean, rtol=0, atol=1e-5
            )


#: the published names of the word embeddings of NomicBERT
WORDS = (
    "first_stage_model.embedder.embeddings.word_embeddings.weight",
    "second_stage_model.backbone.embeddings.word_embeddings.weight",
)


def words_of(model: ContextualEncoder) -> list[Any]:
    return [
        stage.backbone.embeddings.word_embeddings.weight
        for stage in (model.first_stage, model.second_stage)
    ]


def test_tied_word_embeddings_are_one_tensor_under_either_published_name() -> None:
    golden = case("train_a")
    both = {**golden.weights, WORDS[1]: golden.weights[WORDS[0]]}
    untied = golden.model(both)
    loss = outputs(untied, golden.tensors)["loss"]
    loss.backward()
    summed = sum(words.grad for words in words_of(untied))
    for left_out in (None, *WORDS):
        weights = {name: tensor for name, tensor in both.items() if name != left_out}
        tied = golden.model(weights, transductive_tie_token_embeddings=True)
        own = outputs(tied, golden.tensors)["loss"]
        own.backward()
        assert own.item() == loss.item()
        assert len(list(untied.parameters())) - len(list(tied.parameters())) == 1
        first, second = words_of(tied)
        assert first is second
        torch.testing.assert_close(second.grad, summed)
    neither = {name: tensor for name, tensor in both.items() if name not in WORDS}
    with pytest.raises(ValueError, match="missing.*backbone.embeddings.word_embeddings.weight"):
        golden.model(neither, transductive_tie_token_embeddings=True)


def test_of_two_tied_embeddings_that_differ_the_second_stage_s_counts() -> None:
    """As torch fills the authors' model in the order of its parts: the later one overwrites."""
    golden = case("train_a")
    second = golden.weights[WORDS[1]]
    weights = {**golden.weights, WORDS[0]: second + 1}
    for words in words_of(golden.model(weights, transductive_tie_token_embeddings=True)):
        torch.testing.assert_close(words.detach(), second.to(words))


@pytest.mark.parametrize(("inner", "width"), [(3072, 3072), (3000, 3072), (1, 256), (None, 512)])
def test_the_inner_width_is_rounded_up_to_256(inner: int | None, width: int) -> None:
    """By default it is four times the model's, here 288."""
    backbone = {**BACKBONE_DIMENSIONS["nomic-ai/nomic-bert-2048"], "n_embd": 72, "n_head": 6}
    config = published_config(CONTEXTUAL, {**backbone, "n_inner": inner})
    assert config.second_backbone["intermediate_size"] == width


def test_without_sequence_dropout_there_is_no_null_token() -> None:
    golden = case("hf_a")
    name = "second_stage_model.sequence_dropout_null_embedding"
    weights = {key: tensor for key, tensor in golden.weights.items() if key != name}
    model = golden.model(weights, transductive_sequence_dropout_prob=0.0)
    ids, context = golden.tensors["input_ids"], golden.tensors["first_stage.output"]
    with pytest.raises(ValueError, match="no null token"):
        model.second_stage(ids, None, context, null_context=True)
    with pytest.raises(ValueError, match="no null token"):
        model.second_stage(ids, None, None)
    mask = golden.tensors["attention_mask"]
    expected = golden.tensors["second_stage.docs"]
    torch.testing.assert_close(model.second_stage(ids, mask, context), expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match=f"unexpected: {name}"):
        golden.model(transductive_sequence_dropout_prob=0.0)


# --- weights that do not fit

NAMES = [
    ("hf_a", "second_stage_model.backbone.encoder.layers.1.attn.Wqkv.weight"),
    ("hf_a", "first_stage_model.embedder.emb_ln.bias"),
    ("hf_a", "first_stage_model.mlp.2.bias"),
    ("hf_a", "second_stage_model.sequence_dropout_null_embedding"),
    ("hf_d_biases_geglu", "first_stage_model.embedder.encoder.layers.0.attn.Wqkv.bias"),
    ("mbert_a", "second_stage_model.backbone.layers.2.attn.Wqkv.weight"),
]
SPOILED: dict[str, Callable[[Tensor], Tensor | None]] = {
    "missing": lambda tensor: None,
    "one row short": lambda tensor: tensor[:-1],
    "one row long": lambda tensor: torch.cat([tensor, tensor[:1]]),
    "a number": lambda tensor: tensor.sum(),
    "NaN": lambda tensor: torch.where(
        torch.arange(len(tensor)).reshape(-1, *[1] * (tensor.ndim - 1)) == 3, torch.nan, tensor
    ),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
@pytest.mark.parametrize(("name", "tensor"), NAMES)
def test_a_spoiled_tensor_is_refused_under_its_published_name(
    name: str, tensor: str, spoil: Callable[[Tensor], Tensor | None]
) -> None:
    golden = case(name)
    weights = {**golden.weights, tensor: spoil(golden.weights[tensor])}
    with pytest.raises(ValueError) as refused:
        golden.model({key: value for key, value in weights.items() if value is not None})
    assert tensor in str(refused.value)
    assert str(refused.value).replace(tensor, "").count("_stage_model.") == 0


@pytest.mark.parametrize(
    "tensor",
    [
        "third_stage_model.mlp.0.weight",
        "second_stage_model.backbone.encoder.layers.2.norm1.weight",
        "second_stage_model.backbone.encoder.layers.0.attn.Wqkv.bias",
        "second_stage.backbone.layers.0.mlp.up_proj.weight",  # our own name is not published
    ],
)
def test_a_tensor_too_many_is_refused_under_its_published_name(tensor: str) -> None:
    golden = case("hf_a")
    with pytest.raises(ValueError) as refused:
        golden.model({**golden.weights, tensor: torch.zeros(32)})
    named = str(refused.value).split("unexpected: ")[1]
    assert named.splitlines()[0] == tensor


# --- settings that no published model has


@pytest.mark.parametrize(
    ("changes", "accepted"),
    [
        ({"embedder": "nowhere/nothing"}, "nomic-bert-2048, .*answerdotai/ModernBERT-base"),
        ({"dataset_backbone": "nowhere/nothing"}, "nomic-ai/nomic-bert-2048, "),
        ({"autoregressive_backbone": True}, "accepted: False"),
        ({"pooling_strategy": "last_token"}, "accepted: mean"),
        ({"architecture": "biencoder"}, "accepted: transductive"),
        ({"limit_layers_first_stage": -1}, "-1"),
    ],
)
def test_a_setting_of_another_kind_of_model_is_refused_with_what_is_accepted(
    changes: dict[str, Any], accepted: str
) -> None:
    with pytest.raises(ValueError, match=accepted):
        published_config({**CONTEXTUAL, **changes}, variant="hub")


def test_a_colon_that_the_vocabulary_lacks_is_refused() -> None:
    """It would never be found, and instructions would be pooled without a word."""
    changes = {"pool_ignore_instruction_tokens": True, "colon_token_id": 10**6}
    with pytest.raises(ValueError, match="give colon_token_id"):
        published_config({**CONTEXTUAL, **changes}, variant="train")


@pytest.mark.parametrize(
    ("changes", "accepted"),
    [
        ({"prenorm": True}, "prenorm=True is not supported; accepted: False"),
        ({"use_rms_norm": True}, "accepted: False"),
        ({"causal": True}, "accepted: False"),
        ({"rotary_emb_scale_base": 512}, "accepted: None"),
        ({"activation_function": "relu"}, "swiglu, geglu, glu"),
    ],
)
def test_a_backbone_of_another_kind_is_refused_with_what_is_accepted(
    changes: dict[str, Any], accepted: str
) -> None:
    other = {**TINY, **changes}
    for second, first in ((TINY, other), (other, TINY)):
        with pytest.raises(ValueError, match=accepted):
            published_config(CONTEXTUAL, second, "train", first)


# --- the whole models, by name


@pytest.mark.parametrize("null_token", [False, True])
@pytest.mark.parametrize(
    ("name", "variant", "count"),
    [
        ("nomic-ai/nomic-bert-2048", "hub", 281_140_992),
        ("nomic-ai/nomic-embed-text-v1-unsupervised", "train", 281_140_992),
        ("answerdotai/ModernBERT-base", "v2", 305_706_240),
    ],
)
def test_known_names_make_models_of_the_published_size(
    name: str, variant: str, count: int, null_token: bool
) -> None:
    """The sum over the shapes in SPEC (b), by which a dimension that differs is seen."""
    settings = {"embedder": name, "transductive_corpus_size": 512}
    settings |= {"transductive_sequence_dropout_prob": 0.005} if null_token else {}
    config = published_config(settings, variant=variant)
    with torch.device("meta"):
        model = ContextualEncoder(config)
    assert sum(map(torch.numel, model.parameters())) == count + 768 * null_token
    assert sum(map(torch.numel, model.state_dict().values())) == count + 768 * null_token
    assert config.context_size == 512


@pytest.mark.parametrize("variant", ["hub", "train"])
@pytest.mark.parametrize(
    "name", ["nomic-ai/nomic-bert-2048", "nomic-ai/nomic-embed-text-v1-unsupervised"]
)
def test_known_names_have_the_published_settings(name: str, variant: str) -> None:
    """SPEC (c1) for NomicBERT: beside the shapes, what no tensor shows."""
    config = published_config({"embedder": name}, variant=variant)
    assert config.second_backbone == config.first_backbone
    published = {
        "num_attention_heads": 12, "head_dim": 64, "num_hidden_layers": 12,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000}, "rotary_fraction": 1,
        "rotary_interleaved": False, "linear_biases": [], "hidden_act": "silu",
        "layer_norm_eps": 1e-12, "pad_token_id": 0,
    }  # fmt: skip
    assert config.second_backbone.items() >= published.items()
    assert (config.soft_prompt_tokens, config.query_prefix) == (8, "search_query: ")
    assert config.document_prefix == "search_document: "
