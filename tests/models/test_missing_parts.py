"""A model's folder that lacks a part is refused by name, or embeds as before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tiny_encoders import BACKBONES, TEXTS, backbone_folder, bi_encoder, contextual

from cde.models import BiEncoder, ContextualEncoder
from cde.surrogate import Surrogate

OPTIONS: Any = {"precision": "float32", "device": "cpu"}


#: what writes a folder, and what embeds by it
READERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "a backbone": (
        lambda folder: backbone_folder(folder, "bert"),
        lambda folder: BiEncoder.from_backbone(folder, **OPTIONS).embed(TEXTS),
    ),
    "a bi-encoder": (
        lambda folder: bi_encoder().save_pretrained(folder),
        lambda folder: BiEncoder.from_pretrained(folder, **OPTIONS).embed(TEXTS),
    ),
    "a contextual encoder": (
        lambda folder: contextual().save_pretrained(folder),
        lambda folder: (
            ContextualEncoder.from_pretrained(folder, **OPTIONS).with_context(None).embed(TEXTS)
        ),
    ),
}
#: these readers have settings beside the model, which may be missing: tokenizers alone may not
LENIENT: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "a surrogate": (
        READERS["a backbone"][0],
        lambda folder: Surrogate(folder, cache=False, **OPTIONS).embed(TEXTS),
    ),
    "sentence-transformers": (
        READERS["a bi-encoder"][0],
        lambda folder: SentenceTransformer(str(folder), device="cpu").encode(TEXTS),
    ),
}


@pytest.mark.parametrize("kind", READERS)
def test_without_any_one_file_it_is_refused_or_embeds_as_before(kind: str, tmp_path: Path) -> None:
    write, embed = READERS[kind]
    whole = tmp_path / "whole"
    write(whole)
    expected, refused = embed(whole), set()
    for part in whole.iterdir():
        folder = shutil.copytree(whole, tmp_path / f"without {part.name}")
        (folder / part.name).unlink()
        try:
            found = embed(folder)
        except (ValueError, FileNotFoundError) as error:
            assert "tokenizer" in str(error) or str(folder) in str(error)
            refused.add(part.name)
        else:
            np.testing.assert_allclose(found, expected, atol=1e-5)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= refused


@pytest.mark.parametrize("kind", READERS | LENIENT)
def test_a_tokenizer_that_knows_fewer_words_than_the_model_is_refused_with_both_numbers(
    kind: str, tmp_path: Path
) -> None:
    write, embed = (READERS | LENIENT)[kind]
    folder = tmp_path / "model"
    write(folder)
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
