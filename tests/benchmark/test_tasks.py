"""The offline tasks: what they are made of, and that each kind of task can be drawn from."""

from __future__ import annotations

from typing import Any

import mteb
import numpy as np
import pandas as pd
import pytest

import cde
from cde.benchmark import draw, task_texts
from cde.cli import main
from cde_studies.benchmark.commands import scores_by_task
from cde_studies.benchmark.evaluation import evaluate_tasks
from cde_studies.benchmark.offline import offline_tasks
from cde_studies.benchmark.texts import (
    belonging_pairs,
    beside_candidates,
    graded_similarities,
    modules,
    split_by_label,
)
from tests.tiny_encoders import bi_encoder


@pytest.mark.parametrize("task", offline_tasks(share=0.06), ids=lambda t: t.metadata.name)
@pytest.mark.slow
def test_every_task_is_scored_by_mteb_and_has_texts_to_draw_from(task: Any) -> None:
    rows = evaluate_tasks(bi_encoder(), "tiny", [task])
    assert rows["score"].between(0, 1).all() or task.metadata.type == "STS"
    assert rows["subset"].tolist() == list(task.hf_subsets)
    for subset in task.hf_subsets:
        assert len(task_texts(task, "test", subset)) >= 10


def test_tasks_that_a_ranker_cannot_do_are_no_empty_table(capsys: Any) -> None:
    assert main(["mteb", "--model", "bm25", "--tasks", "DocstringSTS"]) == 2
    assert "bm25 ranks without vectors, and nothing is searched in DocstringSTS" in (
        capsys.readouterr().err
    )


def test_an_unloaded_task_makes_the_same_texts_again() -> None:
    first, second = (offline_tasks(["DocstringModuleClustering"], share=0.1)[0] for _ in range(2))
    assert task_texts(first, "test") == task_texts(second, "test")
    assert first.metadata.dataset["revision"] == second.metadata.dataset["revision"]
    other = offline_tasks(["DocstringModuleClustering"], share=0.11)[0]
    assert other.metadata.dataset["revision"] != first.metadata.dataset["revision"]


def test_candidates_are_the_relevant_ones_and_what_bm25_finds() -> None:
    collection = cde.load_retrieval("pydocs/rich").shrink(100, 20)
    candidates = beside_candidates(collection, 10)
    found = cde.BM25().rank(collection)
    for query, names in candidates.items():
        relevant = set(collection.qrels[query])
        assert relevant <= set(names) and len(names) == len(set(names)) <= 10
        best = [name for name in found.get(query, {}) if name not in relevant]
        assert set(names) - relevant == set(best[: len(names) - len(relevant)])


def test_each_summary_stands_once_beside_its_own_body_and_once_beside_another() -> None:
    pairs = cde.load_pairs("pydocs/rich", "all").sample(40, 0)
    rows = belonging_pairs(pairs)
    own = dict(zip(pairs.queries, pairs.documents, strict=True))
    assert (rows["labels"] == (rows["sentence2"] == rows["sentence1"].map(own))).all()
    assert rows.groupby("sentence1")["labels"].mean().eq(0.5).all()


def test_likeness_is_the_number_of_sentences_that_a_copy_has_kept() -> None:
    texts = [" ".join(f"text{text} part{part}." for part in range(8)) for text in range(300)]
    rows = graded_similarities(texts, 200)
    assert set(rows["score"]) == set(range(6))
    kept = [
        len(set(one.split("\n")) & set(other.split("\n")))
        for one, other in zip(rows["sentence1"], rows["sentence2"], strict=True)
    ]
    assert [count - 1 for count in kept] == rows["score"].tolist()


def test_training_and_test_texts_of_a_classifier_are_apart_and_balanced() -> None:
    train, test = split_by_label(modules("sympy", 2), 20, 50)
    assert train["label"].value_counts().eq(20).all()
    assert test["label"].value_counts().eq(5).all()
    assert not set(train.index) & set(test.index)


def test_a_draw_is_of_distinct_texts() -> None:
    texts = [f"text {row % 6}" for row in range(60)]
    assert sorted(draw(texts, 10, 0)) == sorted(set(texts))


def test_scores_are_means_over_subsets_and_their_spread_is_over_draws() -> None:
    scores = {"subset": list("xyxy"), "draw": [0, 0, 1, 1], "score": [0.2, 0.4, 0.4, 0.6]}
    rows = pd.DataFrame(scores).assign(task="a", type="Retrieval", context="own")
    line = scores_by_task(rows).iloc[0]
    assert line["score"] == pytest.approx(0.4)
    assert line["spread"] == pytest.approx(np.std([0.3, 0.5], ddof=1))


def test_a_task_of_the_hub_says_that_it_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    task = mteb.get_task("STS12")
    monkeypatch.setattr(task, "load_data", lambda **_: (_ for _ in ()).throw(OSError("no route")))
    monkeypatch.setattr("cde_studies.benchmark.evaluation.notice_being_offline", lambda: None)
    with pytest.raises(ConnectionError, match="STS12 reads mteb/.*cde mteb --list"):
        evaluate_tasks(bi_encoder(), "tiny", [task])


def test_the_command_prints_scores_keeps_them_and_reads_them_back(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bi_encoder().save_pretrained(tmp_path / "tiny")
    asked = ["mteb", "--model", str(tmp_path / "tiny"), "--tasks", "DocstringSTS", "--share"]
    assert main([*asked, "0.08", "--out", str(tmp_path / "out")]) == 0
    first = capsys.readouterr().out
    assert "DocstringSTS" in first and str(tmp_path / "out") in first
    files = list((tmp_path / "out").rglob("DocstringSTS.json"))
    assert len(files) == 1
    before = files[0].read_bytes()
    assert main([*asked, "0.08", "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == first
    assert files[0].read_bytes() == before
