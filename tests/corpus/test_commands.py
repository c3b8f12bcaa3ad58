"""`cde index` on the shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_encoders import CORPUS, bi_encoder, contextual

import cde
from cde import Index
from cde.cli import main

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


def test_a_folder_goes_the_whole_way(index: Says, source: Path, tmp_path: Path) -> None:
    place = tmp_path / "notes.index"
    (source / "empty.md").write_text("")
    said = index("build", source, place, "--max-tokens", 16, "--precision", "float32")
    assert "3 documents were read, 1 left out (1 × empty): empty.md (empty)" in said
    assert "Surrogate('minilm', max_tokens=16)" in said
    found = json.loads(index("search", place, "potatoes", "--json"))
    assert found[0]["id"] == "soup.md" and found[0]["text"] == TEXTS["soup.md"]
    assert "soup.md" in index("search", place, "potatoes", "--depth", 1, "--words")
    both = json.loads(index("search", place, "potatoes", "tides", "--depth", 1, "--json"))
    assert [row["query"] for row in both] == ["potatoes", "tides"]

    (source / "empty.md").unlink()
    (source / "lamps.csv").write_text("key;body\nlamp;A lighthouse sends light over water.\n")
    (source / "boats.md").write_text("Green boats lie in the harbour.")
    (source / "tides.md").unlink()
    columns = "--text-column", "body", "--id-column", "key"
    said = index("sync", place, source, *columns)
    assert "1 added, 1 changed, 1 removed, 0 moved, 1 kept" in said
    assert "0 added, 0 changed, 0 removed, 0 moved, 3 kept" in index("sync", place)
    assert "1 removed" in index("remove", place, "soup.md")
    assert "1 added, 0 changed" in index("add", place, source / "soup.md")
    assert set(index("list", place).split()) == {"boats.md", "lamp", "soup.md"}

    said = index("status", place)
    for part in ("3 in 3 passages", "384 dimensions", str(source), "100% of the passages came"):
        assert part in said
    status = json.loads(index("status", place, "--json"))
    loaded = Index.load(place)
    assert status["documents"] == 3 and status["index"] == loaded.fingerprint
    assert loaded.search("ships", depth=1)["text"][0].startswith("Green boats")
    assert loaded.encoder.precision == "float32"


def test_what_is_wrong_is_said_and_changes_nothing(
    index: Says, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, new = tmp_path / "index", tmp_path / "n"
    index("build", source, place, "--model", "bm25")
    before = Index.load(place).fingerprint
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        (["build", source, place, "--model", "minilmm"], "no model 'minilmm': accepted are minilm"),
        (["build", source, place, "--model", "minilm"], "holds another index, of BM25"),
        (["build", source, new, "--context", 5], "minilm is bound to no context"),
        (["build", source, new, "--model", "bm25", "--max-tokens", 5], "is for minilm"),
        (["build", source, new, "--model", "bm25", "--precision", "float32"], "for embedding"),
        (["build", source, new, "--model", "bm25", "--sample-query", "a"], "BM25 has no vectors"),
        (["build", tmp_path / "gone", new], "no folder or file"),
        (["build", source, source], "holds other files"),
        (["remove", place, "boats.md", "none"], "not among index.ids: 1, such as none"),
        (["search", place, "boats", "--depth", 0], "depth must be 1 or more"),
        (["search", source, "boats"], "holds no index"),
        (["status", tmp_path / "gone"], "no folder"),
    ):
        assert said in index(*arguments, status=2), arguments
    assert Index.load(place).fingerprint == before and not (new / "index.json").exists()


def test_a_link_in_somebody_elses_folder_moves_nothing_of_mine(
    index: Says, source: Path, tmp_path: Path
) -> None:
    """A search of theirs once wrote into an index that a link in it led to."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    index("build", source, mine, "--model", "bm25")
    before = Index.load(mine).fingerprint
    index("build", source, theirs, "--model", "bm25")
    (theirs / "also-x").symlink_to(mine)
    (theirs / f"rows-{'0' * 16}.lance").symlink_to(mine)
    index("search", theirs, "boats")
    (source / "boats.md").write_text("Other boats.")
    index("sync", theirs)
    index("build", source, theirs, "--model", "bm25", "--replace")
    assert Index.load(mine).fingerprint == before


def test_what_a_document_says_cannot_steer_the_terminal(
    index: Says, source: Path, tmp_path: Path
) -> None:
    (source / "x\x1b[2J.md").write_text("boats \x1b]0;owned\x07 and \x9b31m red")
    index("build", source, tmp_path / "index", "--model", "bm25")
    for said in (index("search", tmp_path / "index", "owned"), index("list", tmp_path / "index")):
        assert "owned" in said or "x" in said
        assert not {"\x1b", "\x07", "\x9b"} & set(said)


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
    context = json.loads(index("status", tmp_path / "index", "--json"))["context"]
    expected = {"contextual": "2 of 3 texts, seed 0", "bound": f"3 of {len(CORPUS)} texts, seed 0"}
    assert context == expected.get(kind, "")
    assert len(Index.load(tmp_path / "index").search("boats")) == 3


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


def test_vectors_and_words_together_rank_as_their_hybrid() -> None:
    corpus = cde.load_retrieval("pydocs/rich").shrink(documents=60, queries=5)
    index = Index(corpus, encoder=cde.Surrogate(max_tokens=32), on_long="truncate")
    asked = index.retrieval_set(dict(zip(corpus.query_ids, corpus.queries, strict=True)))
    fused = cde.Hybrid([index, cde.BM25()]).rank(asked)
    for name, text in zip(asked.query_ids, asked.queries, strict=True):
        found = index.search(text, depth=5, words=True)
        ours = dict(zip(found["id"], found["score"].tolist(), strict=True))
        assert list(ours.values()) == pytest.approx(list(fused[name].values())[:5])
        assert all(fused[name][one] == pytest.approx(score) for one, score in ours.items())
