"""The store of vectors gives back what was written, or computes it again and says so."""

from __future__ import annotations

import importlib.metadata
import random
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from stages import flipped

from cde import vector_store
from cde.storage import DamageWarning
from cde.vector_store import VectorStore

TEXTS = [f"text number {number}" for number in range(240)]
VECTORS: NDArray[np.float32] = np.random.default_rng(0).normal(size=(240, 16)).astype(np.float32)


def filled() -> Path:
    """A store with all vectors, in the test's own cache."""
    with VectorStore("model", 16) as kept:
        kept.write(TEXTS, VECTORS)
        return kept.path


def called() -> tuple[NDArray[np.float32], list[str]]:
    """What a caller gets that computes what the store lacks; and what was told."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with VectorStore("model", 16) as kept:
            known = kept.read(TEXTS)
            missing = [text for text in TEXTS if text not in known]
            rows = [TEXTS.index(text) for text in missing]
            if missing:
                kept.write(missing, VECTORS[rows])
            known |= {text: VECTORS[row] for text, row in zip(missing, rows, strict=True)}
    messages = [str(one.message) for one in told if one.category is DamageWarning]
    return np.stack([known[text] for text in TEXTS]), messages


def healed() -> None:
    """The next call finds everything, and has nothing to tell."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DamageWarning)
        with VectorStore("model", 16) as kept:
            known = kept.read(TEXTS)
        assert (np.stack([known[text] for text in TEXTS]) == VECTORS).all()


def test_a_file_takes_little_more_room_than_its_vectors(private_cache: Path) -> None:
    vectors = np.ones((2000, 384), np.float32)
    with VectorStore("model", 384) as kept:
        kept.write([str(number) for number in range(len(vectors))], vectors)
    assert kept.path.stat().st_size < 1.4 * vectors.nbytes


def test_no_flipped_bit_changes_a_vector_that_comes_back(private_cache: Path) -> None:
    whole, draws = filled().read_bytes(), random.Random(0)
    told = 0
    for _ in range(150):
        path = next((private_cache / "embeddings").glob("*.sqlite"))
        bit = draws.randrange(8 * len(whole))
        path.write_bytes(flipped(whole, bit))
        vectors, messages = called()
        assert (vectors == VECTORS).all(), f"bit {bit}"
        assert all(str(path) in message for message in messages)
        told += bool(messages)
        healed()
    assert told > 30, "most bits of the file are those of vectors, keys and checksums"


@pytest.mark.parametrize("left", [2, 50, 99, 100, 101, 16_000, 16_384, 32_767, -16_384, -1])
def test_a_truncated_file_is_set_aside_and_made_again(private_cache: Path, left: int) -> None:
    path = filled()
    path.write_bytes(path.read_bytes()[:left])
    vectors, messages = called()
    assert (vectors == VECTORS).all()
    assert messages and str(path) in messages[0] and "made again" in messages[0]
    assert path.with_name(f"{path.name}.damaged-1").exists()
    healed()
    path.write_bytes(b"")  # an empty file is a new store
    assert (called()[0] == VECTORS).all()


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_what_is_no_embedding_is_not_kept(private_cache: Path, value: float) -> None:
    with VectorStore("model", 2) as kept:
        kept.write(["bad", "good"], np.array([[value, value], [3, 4]], np.float32))
        assert list(kept.read(["bad", "good"])) == ["good"]


def test_rows_of_another_models_file_are_not_believed(private_cache: Path) -> None:
    path = filled()
    with VectorStore("another", 16) as other:
        other.write(TEXTS, -VECTORS)
    path.write_bytes(other.path.read_bytes())
    vectors, messages = called()
    assert (vectors == VECTORS).all() and messages


@pytest.mark.parametrize("library", ["torch", "transformers", "tokenizers"])
def test_another_version_of_what_computes_has_a_file_of_its_own(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    path, version = filled(), importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.0" if name == library else version(name)
    )
    vector_store.computed_with.cache_clear()
    try:
        with VectorStore("model", 16) as other:
            assert other.path != path and other.read(TEXTS) == {}
    finally:
        vector_store.computed_with.cache_clear()


def test_a_disk_that_fills_up_loses_nothing_that_was_kept(private_cache: Path) -> None:
    path = filled()
    code = f"""
import resource, signal
import numpy as np
from cde.vector_store import VectorStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({path.stat().st_size}, resource.RLIM_INFINITY))
texts = [str(number) for number in range(9000)]
with VectorStore("model", 16) as kept:
    kept.write(texts, np.ones((9000, 16), np.float32))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode and f"OSError: cannot write {path}" in done.stderr.splitlines()[-1]
    healed()


def replaced(path: Path) -> None:
    """What another process does that finds the file damaged, and is quick about it."""
    path.rename(path.with_name(f"{path.name}.damaged-9"))
    filled()


def test_the_file_that_replaced_a_damaged_one_is_not_set_aside(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, connect = filled(), sqlite3.connect
    path.write_bytes(path.read_bytes()[:5000])

    def slow(*given: Any, **options: Any) -> sqlite3.Connection:
        monkeypatch.setattr(sqlite3, "connect", connect)
        connection: sqlite3.Connection = connect(*given, **options)
        replaced(path)
        return connection

    monkeypatch.setattr(sqlite3, "connect", slow)
    vectors, messages = called()
    assert (vectors == VECTORS).all() and messages == []


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY])
def test_an_error_of_a_file_that_another_process_replaced_is_not_the_disks(
    private_cache: Path, code: int
) -> None:
    path = filled()
    files = []

    def fails_at_first(connection: sqlite3.Connection) -> int:
        files.append(path.stat().st_ino)
        if len(files) > 1:
            return connection.execute("SELECT count(*) FROM vectors").fetchone()[0]  # type: ignore[no-any-return]
        replaced(path)
        error = sqlite3.OperationalError("as SQLite words it")
        error.sqlite_errorcode = code
        raise error

    with VectorStore("model", 16) as kept:
        assert kept._whole(fails_at_first) == len(TEXTS)
    assert len(set(files)) == 2


@pytest.mark.slow
def test_processes_that_meet_damage_at_once_all_get_their_vectors(private_cache: Path) -> None:
    path = filled()
    path.write_bytes(path.read_bytes()[:5000])
    code = """
import warnings
import numpy as np
from cde.vector_store import VectorStore
warnings.simplefilter("ignore")
texts = [f"text number {number}" for number in range(240)]
vectors = np.random.default_rng(0).normal(size=(240, 16)).astype(np.float32)
for _ in range(8):
    with VectorStore("model", 16) as kept:
        known = kept.read(texts)
        assert all((known[text] == vectors[texts.index(text)]).all() for text in known)
        kept.write(texts, vectors)
"""
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in started:
        assert process.communicate()[1] == "" and process.returncode == 0
    healed()
