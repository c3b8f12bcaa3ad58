"""Tables, fingerprints, proofs and parts of an index: believed only as they were written."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from stages import TEXTS
from tiny_encoders import bi_encoder

from cde import Index, storage
from cde.corpus import index
from cde.storage import (
    DamageWarning,
    content_hash,
    read_json,
    read_sealed,
    write_json,
    write_sealed,
)
from cde_book import contents, records
from cde_studies.collections import pydocs
from cde_studies.collections.installed import kept_table


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.fixture
def few_docstrings(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[pd.DataFrame]]:
    """The table of the docstrings, of three rows; and what was extracted, each time it was."""
    extracted: list[pd.DataFrame] = []

    def extract() -> pd.DataFrame:
        rows = [(f"what is {word}?", f"{word} " * 12, "rich", word) for word in ("a", "b", "c")]
        frame = pd.DataFrame(rows, columns=["query", "document", "domain", "id"])
        extracted.append(frame.assign(first=np.arange(3)))
        return extracted[-1]

    monkeypatch.setattr(pydocs, "_extract", extract)
    kept_table.cache_clear()
    pydocs.load_pairs(["rich"], split="all")
    return next((private_cache / "pydocs").glob("*.sealed")), extracted


@pytest.mark.parametrize("kind", ["flipped", "truncated", "empty", "of another version"])
def test_a_damaged_table_of_docstrings_is_told_and_extracted_again(
    few_docstrings: tuple[Path, list[pd.DataFrame]], kind: str
) -> None:
    path, extracted = few_docstrings
    expected, good, draws = pydocs.load_pairs(["rich"], split="all"), path.read_bytes(), 40
    for bit in random.Random(0).sample(range(8 * len(good)), draws if kind == "flipped" else 1):
        data = {
            "flipped": flipped(good, bit),
            "truncated": good[:-5],
            "empty": b"",
            "of another version": good.partition(b"\n")[2],
        }[kind]
        path.write_bytes(data)
        extracted.clear()
        kept_table.cache_clear()
        with pytest.warns(DamageWarning, match="made again") as told:
            again = pydocs.load_pairs(["rich"], split="all")
        assert str(path) in str(told[0].message) and len(extracted) == 1
        assert again.fingerprint == expected.fingerprint and path.read_bytes() == good
    kept_table.cache_clear()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"key": "k"}', "\x00", "[" * 5000])
def test_what_was_known_of_a_collection_is_read_again_where_it_is_damaged(
    private_cache: Path, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"query": "red?", "document": "boats are red"}\n' * 2)
    known = contents.known_fingerprints(f"folder:{file}")
    (kept,) = (private_cache / "fingerprints").iterdir()
    good = kept.read_text()
    kept.write_text(text)
    if text != '{"key": "k"}':  # which an earlier version may have written, of other content
        with pytest.warns(DamageWarning, match=r"fingerprints.*made again"):
            assert contents.known_fingerprints(f"folder:{file}") == known
    else:
        assert contents.known_fingerprints(f"folder:{file}") == known
    assert kept.read_text() == good and known


def test_no_flipped_bit_of_signed_json_comes_back_as_other_values(tmp_path: Path) -> None:
    path, values = tmp_path / "values.json", {"format": 2, "loss": [0.125, float("inf")], "é": "ü"}
    write_json(path, values)
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        path.write_bytes(flipped(good, bit))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = read_json(path, since="format")
        assert found == values if found is not None else len(told) == 1, bit
        path.with_name("values.json.damaged-1").unlink(missing_ok=True)


def test_no_flipped_bit_of_sealed_bytes_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    write_sealed(path, b"red boats\n")
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        path.write_bytes(flipped(good, bit))
        with pytest.warns(DamageWarning):
            assert read_sealed(path) is None
        path.with_name("bytes.damaged-1").unlink()


def test_a_proof_whose_comparison_is_damaged_was_not_compared(
    private_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "project_root", lambda: tmp_path)
    record = tmp_path / "book" / "records" / "laptop" / "toy.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"proof": {"rows": [1]}}')
    kept = private_cache / "proofs" / "laptop-toy.json"
    state = {"format": 2, "record": content_hash([record.read_bytes()]), "differences": "9 %"}
    write_json(kept, state)
    assert [one.state for one in records.proof_states()] == ["stale"]
    kept.write_text(kept.read_text().replace('"9 %"', '""'))
    with pytest.warns(DamageWarning, match="laptop-toy.json"):
        assert [one.state for one in records.proof_states()] == ["not compared"]


def test_a_part_of_an_interrupted_build_that_is_damaged_is_embedded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "PART", 8)
    encoder, asked = bi_encoder(), []
    expected = Index.build(TEXTS, tmp_path / "whole", encoder=encoder).fingerprint

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("cde.corpus.table.Table.finish", killed)
        Index.build(TEXTS, tmp_path / "built", encoder=encoder)
    embed = index.embedded

    def noted(model: object, texts: list[str], *more: object) -> NDArray[np.float32]:
        asked.extend(texts)
        return embed(model, texts, *more)

    monkeypatch.setattr(index, "embedded", noted)
    for part in sorted((tmp_path / "built").glob("rows-*/data/*.lance")):
        data = part.read_bytes()
        for place in range(0, 8 * len(data), 8 * 97):
            data = flipped(data, place)
        part.write_bytes(data)
    with pytest.warns(DamageWarning, match="made again"):
        again = Index.build(TEXTS, tmp_path / "built", encoder=encoder)
    assert sorted(asked) == sorted(TEXTS) and again.fingerprint == expected


def test_what_is_set_aside_replaces_nothing_that_was(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / "table").write_text(str(number))
        with pytest.warns(DamageWarning, match=f"set aside as table.damaged-{number}"):
            storage.set_aside(tmp_path / "table", "it is noise")
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {f"table.damaged-{number}": str(number) for number in (1, 2, 3)}
