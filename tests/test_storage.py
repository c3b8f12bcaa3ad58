"""The cache folder, files that appear whole or not at all, and content hashes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_encoders import CORPUS, bi_encoder, contextual

from cde import storage
from cde.storage import atomic_path, cache_folder, content_hash
from cde.surrogate import Surrogate
from cde_studies.motivation.linear_readers import fit_reader, save_reader

PARTS = st.lists(st.text(alphabet="ab", max_size=3), max_size=4)


@given(PARTS, PARTS)
def test_hashes_agree_exactly_when_the_sequences_of_parts_do(
    first: list[str], second: list[str]
) -> None:
    """Where one part ends and the next begins counts, and so do empty parts."""
    assert (content_hash(first) == content_hash(second)) == (first == second)


def test_hash_is_blake2b_over_parts_with_their_lengths() -> None:
    """By definition: fingerprints on old pages stay comparable with new ones."""
    expected = hashlib.blake2b(
        b"\x02" + bytes(7) + b"ab" + b"\x02" + bytes(7) + "é".encode()
    ).hexdigest()
    assert content_hash(["ab", "é"], length=128) == expected
    assert content_hash([b"ab", "é"]) == expected[:16]


def test_the_cache_is_where_the_environment_says_or_the_platforms(
    private_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unset variable and an empty one mean the same."""
    assert cache_folder("one", "two") == private_cache / "one" / "two"
    assert (private_cache / "one" / "two").is_dir()
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    monkeypatch.delenv("CDE_CACHE", raising=False)
    assert cache_folder("x") == tmp_path / "cde" / "x"
    monkeypatch.setenv("CDE_CACHE", "")
    assert cache_folder("x") == tmp_path / "cde" / "x"
    monkeypatch.setenv("HOME", str(tmp_path))  # where no shell has done it
    monkeypatch.setenv("CDE_CACHE", "~/kept")
    assert cache_folder("x") == tmp_path / "kept" / "x"


def test_a_cache_that_cannot_be_made_names_the_folder_and_the_variable_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CDE_CACHE", str(tmp_path / "file"))
    with pytest.raises(
        PermissionError, match="set CDE_CACHE to a folder that can be written to"
    ) as caught:
        cache_folder("embeddings")
    assert str(tmp_path / "file" / "embeddings") in str(caught.value)


@pytest.mark.parametrize(
    ("line", "reach"),
    [
        ("/dev/vda {} ext4 rw 0 0", "here"),
        ("host:/x {} nfs4 rw,local_lock=none,addr=10.0.0.1 0 0", "everywhere"),
        ("host:/x {} nfs rw,nolock,local_lock=all 0 0", "own"),
        ("host:/x {} nfs rw,local_lock=flock 0 0", "own"),
        ("mgs:/x {} lustre rw,flock 0 0", "everywhere"),
        ("mgs:/x {} lustre rw,localflock 0 0", "own"),
        ("user@host:/x {} fuse.sshfs rw 0 0", "unknown"),
        ("//host/x {} cifs rw 0 0", "unknown"),
        ("/dev/vda {}r ext4 rw 0 0", "own"),  # another folder whose name begins alike
    ],
)
def test_how_far_a_lock_reaches_is_the_innermost_mounts(
    line: str, reach: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """proc(5) and nfs(5)."""
    folder = tmp_path / "my cache" / "runs"
    folder.mkdir(parents=True)
    mounts = tmp_path / "mounts"
    named = str(folder.parent).replace(" ", r"\040")
    outer = f"host:/y {tmp_path} nfs rw,nolock 0 0"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\n{outer}\n{line.format(named)}\n")
    monkeypatch.setattr(storage, "_MOUNTS", mounts)
    assert storage.lock_reach(folder) == reach
    monkeypatch.setattr(storage, "_MOUNTS", tmp_path / "none")
    assert storage.lock_reach(folder) == "here"


def test_a_file_is_the_old_one_until_the_block_ends_and_the_new_one_after(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "table.csv"
    with atomic_path(target) as temporary:
        temporary.write_text("old")
        assert not target.exists()
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
        assert temporary.suffix == ".csv", "writers choose the format by the suffix"
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target], "nothing is left beside it"


def test_a_reader_that_is_half_way_through_the_old_file_reads_on_in_it(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old one, old two")
    with target.open() as reader:
        assert reader.read(7) == "old one"
        with atomic_path(target) as temporary:
            temporary.write_text("something else entirely")
        assert reader.read() == ", old two"
        reader.seek(0)
        assert reader.read() == "old one, old two"


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_block_that_fails_or_is_interrupted_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")
    with pytest.raises(failure), atomic_path(target) as temporary:
        temporary.write_text("half of the n")
        raise failure
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def write_for_the_owner(path: Path) -> None:
    """As safetensors and tempfile do."""
    with atomic_path(path) as temporary:
        temporary.unlink()
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))


WRITERS: dict[str, Callable[[Path], object]] = {
    "a value": lambda folder: storage.write_json(folder / "a.json", {}),
    "a file of another's making": lambda folder: write_for_the_owner(folder / "a.bin"),
    "a bi-encoder": lambda folder: bi_encoder().save_pretrained(folder),
    "a bound encoder": lambda folder: contextual().with_context(CORPUS).save_pretrained(folder),
    "a reader of means": lambda folder: save_reader(fit_reader(np.eye(3), np.eye(3)), folder / "a"),
    "vectors": lambda _: Surrogate(max_tokens=8).embed(["a"]),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_who_may_read_what_is_written_is_for_the_user_s_umask_to_say(
    umask: int, writer: str, private_cache: Path
) -> None:
    """A service of another user reads a model where the umask lets it, and no one where not."""
    folder = private_cache / "written"
    folder.mkdir(parents=True)
    before = os.umask(umask)
    try:
        WRITERS[writer](folder)
    finally:
        os.umask(before)
    written = [path for path in private_cache.rglob("*") if path.is_file()]
    # SQLite opens no file to a group
    most = 0o644 if writer == "vectors" else 0o666
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in written}
    assert modes == dict.fromkeys(modes, most & ~umask) and modes
