"""A build in parts: killed at any moment it goes on, and the index is the one built at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny_encoders import CORPUS, TEXTS, bi_encoder, contextual

import cde
from cde import Index
from cde.corpus import build_index, building
from cde.corpus.building import finished_parts, seconds_per_text
from cde.models import CorpusEncoder
from cde.storage import DamageWarning

Vectors = NDArray[np.float32]

pytestmark = pytest.mark.usefixtures("one_thread")

ALL = [*CORPUS, *TEXTS]
PART = 2
PARTS = -(-len(ALL) // PART)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are compared."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


class Killed(BaseException):
    """What no `except Exception` catches, as a kill."""


class Lengths:
    """An encoder of a class of its own, which has no fingerprint."""

    def __init__(self, factor: int = 1) -> None:
        self.factor = factor

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return np.array([[1, self.factor * len(text)] for text in texts], np.float32)

    encode_documents = encode_queries


@pytest.fixture
def embedding(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The parts that were embedded, in their order."""
    done: list[list[str]] = []
    embed = building.embedded

    def noted(encoder: Any, texts: Sequence[str], role: str) -> Vectors:
        vectors = embed(encoder, texts, role)
        done.append(list(texts))
        return vectors

    monkeypatch.setattr(building, "embedded", noted)
    yield done


def files(folder: Path) -> dict[str, bytes]:
    """What lies in a folder, but for how long it took."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "timing.json"
    }


def killed_at(
    monkeypatch: pytest.MonkeyPatch, step: int, after: bool, run: Callable[[], object]
) -> bool:
    """Run until files were renamed so often; False if it came to its end."""
    replace, seen = Path.replace, 0

    def stop(self: Path, target: Path) -> Path:
        nonlocal seen
        seen += 1
        if seen == step and not after:
            raise Killed
        moved = replace(self, target)
        if seen == step:
            raise Killed
        return moved

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop)
        try:
            run()
        except Killed:
            return True
    return False


ENCODERS: dict[str, Callable[[], Any]] = {
    "bi-encoder": bi_encoder,
    "contextual": contextual,
    "bm25": cde.BM25,
    "own class": Lengths,
}
each_encoder = pytest.mark.parametrize("made", ENCODERS.values(), ids=ENCODERS)


@each_encoder
def test_an_index_built_in_parts_is_the_one_that_is_saved(made: Any, tmp_path: Path) -> None:
    built = build_index(ALL, tmp_path / "parts", encoder=made(), part=PART)
    at_once = Index(ALL, encoder=made())
    assert (built.ids, built.texts) == (at_once.ids, at_once.texts)
    np.testing.assert_allclose(built.vectors, at_once.vectors, atol=2e-6)
    assert not (tmp_path / "parts" / ".building").exists()
    whole = build_index(ALL, tmp_path / "whole", encoder=made(), part=len(ALL))
    at_once.save(tmp_path / "saved")
    assert files(tmp_path / "whole") == files(tmp_path / "saved")
    assert repr(whole) == repr(at_once)


@each_encoder
@pytest.mark.parametrize("finished", range(PARTS + 1))
@pytest.mark.slow
def test_a_killed_build_goes_on_and_embeds_no_part_twice(
    made: Any,
    finished: int,
    tmp_path: Path,
    embedding: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build_index(ALL, tmp_path / "without", encoder=made(), part=PART)
    expected, embedding[:] = embedding[:], []
    embed = building.embedded

    def until(encoder: Any, texts: Sequence[str], role: str) -> Vectors:
        if len(embedding) == finished:
            raise Killed
        return embed(encoder, texts, role)

    with monkeypatch.context() as patch:
        patch.setattr(building, "embedded", until)
        if finished < PARTS:
            with pytest.raises(Killed):
                build_index(ALL, tmp_path / "stopped", encoder=made(), part=PART)
            assert finished_parts(tmp_path / "stopped") == finished
    build_index(ALL, tmp_path / "stopped", encoder=made(), part=PART)
    assert embedding == expected and len(expected) == PARTS
    assert files(tmp_path / "stopped") == files(tmp_path / "without")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_build_may_be_killed_at_every_file_that_it_writes(
    after: bool, tmp_path: Path, embedding: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = bi_encoder()
    build_index(ALL, tmp_path / "without", encoder=encoder, part=PART)
    for step in range(1, 40):
        place = tmp_path / f"stopped-{step}"
        embedding.clear()

        def build(place: Path = place) -> Index:
            return build_index(ALL, place, encoder=encoder, part=PART)

        stopped = killed_at(monkeypatch, step, after, build)
        # a part whose file was not yet renamed is embedded again; no other is
        first = len(embedding)
        build()
        assert files(place) == files(tmp_path / "without")
        assert first - 1 <= PARTS <= len(embedding) <= PARTS + 1
        if not stopped:
            break
    assert step > 2 * PARTS  # of each part two files, then the index


def test_killed_again_and_again_it_comes_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, tries = bi_encoder(), 1
    place = tmp_path / "index"
    while killed_at(
        monkeypatch, tries, False, lambda: build_index(ALL, place, encoder=encoder, part=1)
    ):
        tries += 1
        assert tries < 3 * len(ALL)
    whole = build_index(ALL, tmp_path / "whole", encoder=encoder, part=1)
    assert Index.load(place).fingerprint == whole.fingerprint and tries > 5


@each_encoder
def test_what_is_there_is_not_built_again(
    made: Any, tmp_path: Path, embedding: list[list[str]]
) -> None:
    build_index(ALL, tmp_path / "index", encoder=made())
    before, embedding[:] = files(tmp_path / "index"), []
    assert len(build_index(ALL, tmp_path / "index", encoder=made())) == len(ALL)
    assert embedding == [] and files(tmp_path / "index") == before


def test_what_a_kill_leaves_of_a_file_is_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, place = bi_encoder(), tmp_path / "index"
    killed_at(monkeypatch, 4, True, lambda: build_index(ALL, place, encoder=encoder, part=PART))
    for suffix in ("part", "json"):  # as `cde.storage.atomic_path` names them
        (place / ".building" / f".0a1b-half.{suffix}").write_text("")
    assert finished_parts(place) == 2
    index = build_index(ALL, place, encoder=encoder, part=PART)
    assert len(index) == len(ALL) and not (place / ".building").exists()


@pytest.mark.parametrize(
    ("texts", "encoder", "what"),
    [(ALL[1:], bi_encoder, "other documents"), (ALL, lambda: bi_encoder(seed=1), "another model")],
)
def test_another_index_is_replaced_only_when_told(
    texts: list[str], encoder: Any, what: str, tmp_path: Path, embedding: list[list[str]]
) -> None:
    old = build_index(ALL, tmp_path / "index", encoder=bi_encoder())
    embedding.clear()
    with pytest.raises(FileExistsError, match=f"index holds an index of {what}.*--replace"):
        build_index(texts, tmp_path / "index", encoder=encoder())
    assert embedding == [] and Index.load(tmp_path / "index").fingerprint == old.fingerprint
    new = build_index(texts, tmp_path / "index", encoder=encoder(), replace=True)
    assert Index.load(tmp_path / "index").fingerprint == new.fingerprint != old.fingerprint


def test_a_changed_text_costs_its_part(
    tmp_path: Path, embedding: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, place = bi_encoder(), tmp_path / "index"
    killed_at(
        monkeypatch, 2 * PARTS, True, lambda: build_index(ALL, place, encoder=encoder, part=2)
    )
    assert finished_parts(place) == PARTS
    embedding.clear()
    changed = [ALL[0], "another text", *ALL[2:]]
    build_index(changed, place, encoder=encoder, part=PART)
    assert embedding == [changed[:2]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Lengths, lambda: Lengths(2)),
        (bi_encoder, lambda: bi_encoder(seed=1)),
        (bi_encoder, Lengths),
    ],
)
def test_parts_of_another_encoder_are_not_used(
    first: Any, second: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "index"
    killed_at(monkeypatch, 4, True, lambda: build_index(ALL, place, encoder=first(), part=PART))
    assert finished_parts(place) == 2
    index = build_index(ALL, place, encoder=second(), part=PART)
    np.testing.assert_allclose(index.vectors, Index(ALL, encoder=second()).vectors, atol=2e-6)


def test_half_a_part_is_embedded_again(
    tmp_path: Path, embedding: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may leave a file that was renamed and not written."""
    encoder, place = bi_encoder(), tmp_path / "index"
    killed_at(monkeypatch, 6, True, lambda: build_index(ALL, place, encoder=encoder, part=PART))
    parts = sorted((place / ".building").glob("*.part"))
    for part, size in zip(parts, (0, 100, -4), strict=True):
        part.write_bytes(part.read_bytes()[:size])
    embedding.clear()
    with pytest.warns(DamageWarning, match="made again"):
        index = build_index(ALL, place, encoder=encoder, part=PART)
    assert len(embedding) == PARTS
    assert (
        index.fingerprint
        == build_index(ALL, tmp_path / "new", encoder=encoder, part=PART).fingerprint
    )


def test_a_context_is_drawn_once_and_the_same_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "index"
    killed_at(
        monkeypatch, 4, True, lambda: build_index(ALL, place, encoder=contextual(), part=PART)
    )
    index = build_index(ALL, place, encoder=contextual(), part=PART)
    assert isinstance(index.encoder, CorpusEncoder)
    assert repr(index.encoder) == repr(contextual().with_context(ALL, seed=0))


def test_what_embedding_cost_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(building.time, "perf_counter", lambda: float(next(clock)))
    place = tmp_path / "index"
    killed_at(monkeypatch, 4, True, lambda: build_index(ALL, place, encoder=Lengths(), part=PART))
    build_index(ALL, place, encoder=Lengths(), part=PART)  # what was done before the kill counts
    assert json.loads((place / "timing.json").read_text()) == {"texts": len(ALL), "seconds": PARTS}
    assert seconds_per_text(place) == PARTS / len(ALL)
    cached = build_index(ALL, tmp_path / "cached", encoder=cde.Surrogate(max_tokens=8))
    assert len(cached) == len(ALL) and seconds_per_text(tmp_path / "cached") is None
