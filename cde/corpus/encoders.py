"""Which encoder made the vectors of an index: named, kept in a folder, recognised again.

A query finds documents only through the encoder that embedded them. So an index carries a record of
its encoder:

- a `Surrogate` by its model and settings; BM25, whose documents have vectors of no dimension, by
  its settings;
- an encoder of `cde.models` by a hash of its weights, context and settings, saved with the index;
- any other object by its class alone: a few documents are embedded again, and compared.

bfloat16, float32 and the attention kernel are not part of the hash: they move the fourth decimal.

Cost: a pass over the weights, about a second a gigabyte; eight documents for another object.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from cde.hardware import Precision
from cde.lexical import BM25
from cde.storage import content_hash
from cde.validation import Vectors, called, encoded

# models are imported where there are some: a search by words loads no torch
if TYPE_CHECKING:
    from cde.retrieval import Encoder

__all__ = ["named_system"]

#: vectors of one text by one encoder differ by so much of their length at most (bfloat16: 0.014)
_SAME = 0.03


#: what an index finds documents by
Model: TypeAlias = "Encoder | BM25"


def checked_encoder(encoder: Any, texts: Sequence[str] | None) -> Model:
    """The encoder to index with: MiniLM for None, a contextual encoder bound to the texts."""
    if isinstance(encoder, BM25):
        return encoder
    from cde.retrieval import Encoder, as_encoder
    from cde.retrieval.systems import is_ranker
    from cde.surrogate import Surrogate

    if encoder is None:
        return Surrogate()
    if isinstance(encoder, Encoder | type):
        return as_encoder(encoder)
    name = type(encoder).__name__
    if hasattr(encoder, "with_context"):
        if texts is None:
            raise ValueError(
                f"{name} is bound to no corpus: give the encoder that .with_context made, or none, "
                "to load the one in the folder"
            )
        return encoder.with_context(texts, seed=0)  # type: ignore[no-any-return]
    if is_ranker(encoder):
        raise TypeError(
            f"{name} ranks without vectors, and an index holds vectors: index with an encoder, "
            f"then cde.Hybrid([index, {name}(…)]) ranks index.retrieval_set(queries)"
        )
    return as_encoder(encoder)


def embedded(
    encoder: Model,
    texts: Sequence[str],
    role: Literal["queries", "documents"],
    dim: int | None = None,
) -> Vectors:
    """Vectors `(n, dim)` float32 of queries or of documents, checked; of BM25 without numbers."""
    if isinstance(encoder, BM25):
        return np.zeros((len(texts), 0), np.float32)
    return np.ascontiguousarray(encoded(encoder, texts, role, dim), dtype=np.float32)


def record_of(encoder: Model) -> dict[str, Any]:
    """What identifies an encoder, as JSON: its kind, its settings, its fingerprint."""
    record: dict[str, Any] = {"kind": "other", "name": called(encoder), "fingerprint": None}
    if isinstance(encoder, BM25):
        settings = {"k1": encoder.k1, "b": encoder.b}
        mark = content_hash(["bm25", json.dumps(settings)])
        name = called(BM25(k1=encoder.k1, b=encoder.b))
        return record | {"kind": "bm25", "name": name, "fingerprint": mark} | settings
    from cde.adaptation import AdaptedEncoder
    from cde.models.contextual import CorpusEncoder, fingerprint
    from cde.surrogate import Surrogate

    if type(encoder) is Surrogate:
        here = Path(encoder.name)
        precise = copy.copy(encoder)  # one hash for bfloat16 and float32
        precise.precision = "float32"
        precise.__dict__.pop("fingerprint", None)
        if encoder.name != "minilm" and not here.is_dir():  # the model itself is hashed
            precise.__dict__["sentence_model"] = encoder.sentence_model
        return record | {
            "kind": "surrogate",
            "model": str(here.resolve()) if here.is_dir() else encoder.name,
            "max_tokens": encoder.max_tokens,
            "precision": encoder.precision,
            "cache": encoder.cache,
            "fingerprint": precise.fingerprint,
        }
    if isinstance(encoder, AdaptedEncoder):
        inner, shift = record_of(encoder.encoder), encoder.shift
        mark = inner["fingerprint"] and content_hash([inner["fingerprint"], shift.fingerprint])
        vectors = {"queries": shift.queries.tolist(), "documents": shift.documents.tolist()}
        if shift.weights is not None:
            vectors["weights"] = base64.b64encode(shift.weights.tobytes()).decode()
        return record | {"kind": "adapted", "fingerprint": mark, "encoder": inner, "shift": vectors}
    weights = fingerprint(encoder)
    if weights is None:
        return record
    model: Any = encoder.model if isinstance(encoder, CorpusEncoder) else encoder
    kind = "model" if model is encoder else "bound model"
    return record | {"kind": kind, "precision": model.precision, "fingerprint": weights}


def is_kept(record: Mapping[str, Any]) -> bool:
    """Whether such an encoder is saved with its index, by its own `save_pretrained`."""
    return (record.get("encoder") or record)["kind"] in ("model", "bound model")


def restored(record: Mapping[str, Any], folder: Path) -> Model:
    """The encoder that a record is of."""
    kind = record["kind"]
    if kind == "bm25":
        return BM25(k1=record["k1"], b=record["b"])
    from cde.adaptation import AdaptedEncoder, Shift
    from cde.models.contextual import class_of
    from cde.surrogate import Surrogate

    precision: Any = record.get("precision", "auto")
    give = f"pass the encoder that made the vectors ({record['name']}) as encoder"
    encoder: Model
    if kind == "adapted":
        parts = {
            name: np.array(record["shift"][name], np.float32) for name in ("queries", "documents")
        }
        if "weights" in record["shift"]:
            packed = np.frombuffer(base64.b64decode(record["shift"]["weights"]), np.float32)
            parts["weights"] = packed.reshape(2 * parts["queries"].shape)
        return AdaptedEncoder(restored(record["encoder"], folder), Shift(**parts))
    if kind == "surrogate":
        settings = {name: record[name] for name in ("model", "max_tokens", "cache")}
        encoder = Surrogate(**settings, precision=precision)
    elif kind in ("model", "bound model"):
        if (cls := class_of(folder)) is None:
            raise ValueError(
                f"{folder} holds an encoder whose class is not imported: import it, or {give}"
            )
        encoder = cls.from_pretrained(folder, precision=precision)
    else:
        raise ValueError(f"its encoder is not kept with it, being of a class of its own: {give}")
    try:
        found = record_of(encoder)["fingerprint"]
    except ConnectionError as error:  # a surrogate's folder that is gone, or the Hub
        raise ValueError(f"its encoder {record['name']} cannot be had ({error}): {give}") from error
    if found != record["fingerprint"]:
        changed = "is another now: its weights changed since the documents were embedded"
        raise ValueError(f"its encoder {record['name']} {changed}; {give}, or build it again")
    return encoder


def require_same(
    record: Mapping[str, Any], encoder: Model, texts: Sequence[str], vectors: Vectors
) -> None:
    """Refuse an encoder that did not make these vectors."""
    found = record_of(encoder)
    same = True
    if record["fingerprint"] and found["fingerprint"]:
        same = found["fingerprint"] == record["fingerprint"]
    elif texts:
        # a limit on tokens shows in the longest text
        longest = max(range(len(texts)), key=lambda row: len(texts[row]))
        rows = sorted({longest, *np.linspace(0, len(texts) - 1, 7).astype(int).tolist()})
        again, first = embedded(encoder, [texts[row] for row in rows], "documents"), vectors[rows]
        same = again.shape == first.shape and bool(
            (np.linalg.norm(again - first, axis=1) <= _SAME * np.linalg.norm(first, axis=1)).all()
        )
    if not same:
        raise ValueError(
            f"the vectors were made by {record['name']}, and {found['name']} is another encoder, "
            "or other weights or settings of it: its queries would find nothing"
        )


def named_system(
    name: str, max_tokens: int | None = None, cache: bool = True, precision: Precision = "auto"
) -> Any:
    """An encoder or ranker by name."""
    path = Path(name).expanduser()
    if name not in ("minilm", "bm25") and not path.is_dir() and "/" not in name:
        raise FileNotFoundError(
            f"no model {name!r}: accepted are minilm, bm25, a repository of the Hub, and the "
            "folder of an encoder of cde or sentence-transformers"
        )
    if name == "bm25":
        if max_tokens is not None:
            raise ValueError("bm25 reads all words of a text: max_tokens is for minilm")
        return BM25()
    from cde.models.contextual import class_of
    from cde.models.weights import fetch_folder
    from cde.surrogate import Surrogate

    if name == "minilm":
        return Surrogate(name, max_tokens, precision, cache=cache)
    folder = fetch_folder(path if path.is_dir() else name)
    if (kind := class_of(folder)) is None:
        return Surrogate(str(folder), max_tokens, precision, cache=cache)
    if max_tokens is not None:
        raise ValueError(f"{name} has a limit on tokens of its own: max_tokens is for minilm")
    return kind.from_pretrained(folder, precision=precision)
