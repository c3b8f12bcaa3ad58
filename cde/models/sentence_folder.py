"""What lets `SentenceTransformer(folder)` read a saved encoder: three small files beside its own.

sentence-transformers builds a model of the modules that `modules.json` names. Classes of other
packages it imports only with `trust_remote_code=True`. So the modules named here are its own: its
`Transformer`, which asks `transformers` for the model of the folder's `config.json`, and its
`Normalize`. Which class that model has is registered when `cde.models` is imported
(`cde.models.sentence_model`). No code is in the folder, and none is trusted.

Cost: three files of a few hundred bytes; the weights are there once, for both libraries.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["SENTENCE_FILES", "write_sentence_files"]

#: names of the files
SENTENCE_FILES = ("config_sentence_transformers.json", "modules.json", "sentence_bert_config.json")


def write_sentence_files(folder: Path, config: Any, max_tokens: int) -> None:
    """Write the files into a folder."""
    modules = "sentence_transformers.base.modules"
    whole = {"method": "forward", "method_output_name": None}  # what forward gives is the embedding
    contents: tuple[Any, ...] = (
        {
            "model_type": "SentenceTransformer",
            "prompts": {"query": config.query_prefix, "document": config.document_prefix},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        [
            {"idx": 0, "name": "0", "path": "", "type": f"{modules}.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Normalize", "type": f"{modules}.Normalize"},
        ],
        {
            "transformer_task": "feature-extraction",
            "modality_config": {"text": whole},
            "module_output_name": "sentence_embedding",
            "max_seq_length": max_tokens,
        },
    )
    for name, content in zip(SENTENCE_FILES, contents, strict=True):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
