"""Tables, JSON, sealed files and parts of an index: believed only as they were written."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from stages import TEXTS, flipped
from tiny_encoders import bi_encoder

from cde import Index, storage
from cde.corpus import index
from cde.storage import DamageWarning, read_json, read_sealed, write_json, write_sealed
from cde_studies.collections import pydocs
from cde_studies.collections.installed import kept_table


def test_a_damaged_table_of_docstrings_is_told_and_extracted_again(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(f"what is {x}?", f"{x} " * 12, "rich", x, row) for row, x in enumerate("abc")]
    columns = ["query", "document", "domain", "id", "first"]
    extract = Mock(return_value=pd.DataFrame(rows, columns=columns))
    monkeypatch.setattr(pydocs, "_extract", extract)
    kept_table.cache_clear()
    expected = pydocs.load_pairs(["rich"], split="all")
    path = next((private_cache / "pydocs").glob("*.sealed"))
    good = path.read_bytes()
    path.write_bytes(good[:-5])
    kept_table.cache_clear()
    with pytest.warns(DamageWarning, match=f"{path}.*made again"):
        again = pydocs.load_pairs(["rich"], split="all")
    assert again.fingerprint == expected.fingerprint and extract.call_count == 2
    assert path.read_bytes() == good
    kept_table.cache_clear()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00", "[" * 5000])
def test_a_file_that_is_not_what_was_written_is_told_and_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "values.json").write_text(text)
    with pytest.warns(DamageWarning, match=r"values\.json.*made again"):
        assert read_json(tmp_path / "values.json", since="format") is None


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


def test_a_whole_file_that_came_in_a_damaged_ones_place_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, unsigned = tmp_path / "values.json", storage.unsigned
    path.write_text("{}")

    def slow(*given: Any) -> dict[str, Any]:
        monkeypatch.setattr(storage, "unsigned", unsigned)
        write_json(path, {"loss": 1})  # another process, meanwhile
        return unsigned(*given)

    monkeypatch.setattr(storage, "unsigned", slow)
    assert read_json(path) == {"loss": 1}
    assert not path.with_name("values.json.damaged-1").exists()


def test_no_part_of_sealed_bytes_and_none_with_a_flipped_bit_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    write_sealed(path, b"red boats\n")
    good = path.read_bytes()
    parts = good[:-5], b"", good.partition(b"\n")[2]
    for damaged in (*parts, *(flipped(good, bit) for bit in range(8 * len(good)))):
        path.write_bytes(damaged)
        with pytest.warns(DamageWarning):
            assert read_sealed(path) is None
        path.with_name("bytes.damaged-1").unlink()


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
