"""Texts and settings are checked where they come in, in words that name the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import cde
from cde.validation import checked_texts, declared, unknown


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
        ("abc", "queries must be a list of strings; one string was given"),
        ({"a", "b"}, "a set was given, whose order is not that of vectors"),
        ({"a": 1}, "a dict was given"),
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
        with pytest.raises(TypeError, match="a set was given"):
            embed({"boat", "house"})


def test_one_metric_may_be_given_as_a_word() -> None:
    corpus = cde.RetrievalSet(["d"], ["a red boat"], ["q"], ["boat"], {"q": {"d": 1}})
    assert cde.evaluate(cde.BM25(), corpus, "mrr@10") == {"mrr@10": 1.0}


def test_a_file_s_bare_name_is_answered_with_how_to_say_it(tmp_path: Any) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text('{"query": "a", "document": "b"}\n')
    with pytest.raises(ValueError, match=f"say folder:{path}"):
        cde.load_pairs(str(path))


def test_a_declared_class_is_frozen_and_knows_its_names() -> None:
    @declared
    class Box:
        width: int = 3

    with pytest.raises(ValueError, match=r"there is no setting widht \(width\?\)"):
        Box(widht=4)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Box().width = 5  # type: ignore[misc]
    assert unknown(["zzz"], ["width"]) == "there is no setting zzz; known are width"
