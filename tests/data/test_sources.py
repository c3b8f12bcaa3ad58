"""Names of collections: what they load, what is offered for a mistyped one, and their keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import cde
from cde.data import sources
from cde.provenance import account
from cde_book.contents import known_fingerprints
from cde_studies.collections import pydocs

WriteBeir = Callable[..., Path]
WriteLines = Callable[[Path, Sequence[Any]], Path]


@pytest.fixture(autouse=True)
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here sees the data of this machine, and none adds to what this process has loaded."""
    monkeypatch.delenv("CDE_DATA", raising=False)
    monkeypatch.setattr(account, "loaded", {})
    monkeypatch.setattr(account, "asked", set())


@pytest.fixture
def data(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_beir: WriteBeir,
    write_json_lines: WriteLines,
) -> Path:
    """A $CDE_DATA folder: two retrieval sets, two sources of pairs."""
    folder = tmp_path / "data"
    (folder / "beir").mkdir(parents=True)
    write_beir(folder / "beir" / "boats")
    write_beir(
        folder / "beir" / "houses",
        corpus=[{"_id": "d1", "text": "one"}, {"_id": "d2", "text": "two"}],
    )
    (folder / "beir" / "SOURCES.md").write_text("no collection")
    write_json_lines(folder / "pairs" / "news.jsonl", [{"query": "q1", "document": "d1"}])
    write_json_lines(folder / "pairs" / "law.jsonl", [{"query": "q2", "document": "d2"}])
    (folder / "pairs" / "SOURCES.md").write_text("no collection")
    monkeypatch.setenv("CDE_DATA", str(folder))
    return folder


# --- names


def test_pydocs_and_each_of_its_packages_are_always_there() -> None:
    by_name = {source.name: source for source in cde.list_sources()}
    packages = (f"pydocs/{package}" for package in pydocs.PACKAGES)
    assert set(by_name) == {"pydocs", *packages, "manuals", "manuals-sentences"}
    assert {source.kind for source in by_name.values()} == {"pairs, retrieval"}
    roles = {name for name, source in by_name.items() if source.location.endswith("(held out)")}
    assert roles == {"pydocs/sympy", "pydocs/networkx", "pydocs/polars", "pydocs/sqlalchemy"}


def test_every_listed_name_below_the_data_folder_can_be_loaded(data: Path) -> None:
    mine = [source for source in cde.list_sources() if source.name.startswith(("beir", "pairs"))]
    assert [(source.name, source.kind) for source in mine] == [
        ("beir/boats", "retrieval"),
        ("beir/houses", "retrieval"),
        ("pairs/law", "pairs"),
        ("pairs/news", "pairs"),
    ]
    for source in mine:
        load = cde.load_pairs if source.kind == "pairs" else cde.load_retrieval
        assert load(source.name).name == source.name
        assert Path(source.location).exists()


def test_a_name_below_the_data_folder_loads_what_its_path_does(data: Path) -> None:
    by_path = cde.load_retrieval(f"folder:{data / 'beir' / 'boats'}")
    assert cde.load_retrieval("beir/boats").fingerprint == by_path.fingerprint
    assert (
        cde.load_pairs("pairs/law").fingerprint
        == cde.load_pairs(f"folder:{data / 'pairs/law.jsonl'}").fingerprint
    )
    assert list(cde.load_pairs("pairs/*")) == [("q2", "d2"), ("q1", "d1")]
    assert cde.load_pairs("pairs/*").domains == ["law", "news"]


def test_arguments_reach_the_folder(data: Path) -> None:
    lines = "q1\td1\t1\nq1\tgone\t1\nq9\td1\t1\n"
    (data / "beir" / "boats" / "qrels" / "dev.tsv").write_text(lines)
    with pytest.raises(ValueError, match="2 judgements .* q1 → gone, q9 → d1"):
        cde.load_retrieval("beir/boats", split="dev")
    assert cde.load_retrieval("beir/boats", split="dev", drop_unknown=True).qrels == {
        "q1": {"d1": 1}
    }


def test_pydocs_names_load_their_packages() -> None:
    """The collection lacks held-out packages; a package is whole unless a split is asked for."""
    assert set(cde.load_pairs("pydocs/rich").domains) == {"rich"}
    assert cde.load_pairs("pydocs/rich").ids == pydocs.load_pairs(["rich"], split="all").ids
    assert (
        cde.load_pairs("pydocs/rich", split="test").ids
        == pydocs.load_pairs(["rich"], split="test").ids
    )
    more = cde.load_pairs("pydocs/torch", deduplicate=False)
    assert set(more.ids) > set(cde.load_pairs("pydocs/torch").ids)


class Boats:
    """A package's collection of one text."""

    def sources(self) -> list[sources.Source]:
        return [sources.Source("boats/red", "pairs", "a list in memory")]

    def load_pairs(self, name: str, split: Any, deduplicate: bool) -> cde.Pairs | None:
        return cde.Pairs(["red?"], ["a red boat"], name=name) if name == "boats/red" else None

    def load_retrieval(self, name: str) -> None:
        return None

    def source_key(self, name: str) -> str:
        return "painted twice" if name == "boats/red" else "missing"

    def entry(self, name: str, loaded: cde.Pairs | cde.RetrievalSet) -> tuple[str, str]:
        return "boats", loaded.fingerprint


def test_what_a_package_offers_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_offers", lambda: {"boats": Boats()})
    pairs = cde.load_pairs("boats/red")
    assert pairs.documents == ["a red boat"] and account.loaded == {"boats": pairs.fingerprint}
    assert [source.name for source in cde.list_sources()] == ["boats/red"]
    assert sources.source_key("boats/red") == "painted twice"
    assert not sources.is_available("boats/green")
    with pytest.raises(ValueError, match="no collection of pairs is called 'boats/rad': did you"):
        cde.load_pairs("boats/rad")
    with pytest.raises(ValueError, match="no collection of retrieval is called 'boats/red'"):
        cde.load_retrieval("boats/red")


# --- errors


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("pydoc", "pydocs"),
        ("pydocs/scpy", "pydocs/scipy"),
        ("rich", "pydocs/rich"),
        ("PyDocs/numpy", "pydocs/numpy"),
    ],
)
def test_an_unknown_name_is_shown_with_the_closest(name: str, closest: str) -> None:
    for load in (cde.load_pairs, cde.load_retrieval):
        with pytest.raises(ValueError, match=f"is called '{name}': did you mean {closest}"):
            load(name)


@pytest.mark.parametrize("name", ["beir/scifact", "pairs/law", "pairs/*"])
def test_a_name_below_an_unset_data_folder_says_that_it_is_unset(name: str) -> None:
    load = cde.load_retrieval if name.startswith("beir") else cde.load_pairs
    with pytest.raises(ValueError, match=r"looked for below \$CDE_DATA, which is not set"):
        load(name)


def test_a_data_folder_that_is_none_is_shown_with_what_it_should_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDE_DATA", str(tmp_path / "nowhere"))
    for call in (
        cde.list_sources,
        lambda: cde.load_retrieval("beir/boats"),
        lambda: cde.load_pairs("pairs/law"),
    ):
        with pytest.raises(FileNotFoundError, match="which is no folder") as caught:
            call()
        assert str(tmp_path / "nowhere") in str(caught.value)


@pytest.mark.parametrize("name", ["beir/../pairs", "beir/", "pairs/", "pairs/../pairs/law"])
def test_a_name_does_not_lead_out_of_its_folder(data: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no collection"):
        cde.load_retrieval(name)
    with pytest.raises(ValueError, match="no collection"):
        cde.load_pairs(name)


# --- what was loaded and asked for


def test_what_is_asked_for_is_remembered_whether_or_not_it_is_there(data: Path) -> None:
    assert sources.is_available("beir/boats")
    assert not sources.is_available("beir/boats", "beir/ships")
    assert account.asked == {"beir/boats", "beir/ships"}
    assert not sources.is_available("pydocs/no_such_package")
    assert not sources.is_available("pydocsx")
    with pytest.raises(ValueError, match="no collection"):
        cde.load_pairs("nonsense")
    assert account.loaded == {}


# --- keys of freshness


def grow(path: Path) -> None:
    path.write_text(path.read_text() + " \n")


def grow_at_the_same_time(path: Path) -> None:
    stat = path.stat()
    grow(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file grows": lambda folder: grow(folder / "corpus.jsonl"),
    "a file grows within a tick of the clock": lambda folder: grow_at_the_same_time(
        folder / "corpus.jsonl"
    ),
    "a file is rewritten": lambda folder: os.utime(folder / "corpus.jsonl", ns=(1, 1)),
    "a file is added": lambda folder: shutil.copy(
        folder / "qrels" / "test.tsv", folder / "qrels" / "dev.tsv"
    ),
    "a file is renamed": lambda folder: (folder / "corpus.jsonl").rename(folder / "corpus.json"),
    "a file is removed": lambda folder: (folder / "queries.jsonl").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_folders_key_changes_when(change: str, data: Path) -> None:
    names = ("beir/boats", f"folder:{data / 'beir' / 'boats'}")
    before = [sources.source_key(name) for name in names]
    assert before == [sources.source_key(name) for name in names]
    assert before[0] == before[1]
    CHANGES[change](data / "beir" / "boats")
    assert all(old != sources.source_key(name) for old, name in zip(before, names, strict=True))


def test_a_folders_key_stays_when_another_collection_changes_or_the_folder_moves(
    data: Path,
) -> None:
    key = sources.source_key("beir/boats")
    grow(data / "beir" / "houses" / "corpus.jsonl")
    assert sources.source_key("beir/boats") == key
    (data / "beir" / "boats").rename(data / "moved")
    assert sources.source_key(f"folder:{data / 'moved'}") == key
    for missing in ("beir/boats", f"folder:{data / 'nowhere'}"):
        assert sources.source_key(missing) == "missing"


@pytest.mark.parametrize("name", ["pairs/law", "pairs/*"])
def test_the_key_of_pairs_changes_with_their_file(data: Path, name: str) -> None:
    before = sources.source_key(name)
    grow(data / "pairs" / "law.jsonl")
    assert "missing" not in {before, sources.source_key(name)}
    assert sources.source_key(name) != before


def test_the_key_of_pydocs_is_that_of_the_installed_packages() -> None:
    assert sources.source_key("pydocs") == sources.source_key("pydocs/rich") == pydocs.source_key()


def test_all_of_pydocs_is_training_and_held_out_packages_together() -> None:
    everything = sources.load_pairs("pydocs/*")
    training = sources.load_pairs("pydocs", split="all")
    held_out = [sources.load_pairs(f"pydocs/{package}") for package in pydocs.HELD_OUT]
    assert len(everything) == len(training) + sum(map(len, held_out))
    assert account.loaded["pydocs/*"] == everything.fingerprint
    assert sources.is_available("pydocs/*")


def test_the_fingerprints_of_a_collection_are_those_that_loading_gives_and_follow_its_files(
    data: Path, private_cache: Path
) -> None:
    pairs, collection = cde.load_pairs("pairs/law"), cde.load_retrieval("beir/boats")
    loaded = {"pairs/law": pairs.fingerprint, "beir/boats": collection.fingerprint}
    before = loaded, {"pairs/law", "beir/boats"}
    assert (account.loaded, account.asked) == before
    assert pairs.fingerprint in known_fingerprints("pairs/law")
    assert collection.fingerprint in known_fingerprints("beir/boats")
    assert known_fingerprints("beir/no-such") == set()
    assert (account.loaded, account.asked) == before, "asking is not loading"
    path = data / "beir" / "boats" / "queries.jsonl"
    path.write_text(path.read_text().replace("red?", "what is red?"))
    assert collection.fingerprint not in known_fingerprints("beir/boats")


def test_ones_own_pairs_have_the_splits_that_pydocs_has(
    tmp_path: Path, write_json_lines: WriteLines
) -> None:
    written = cde.load_pairs("pydocs/rich")
    rows = [{"query": query, "document": text, "domain": "rich"} for query, text in written]
    name = f"folder:{write_json_lines(tmp_path / 'mine.jsonl', rows)}"
    parts = {split: cde.load_pairs(name, split=split) for split in ("train", "test", "all")}
    assert parts["all"].fingerprint == cde.load_pairs(name).fingerprint == written.fingerprint
    for split in ("train", "test"):
        assert parts[split].fingerprint == cde.load_pairs("pydocs/rich", split).fingerprint
        assert set(parts[split].ids) < set(parts["all"].ids)
    assert not set(parts["train"].documents) & set(parts["test"].documents)
    assert {one.fingerprint for one in parts.values()} <= known_fingerprints(name)
    with pytest.raises(ValueError, match="split must be 'train', 'test' or 'all'; it is 'zzz'"):
        cde.load_pairs(name, split="zzz")  # type: ignore[arg-type]
