"""Texts and settings are checked where they come in, in words that name the argument."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny_encoders import bi_encoder

import cde
from cde.models import BiEncoderConfig, ContextualConfig
from cde.training import build_model
from cde.validation import checked_texts


@pytest.mark.parametrize(
    "texts",
    [["a", "b"], ("a", "b"), np.array(["a", "b"]), pd.Series(["a", "b"]), (x for x in "ab")],
    ids=lambda texts: type(texts).__name__,
)
def test_texts_may_come_in_anything_that_has_an_order(texts: Any) -> None:
    assert checked_texts(texts) == ["a", "b"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (None, "queries must be a list of strings; it is None"),
        ("abc", "queries must be a list of strings; it is 'abc'"),
        ({"a"}, "queries must be a list of strings; it is {'a'}"),
        ({"a": 1}, "queries must be a list of strings; it is {'a': 1}"),
        (pd.DataFrame({"text": ["a"]}), r"queries must be a list of strings; it is +text"),
        (["a", None], "queries must be strings; item 1 is of type NoneType"),
    ],
)
def test_what_is_no_list_of_texts_is_refused_by_the_argument_s_name(
    texts: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        checked_texts(texts, "queries")


def test_every_encoder_and_ranker_takes_a_generator_and_refuses_a_set() -> None:
    for embed in (
        cde.Surrogate().embed,
        cde.BiEncoder.from_backbone("minilm", 1).encode_documents,
        cde.BM25(["a red boat"]).search,
    ):
        assert len(embed(word for word in ("boat", "house"))) == 2
        with pytest.raises(TypeError, match="must be a list of strings; it is {"):
            embed({"boat", "house"})


def test_a_file_s_bare_name_is_answered_with_how_to_say_it(tmp_path: Any) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text('{"query": "a", "document": "b"}\n')
    with pytest.raises(ValueError, match=f"say folder:{path}"):
        cde.load_pairs(str(path))


LONG = "x" * 300_000
DOORS: dict[str, Callable[[], object]] = {
    "a collection of the Hub": lambda: cde.load_pairs(f"hub:{LONG}"),
    "a split": lambda: cde.load_pairs("pydocs/rich", split=LONG),  # type: ignore[arg-type]
    "a switch": lambda: cde.load_pairs("pydocs/rich", deduplicate=LONG),  # type: ignore[arg-type]
    "a setting's name": lambda: cde.TrainConfig(**{LONG: 1}),
    "many settings": lambda: cde.TrainConfig(**{f"a{one}": 1 for one in range(5000)}),
    "an id": lambda: cde.RetrievalSet([LONG] * 2, ["a"] * 2, ["q"], ["a"], {}),
    "an id with NUL": lambda: cde.RetrievalSet([f"{LONG}\0"], ["a"], ["q"], ["a"], {}),
    "a judged document": lambda: cde.RetrievalSet(["d"], ["a"], ["q"], ["a"], {"q": {LONG: 1}}),
    "a judged query": lambda: cde.RetrievalSet(["d"], ["a"], ["q"], ["a"], {LONG: 1}),  # type: ignore[dict-item]
    "groups": lambda: cde.pack_batches(LONG, 2),
    "a group": lambda: cde.pack_batches([(LONG,), 1, 2], 2),
    "a model's name": lambda: cde.BiEncoder.from_backbone(LONG),
    "a surrogate's name": lambda: cde.Surrogate(LONG, cache=False).embed(["a"]),
    "what a run starts from": lambda: build_model(cde.TrainConfig(start=LONG)),
    "a kernel": lambda: bi_encoder().set_attention(LONG),
    "a device": lambda: bi_encoder().set_up(None, "sdpa", LONG, "float32"),
}


@pytest.mark.parametrize("door", DOORS)
def test_what_is_refused_is_shown_in_a_message_that_can_be_read(door: str) -> None:
    with pytest.raises((ValueError, TypeError, ConnectionError)) as caught:
        DOORS[door]()
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    "rows", [[0.5], [True], ["a"], [3], [[0]], 1, None, [[0], [1, 2]]], ids=repr
)
def test_rows_that_no_pair_has_are_refused_by_name(rows: Any) -> None:
    pairs = cde.Pairs(["a", "b", "c"], ["x", "y", "z"])
    with pytest.raises(ValueError, match="rows must be positions of the 3 pairs"):
        pairs.select(rows)


@pytest.mark.parametrize("config", [cde.TrainConfig, BiEncoderConfig, ContextualConfig])
def test_every_count_has_an_upper_bound_that_memory_or_torch_sets(config: Any) -> None:
    settings = inspect.signature(config.__init__).parameters
    counts = [one.name for one in settings.values() if type(one.default) is int]
    if config is cde.TrainConfig:
        fields = dataclasses.fields(config)
        counts = [one.name for one in fields if type(getattr(config(), one.name)) is int]
    assert counts
    for name in counts:
        with pytest.raises(ValueError, match=f"{name} must be .* or less; it is 1{'0' * 12}"):
            config(**{name: 10**12})
