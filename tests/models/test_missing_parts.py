"""A model's folder that lacks a part, or has that of another model, is refused by name, or embeds as
before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tiny_encoders import BACKBONES, TEXTS, backbone_folder, bi_encoder, contextual

from cde.models import BiEncoder, ContextualEncoder
from cde.surrogate import Surrogate

Vectors = NDArray[np.float32]
OPTIONS: Any = {"precision": "float32", "device": "cpu"}


def plain(folder: Path) -> Path:
    return backbone_folder(folder, "bert")


def saved_bi_encoder(folder: Path) -> Path:
    bi_encoder().save_pretrained(folder)
    return folder


def saved_contextual(folder: Path) -> Path:
    contextual().save_pretrained(folder)
    return folder


#: what writes a folder, and what embeds by it
READERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Any]]] = {
    "a backbone": (plain, lambda folder: BiEncoder.from_backbone(folder, **OPTIONS).embed(TEXTS)),
    "a bi-encoder": (
        saved_bi_encoder,
        lambda folder: BiEncoder.from_pretrained(folder, **OPTIONS).embed(TEXTS),
    ),
    "a contextual encoder": (
        saved_contextual,
        lambda folder: (
            ContextualEncoder.from_pretrained(folder, **OPTIONS).with_context(None).embed(TEXTS)
        ),
    ),
}
#: these readers have settings beside the model, which may be missing: tokenizers alone may not
LENIENT: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Any]]] = {
    "a surrogate": (plain, lambda folder: Surrogate(folder, cache=False, **OPTIONS).embed(TEXTS)),
    "sentence-transformers": (
        saved_bi_encoder,
        lambda folder: SentenceTransformer(str(folder), device="cpu").encode(TEXTS),
    ),
}


def same_or_refused(embed: Callable[[Path], Vectors], folder: Path, expected: Vectors) -> bool:
    """Whether a folder was refused; else its vectors must be those expected."""
    try:
        found = embed(folder)
    except (ValueError, FileNotFoundError) as error:
        assert "tokenizer" in str(error) or str(folder) in str(error)
        return True
    np.testing.assert_allclose(found, expected, atol=1e-5)
    return False


@pytest.mark.parametrize("kind", READERS)
def test_without_any_one_file_it_is_refused_or_embeds_as_before(kind: str, tmp_path: Path) -> None:
    write, embed = READERS[kind]
    whole = write(tmp_path / "whole")
    expected, refused = embed(whole), set()
    for part in whole.iterdir():
        folder = shutil.copytree(whole, tmp_path / f"without {part.name}")
        (folder / part.name).unlink()
        if same_or_refused(embed, folder, expected):
            refused.add(part.name)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= refused


@pytest.mark.parametrize("kind", READERS | LENIENT)
def test_a_tokenizer_that_knows_fewer_words_than_the_model_is_refused_with_both_numbers(
    kind: str, tmp_path: Path
) -> None:
    write, embed = (READERS | LENIENT)[kind]
    folder = write(tmp_path / "model")
    expected = embed(folder)
    path = folder / "tokenizer.json"
    whole = json.loads(path.read_text())
    words = whole["model"]["vocab"]
    for left in (len(words), 12):
        whole["model"]["vocab"] = {word: row for word, row in words.items() if row < left}
        path.write_text(json.dumps(whole))
        if left == len(words):
            np.testing.assert_array_equal(embed(folder), expected)
            continue
        with pytest.raises(ValueError, match=rf"tokenizer of {folder} knows {left} words.* 64: "):
            embed(folder)
    path.unlink()  # of some classes `transformers` then makes a tokenizer of five marks
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(ValueError, match=r"tokenizer of .* knows 5 words, the model 64"):
        embed(folder)


def test_rows_that_fill_up_a_table_are_no_missing_words(tmp_path: Path) -> None:
    """bert-base-uncased has 30,522 words, NomicBERT's table 30,528 rows."""
    backbone: dict[str, Any] = {**BACKBONES["bert"], "vocab_size": 72}
    model = bi_encoder()
    filled = BiEncoder(type(model.config)(backbone=backbone))
    filled.set_up(model.tokenizer, "sdpa", "cpu", "float32").save_pretrained(tmp_path)
    assert BiEncoder.from_pretrained(tmp_path, **OPTIONS).embed(TEXTS).shape == (5, 32)
