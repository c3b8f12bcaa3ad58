"""What several test files share; properties are derandomised: two runs try the same examples."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

# before torch is loaded: threads that spin long wait for each other on a busy machine
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# small matrices in one thread: waiting for a second costs more; what a test starts inherits it
os.environ["OMP_NUM_THREADS"] = "1"

from hypothesis import settings
from tiny_encoders import small_minilm

import cde
from cde_book.account import account

EXAMPLES = 60 if os.environ.get("CDE_FULL") else 20  # draws of each property
settings.register_profile(
    "cde", deadline=None, derandomize=True, database=None, max_examples=EXAMPLES
)
settings.load_profile("cde")

LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "", None})

#: every host outside this machine that a test's code asked for
hosts_asked: list[str] = []


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Every host but this machine is out of reach, as on a machine without a network."""
    find, connect = socket.getaddrinfo, socket.socket.connect

    def local_only(host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in LOCAL:
            return find(host, *arguments, **options)
        hosts_asked.append(str(name))
        raise socket.gaierror(socket.EAI_NONAME, f"tests have no network; asked for {name}")

    def connect_locally(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in LOCAL:
            hosts_asked.append(str(address[0]))
            raise OSError(f"tests have no network; asked for {address}")
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", local_only)
        patch.setattr(socket.socket, "connect", connect_locally)
        yield


@pytest.fixture(autouse=True)
def settings_stay_in_their_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a page tells its process ends with its test: the precision, the profile, what it measured."""
    precision = os.environ.get("CDE_PRECISION")
    monkeypatch.setattr(account, "profile", "")
    monkeypatch.setattr(account, "measured", [])
    monkeypatch.setattr(account, "gates", {})
    yield
    if precision is None:
        os.environ.pop("CDE_PRECISION", None)
    else:
        os.environ["CDE_PRECISION"] = precision


@pytest.fixture
def asked_hosts() -> list[str]:
    """The hosts that this test asks for, as they are asked for."""
    hosts_asked.clear()
    return hosts_asked


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of this test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CDE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def small_start(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a training may start from in MiniLM's place, where its weights do not matter."""
    return str(small_minilm(tmp_path_factory.mktemp("small") / "minilm"))


@pytest.fixture(scope="session")
def pydocs_pairs() -> cde.Pairs:
    """The training pairs of pydocs (parsed at most once per cache folder)."""
    return cde.load_pairs("pydocs")


@pytest.fixture(scope="session")
def docstrings(pydocs_pairs: cde.Pairs) -> list[str]:
    """From the shortest to the longest of a sample; an empty text, and one that is not English."""
    by_length = sorted(pydocs_pairs.sample(300).documents, key=len)
    return [*by_length[::40], by_length[-1], "", "é ü 漢字", "red boats", "scarlet ships"]


@pytest.fixture(scope="session")
def write_json_lines() -> Callable[[Path, Sequence[Any]], Path]:
    """Write objects as JSON lines."""

    def write(path: Path, rows: Sequence[Any]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def write_beir(write_json_lines: Callable[[Path, Sequence[Any]], Path]) -> Callable[..., Path]:
    """Write a BEIR folder: two documents and two queries, unless others are given."""

    def write(
        folder: Path,
        corpus: Sequence[Any] = (
            {"_id": "d1", "title": "Boats", "text": "are red"},
            {"_id": "d2", "text": "no title"},
        ),
        queries: Sequence[Any] = ({"_id": "q1", "text": "red?"}, {"_id": "q2", "text": "title?"}),
        qrels: Mapping[str, str] | None = None,
    ) -> Path:
        write_json_lines(folder / "corpus.jsonl", corpus)
        write_json_lines(folder / "queries.jsonl", queries)
        (folder / "qrels").mkdir()
        for split, lines in (qrels or {"test": "q1\td1\t2\nq2\td2\t1\n"}).items():
            (folder / "qrels" / f"{split}.tsv").write_text(
                f"query-id\tcorpus-id\tscore\n{lines}", encoding="utf-8"
            )
        return folder

    return write
