"""Binding an encoder that was never trained says so; a trained or a gated one is left in peace."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
import torch

from cde.models import ContextualEncoder
from cde_studies.encoder.untrained import on_purpose

CORPUS = ["red boats in the harbour", "a green house", "soup with leeks"]


def plain(attention: str) -> ContextualEncoder:
    return ContextualEncoder.from_backbone(
        "minilm", 1, attention=attention, precision="float32", device="cpu"
    )


def bound_quietly(model: ContextualEncoder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.with_context(CORPUS)
        model.with_context(None)


@pytest.mark.parametrize("attention", ["full", "cached"])
@pytest.mark.parametrize("context", [CORPUS, None])
def test_binding_it_untrained_warns_once_and_names_the_ways_out(
    attention: str, context: list[str] | None
) -> None:
    model = plain(attention)
    with pytest.warns(UserWarning, match=r"never trained.*cde\.train.*from_pretrained") as caught:
        model.with_context(context)
    assert [str(Path(one.filename).name) for one in caught] == [Path(__file__).name]
    bound_quietly(model)


def test_a_step_of_training_or_other_weights_end_the_warning(tmp_path: Path) -> None:
    trained = plain("full")
    optimiser = torch.optim.AdamW(trained.parameters(), lr=1e-4)
    ids = torch.tensor([[101, 2417, 102]])
    trained(ids, context=torch.ones(2, 384)).sum().backward()
    optimiser.step()
    bound_quietly(trained)
    trained.save_pretrained(tmp_path)
    bound_quietly(ContextualEncoder.from_pretrained(tmp_path, device="cpu"))
    filled = plain("full")
    filled.load_state_dict(trained.state_dict())
    bound_quietly(filled)


def test_a_gated_one_and_one_that_is_bound_so_on_purpose_are_quiet() -> None:
    bound_quietly(plain("gated"))
    bound_quietly(on_purpose(plain("full")))
    bound_quietly(copy.deepcopy(on_purpose(plain("cached"))))
