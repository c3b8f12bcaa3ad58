"""`cde index` on the shell, and one corpus under several models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_encoders import CORPUS, bi_encoder, contextual

import cde
from cde import Index
from cde.cli import main
from cde.corpus import folders
from cde.corpus.folders import build_folder, change_folder, open_folder, search_folder

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = {
    "boats.md": "Red boats lie in the harbour.",
    "soup.md": "Leeks, potatoes and cream make a soup.",
    "tides.md": "The sea rises and falls twice a day.",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "notes"
    place.mkdir()
    for name, text in TEXTS.items():
        (place / name).write_text(text)
    return place


Says = Callable[..., str]


@pytest.fixture
def index(capsys: pytest.CaptureFixture[str]) -> Says:
    """`cde index …`: what it prints; it must end well."""

    def run(*arguments: object, status: int = 0) -> str:
        capsys.readouterr()
        assert main(["index", *map(str, arguments)]) == status
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run


def test_an_index_of_whole_numbers_is_searched_and_added_to_in_them(
    index: Says, source: Path, tmp_path: Path
) -> None:
    place = tmp_path / "notes.index"
    options = ("--max-tokens", 8, "--also", "bm25", "--precision", "int8")
    said = index("build", source, place, *options)
    assert "Surrogate('minilm', max_tokens=8, precision='int8')" in said
    (source / "ships.md").write_text("Ships are large boats.")
    assert "1 added" in index("add", place, source, "--update")
    assert "ships.md" in index("search", place, "large ships", "--depth", 1)
    assert Index.load(place).encoder.precision == "int8"


def test_a_folder_goes_the_whole_way(index: Says, source: Path, tmp_path: Path) -> None:
    place = tmp_path / "notes.index"
    (source / "empty.md").write_text("")
    said = index("build", source, place, "--max-tokens", 8, "--also", "bm25")
    assert "3 documents were read, 1 left out: empty.md (empty)" in said
    assert "Index(3 documents, 384 dimensions; Surrogate('minilm', max_tokens=8))" in said
    found = json.loads(index("search", place, "potatoes", "--json"))
    assert found[0]["id"] == "soup.md" and found[0]["text"] == TEXTS["soup.md"]
    assert "soup.md" in index("search", place, "potatoes", "--depth", 1)
    both = json.loads(index("search", place, "potatoes", "tides", "--depth", 1, "--json"))
    assert [row["query"] for row in both] == ["potatoes", "tides"]

    (source / "lamps.csv").write_text("key;body\nlamp;A lighthouse sends light over water.\n")
    (source / "boats.md").write_text("Green boats lie in the harbour.")
    columns = "--text-column", "body", "--id-column", "key"
    said = index("add", place, source, "--update", *columns)
    assert "1 added, 1 replaced: 4 documents" in said
    assert "0 added, 0 replaced: 4 documents" in index("add", place, source, "--update", *columns)
    assert "1 removed: 3 documents" in index("remove", place, "soup.md")

    said = index("status", place)
    for part in (
        "3, 384 dimensions",
        "3, no vectors",
        "67% of the documents came after",
        "by the speed",
    ):
        assert part in said
    states = json.loads(index("status", place, "--json"))
    assert [state["documents"] for state in states] == [3, 3]
    loaded = Index.load(place)
    assert states[0]["index"] == loaded.fingerprint
    assert set(loaded.ids) == {"boats.md", "tides.md", "lamp"}
    assert loaded.search("ships", depth=1)["text"][0].startswith("Green boats")
    assert Index.load(place / "also-bm25").search("lighthouse")["id"].tolist() == ["lamp"]


def test_what_is_wrong_is_said_and_changes_nothing(
    index: Says, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "index"
    index("build", source, place, "--model", "bm25")
    before = Index.load(place).fingerprint
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        (["build", source, place, "--model", "minilmm"], "no model 'minilmm': accepted are minilm"),
        (["build", source, place, "--model", "minilm"], "holds an index of another model"),
        (["build", source, tmp_path / "n", "--also", "minilm"], "minilm is named twice"),
        (["build", source, tmp_path / "n", "--context", 5], "minilm is bound to no context"),
        (["build", source, tmp_path / "n", "--model", "bm25", "--max-tokens", 5], "is for minilm"),
        (
            ["build", source, tmp_path / "n", "--model", "bm25", "--precision", "int8"],
            "for embedding",
        ),
        (["build", tmp_path / "gone", tmp_path / "n"], "no folder or file"),
        (["build", source, source], "holds other files"),
        (["add", place, source], "are in the index already, such as boats.md"),
        (["remove", place, "boats.md", "none"], "1 of the ids are not in the index, such as none"),
        (["search", place, "boats", "--depth", 0], "depth must be 1 or more"),
        (["search", source, "boats"], "holds no index"),
        (["status", tmp_path / "gone"], "no folder"),
    ):
        assert said in index(*arguments, status=2), arguments
    assert Index.load(place).fingerprint == before and not (tmp_path / "n" / "index.json").exists()


def test_an_interrupted_build_is_seen_and_gone_on_with(
    index: Says, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "index"

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cde.corpus.building.write_index", killed)
        said = index("build", source, place, "--model", "bm25", status=130)
        assert "parts of an index are kept; the same command goes on" in said
    assert "a build was interrupted after 1 parts" in index("status", place)
    assert "going on after 1 parts" in index("build", source, place, "--model", "bm25")
    assert len(Index.load(place)) == 3


def test_a_damaged_index_is_refused_by_name(index: Says, source: Path, tmp_path: Path) -> None:
    place = tmp_path / "index"
    index("build", source, place, "--model", "bm25", "--also", "minilm", "--max-tokens", 8)
    damaged = next((place / "also-minilm").glob("vectors-*"))
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert f"{damaged} is damaged" in index("search", place, "boats", status=2)


@pytest.mark.parametrize("kind", ["bi-encoder", "contextual", "bound"])
def test_models_of_ones_own_are_named_by_their_folder(
    kind: str, index: Says, source: Path, tmp_path: Path
) -> None:
    model = bi_encoder() if kind == "bi-encoder" else contextual()
    if kind == "bound":
        model.with_context(CORPUS, size=3).save_pretrained(tmp_path / "model")
    else:
        model.save_pretrained(tmp_path / "model")
    options = ["--context", 2] if kind == "contextual" else []
    index("build", source, tmp_path / "index", "--model", tmp_path / "model", *options)
    context = json.loads(index("status", tmp_path / "index", "--json"))[0]["context"]
    expected = {"contextual": "2 of 3 texts, seed 0", "bound": f"3 of {len(CORPUS)} texts, seed 0"}
    assert context == expected.get(kind, "")
    assert len(Index.load(tmp_path / "index").search("boats")) == 3


def test_several_models_are_fused_by_their_ranks(tmp_path: Path) -> None:
    models = {"first": bi_encoder(), "second": bi_encoder(seed=1), "bm25": cde.BM25()}
    indexes = build_folder(CORPUS, tmp_path / "index", models)
    queries = ["ships at sea", "a sailor"]
    asked = indexes[0].retrieval_set({str(place): text for place, text in enumerate(queries)})
    rankings = cde.Hybrid([*models.values()]).rank(asked)
    found = search_folder(open_folder(tmp_path / "index"), queries, depth=4)
    for place, text in enumerate(queries):
        some = found[found["query"] == text]
        assert dict(zip(some["id"], some["score"], strict=True)) == pytest.approx(
            dict(list(rankings[str(place)].items())[:4])
        )
    alone = search_folder(indexes[:1], "ships", depth=2)
    assert alone.equals(indexes[0].search("ships", depth=2))


def test_a_change_that_was_interrupted_between_two_models_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "index"
    models = {"first": bi_encoder(), "second": bi_encoder(seed=1)}
    build_folder(TEXTS, place, models)
    with monkeypatch.context() as patch:
        patch.setattr(folders, "_follow", lambda index, *_: index)
        change_folder(place, add={"new": "ropes"}, remove=["soup.md"])
    assert "new" not in Index.load(place / "also-second")
    first, second = open_folder(place)
    assert (first.ids, first.texts) == (second.ids, second.texts)
    assert "new" in Index.load(place / "also-second") and "soup.md" not in second
    at_once = Index(
        {name: TEXTS[name] for name in ("boats.md", "tides.md")}, encoder=bi_encoder(seed=1)
    )
    at_once.add({"new": "ropes"})
    assert abs(second.vectors - at_once.vectors).max() < 2e-6


def test_replacing_leaves_no_model_of_before(tmp_path: Path) -> None:
    place = tmp_path / "index"
    build_folder(TEXTS, place, {"first": cde.BM25(), "old": cde.BM25(k1=2.0)})
    build_folder({"a": "new"}, place, {"first": cde.BM25()}, replace=True)
    assert [len(one) for one in open_folder(place)] == [1]


def test_bm25_alone_ranks_as_bm25(tmp_path: Path) -> None:
    corpus = cde.load_retrieval("pydocs/rich").shrink(documents=60, queries=10)
    index = Index(corpus, encoder=cde.BM25())
    queries = dict(zip(corpus.query_ids, corpus.queries, strict=True))
    collection = index.retrieval_set(queries, corpus.qrels)
    assert index.rank(collection) == cde.BM25().rank(corpus)
    loaded = Index.load(index.save(tmp_path / "index"))
    assert loaded.search(corpus.queries).equals(index.search(corpus.queries))
    index.add({"new": "zygote"})
    assert index.search("zygote")["id"].tolist() == ["new"]
    index.remove("new")
    assert len(index.search("zygote")) == 0
    with pytest.raises(ValueError, match="another encoder"):
        Index.load(tmp_path / "index", encoder=cde.BM25(k1=2.0))


def test_models_of_one_name_are_refused_before_anything_is_embedded(tmp_path: Path) -> None:
    """The second would be kept in the place of the first."""
    models = {"one": cde.BM25(), "runs/a/model": cde.BM25(), "runs/b/model": cde.BM25(k1=2.0)}
    with pytest.raises(ValueError, match="under one name; rename one: runs/a/model, runs/b/model"):
        build_folder(TEXTS, tmp_path / "index", models)
    assert not (tmp_path / "index").exists()


def test_a_document_that_goes_and_comes_back_is_found_by_all_indexes(tmp_path: Path) -> None:
    place = tmp_path / "index"
    texts = {"a": "red boats", "b": "soup", "c": "a green house"}
    build_folder(texts, place, {"first": cde.BM25(), "second": cde.BM25(k1=2.0)})
    change_folder(place, remove=["a"], add={"a": "red boats"})
    first, second = open_folder(place)
    assert first.ids == second.ids == ("b", "c", "a")
    assert search_folder([first, second], "red")["id"][0] == "a"
