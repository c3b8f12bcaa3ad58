"""The Hub's layouts, read from local folders, and what is said where the Hub is out of reach."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from huggingface_hub import constants

import cde
from cde.data import readers

WriteLines = Callable[[Path, Sequence[Any]], Path]

DOCUMENTS = [
    {"_id": "d1", "title": "Boats", "text": "are red"},
    {"_id": "d2", "title": "", "text": "no title"},
]
QUERIES = [{"_id": "q1", "text": "red?"}, {"_id": "q2", "text": "unjudged?"}]
QRELS = [
    {"query-id": "q1", "corpus-id": "d1", "score": 2},
    {"query-id": "q1", "corpus-id": "d2", "score": 0},
]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`datasets` keeps its copies in this test's folder, and what is found out about the network is
    forgotten.
    """
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def declare(folder: Path, prefix: str = "", qrels: str = "default") -> None:
    """Write the card that tells `datasets` which file is which configuration and split."""
    files = {f"{prefix}corpus": "corpus", f"{prefix}queries": "queries", qrels: "test"}
    configs = [
        {"config_name": name, "data_files": [{"split": split, "path": f"{split}.jsonl"}]}
        for name, split in files.items()
    ]
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n")


@pytest.fixture
def local_set(tmp_path: Path, write_json_lines: WriteLines) -> Path:
    """A retrieval set in mteb's layout."""
    folder = tmp_path / "toy"
    write_json_lines(folder / "corpus.jsonl", DOCUMENTS)
    write_json_lines(folder / "queries.jsonl", QUERIES)
    write_json_lines(folder / "test.jsonl", QRELS)
    declare(folder)
    return folder


def test_a_set_in_mtebs_layout_is_read_as_the_beir_folder_of_the_same_content(
    local_set: Path, tmp_path: Path, write_beir: Callable[..., Path]
) -> None:
    beir = write_beir(
        tmp_path / "beir",
        corpus=DOCUMENTS,
        queries=QUERIES,
        qrels={"test": "q1\td1\t2\nq1\td2\t0\n"},
    )
    collection = cde.load_retrieval(f"hub:{local_set}")
    assert collection.fingerprint == cde.load_retrieval(f"folder:{beir}").fingerprint
    assert collection.documents == ["Boats are red", "no title"]
    assert collection.query_ids == ["q1"], "only judged queries are asked"
    assert collection.name == f"hub:{local_set}"


def test_a_configuration_is_a_prefix_of_the_three(local_set: Path) -> None:
    declare(local_set, "nl-", "nl-qrels")
    collection = cde.load_retrieval(f"hub:{local_set}:nl")
    assert collection.qrels == {"q1": {"d1": 2, "d2": 0}}
    assert collection.name == f"hub:{local_set}:nl"


def test_whole_number_ids_become_strings(local_set: Path, write_json_lines: WriteLines) -> None:
    write_json_lines(local_set / "corpus.jsonl", [{"_id": 7, "text": "seven"}])
    write_json_lines(local_set / "test.jsonl", [{"query-id": "q1", "corpus-id": 7, "score": 1}])
    collection = readers.hub_retrieval(f"hub:{local_set}")
    assert (collection.document_ids, collection.qrels) == (["7"], {"q1": {"7": 1}})


def test_an_unknown_split_or_configuration_says_which_there_are(local_set: Path) -> None:
    with pytest.raises(
        ValueError, match=r'split dev: Unknown split "dev"\. Should be one of \[\'test\'\]'
    ):
        readers.hub_retrieval(f"hub:{local_set}", split="dev")
    with pytest.raises(
        ValueError,
        match=r"configuration nl-corpus, .* Available: \['corpus', 'queries', 'default'\]",
    ):
        readers.hub_retrieval(f"hub:{local_set}:nl")


def test_judgements_without_the_expected_columns_are_a_value_error_that_names_them(
    local_set: Path, write_json_lines: WriteLines
) -> None:
    write_json_lines(local_set / "test.jsonl", [{"qid": "q1", "docid": "d1", "score": 1}])
    with pytest.raises(ValueError, match="query-id"):
        readers.hub_retrieval(f"hub:{local_set}")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (("document", "query"), ("query", "document")),
        (("title", "body", "text"), ("title", "text")),
        (("question", "answer", "anchor"), ("anchor", "answer")),
    ],
)
def test_pairs_are_taken_from_the_columns_named_like_a_query_and_like_a_document(
    tmp_path: Path,
    write_json_lines: WriteLines,
    columns: tuple[str, ...],
    expected: tuple[str, str],
) -> None:
    write_json_lines(
        tmp_path / "toy" / "train.jsonl",
        [{name: f"{name} {i}" for name in columns} for i in range(3)],
    )
    pairs = cde.load_pairs(f"hub:{tmp_path / 'toy'}")
    assert list(pairs) == [(f"{expected[0]} {i}", f"{expected[1]} {i}") for i in range(3)]
    assert set(pairs.domains) == {str(tmp_path / "toy")}
    assert len(set(pairs.ids)) == 3


def test_a_column_of_domains_is_used(tmp_path: Path, write_json_lines: WriteLines) -> None:
    rows = [{"query": "q", "document": "d", "domain": domain} for domain in ("law", "news")]
    write_json_lines(tmp_path / "toy" / "train.jsonl", rows)
    assert cde.load_pairs(f"hub:{tmp_path / 'toy'}").domains == ["law", "news"]


def test_columns_of_other_names_are_listed_beside_those_accepted(
    tmp_path: Path, write_json_lines: WriteLines
) -> None:
    write_json_lines(tmp_path / "toy" / "train.jsonl", [{"query": "a", "summary": "b"}])
    with pytest.raises(
        ValueError, match="no column for the document: expected one of .*'positive'"
    ) as caught:
        readers.hub_pairs(f"hub:{tmp_path / 'toy'}")
    assert "it has ['query', 'summary']" in str(caught.value)


@pytest.mark.parametrize("load", [cde.load_pairs, cde.load_retrieval])
def test_a_hub_out_of_reach_is_a_connection_error_that_names_what_works_offline(
    load: Callable[[str], object], asked_hosts: list[str]
) -> None:
    """After one attempt to reach it for each configuration at most: no waiting and asking again."""
    with pytest.raises(
        ConnectionError, match="hub:owner/name, .*out of reach, or there is no such set"
    ) as caught:
        load("hub:owner/name")
    message = str(caught.value)
    assert all(way in message for way in ("`pydocs`", "`folder:<path>`", "$CDE_DATA"))
    assert 1 <= len(asked_hosts) <= 3


def test_a_hub_that_answers_is_not_taken_for_one_out_of_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for way in ("https_proxy", "all_proxy"):
        monkeypatch.delenv(way, raising=False)
        monkeypatch.delenv(way.upper(), raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        readers.notice_being_offline()
        assert not datasets.config.HF_HUB_OFFLINE
    with monkeypatch.context() as behind:
        behind.setenv("https_proxy", "http://127.0.0.1:1")
        readers.notice_being_offline()
        assert not constants.HF_HUB_OFFLINE
    readers.notice_being_offline()
    assert datasets.config.HF_HUB_OFFLINE
    assert constants.HF_HUB_OFFLINE


@pytest.mark.parametrize("name", ["hub:", "hub::config"])
def test_a_name_without_a_repository_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is not hub:"):
        cde.load_pairs(name)
