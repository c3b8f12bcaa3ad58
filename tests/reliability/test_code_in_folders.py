"""A folder that names code of its own: nothing is asked, nothing of it runs, and a family that the
encoders do not know is refused by its name.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_encoders import backbone_folder

from cde.models import BiEncoder, ContextualEncoder
from cde.models.encoder import load_tokenizer
from cde.surrogate import Surrogate
from cde_studies.dwell.encoder_decoder import EncoderDecoder

OF_ITS_OWN = {
    "AutoConfig": "model.Config",
    "AutoModel": "model.Model",
    "AutoModelForSeq2SeqLM": "model.Model",
    "AutoTokenizer": ["model.Tokens", "model.Tokens"],
}

LOADERS: dict[str, Callable[[Path], Any]] = {
    "bi-encoder": BiEncoder.from_backbone,
    "contextual encoder": ContextualEncoder.from_backbone,
    "encoder-decoder": EncoderDecoder.from_backbone,
    "saved bi-encoder": BiEncoder.from_pretrained,
    "saved contextual encoder": ContextualEncoder.from_pretrained,
    "surrogate": lambda folder: Surrogate(folder, cache=False).embed(["red boats"]),
}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with weights, whose code leaves a mark when it is run; whoever is asked says yes."""
    folder = backbone_folder(tmp_path / "hostile", "bert")
    (folder / "model.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\n"
        "from transformers import BertConfig, BertModel, BertTokenizer\n"
        "class Config(BertConfig): model_type = 'hostile'\n"
        "class Model(BertModel): pass\n"
        "class Tokens(BertTokenizer): pass\n"
    )

    def yes(question: str = "") -> str:
        (tmp_path / "asked").write_text(question)
        return "y"

    monkeypatch.setattr(builtins, "input", yes)
    return folder


def untouched(folder: Path) -> bool:
    return not (folder.parent / "asked").exists() and not (folder.parent / "ran").exists()


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("what", LOADERS)
def test_a_family_of_its_own_is_refused_without_a_question(what: str, hostile: Path) -> None:
    rewrite(hostile / "config.json", auto_map=OF_ITS_OWN, model_type="hostile")
    with pytest.raises(ValueError, match="hostile"):
        LOADERS[what](hostile)
    assert untouched(hostile)


def test_a_known_family_is_read_by_transformers_own_class(hostile: Path) -> None:
    plain = BiEncoder.from_backbone(hostile, precision="float32").encode_documents(["ab c"])
    rewrite(hostile / "config.json", auto_map=OF_ITS_OWN)
    encoder = BiEncoder.from_backbone(hostile, precision="float32")
    assert (encoder.encode_documents(["ab c"]) == plain).all()
    assert untouched(hostile)


def test_a_tokenizer_of_its_own_is_not_run(hostile: Path) -> None:
    rewrite(
        hostile / "tokenizer_config.json", auto_map=OF_ITS_OWN, tokenizer_class="TokensOfNobody"
    )
    try:
        load_tokenizer(hostile)
    except ValueError as error:
        assert str(hostile) in str(error)
    assert untouched(hostile)
