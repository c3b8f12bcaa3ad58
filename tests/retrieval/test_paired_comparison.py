"""Comparisons: of runs the same as of the systems that made them, of tables as by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import cde
from cde.cli import main
from cde.data import RetrievalSet
from cde.intervals import holm, paired_test
from cde.retrieval import Run, rank, score_queries


@pytest.fixture(scope="module")
def collection() -> RetrievalSet:
    return cde.load_retrieval("pydocs/mpmath").shrink(60, 40, 0)


@pytest.fixture(scope="module")
def systems() -> dict[str, cde.BM25]:
    return {"BM25": cde.BM25(), "no length": cde.BM25(b=0.0), "soft": cde.BM25(k1=4.0)}


def saved(folder: Path, collection: RetrievalSet, systems: dict[str, cde.BM25]) -> list[Path]:
    """The run of each system, and the judgements in TREC's four columns."""
    paths = []
    for number, (name, system) in enumerate(systems.items()):
        paths.append(folder / f"{number}.run")
        Run(rank(system, collection, 60), name).write(paths[-1])
    lines = [
        f"{query} 0 {document} {grade}"
        for query, judged in collection.qrels.items()
        for document, grade in judged.items()
    ]
    (folder / "qrels").write_text("\n".join(lines))
    return paths


def test_runs_on_disk_compare_as_the_systems_that_made_them(
    tmp_path: Path, collection: RetrievalSet, systems: dict[str, cde.BM25]
) -> None:
    first, second, _ = saved(tmp_path, collection, systems)
    live = cde.compare(*list(systems.values())[:2], collection, depth=60)
    for judgements in (collection, tmp_path / "qrels", collection.qrels):
        found = cde.compare(first, str(second), judgements, depth=60)
        assert found.difference == live.difference and found.p_value == live.p_value
        pd.testing.assert_frame_equal(found.queries.sort_index(), live.queries.sort_index())
    mixed = cde.compare(first, systems["no length"], collection, depth=60)
    assert mixed.difference == live.difference


def test_a_run_that_is_read_ranks_and_scores_as_when_it_was_written(
    tmp_path: Path, collection: RetrievalSet
) -> None:
    """Scores that differ in the last digit, ties and unicode ids come back as they were."""
    ids = ["d1", "däß", "d3"]
    made = Run({"q": dict(zip(ids, [1 / 3, 1 / 3, np.nextafter(1 / 3, 1)], strict=True))}, "a b")
    for name in ("run", "run.gz"):
        made.write(tmp_path / name)
        assert Run.read(tmp_path / name).rankings == made.rankings
    assert (tmp_path / "run").read_text().splitlines()[0].split()[1:4] == ["Q0", "däß", "1"]
    reference = rank(cde.BM25(), collection, 60)
    Run(reference).write(tmp_path / "bm25.run")
    expected = score_queries(reference, collection, ("ndcg@10", "map@60"))
    again = rank(Run.read(tmp_path / "bm25.run"), collection, 60)
    pd.testing.assert_frame_equal(score_queries(again, collection, ("ndcg@10", "map@60")), expected)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("q Q0 d 1 0.5", "line 2: .* six fields"),
        ("q Q0 d 1 high name", "line 2: the score is not a number: 'high'"),
        ("q Q0 d0 1 0.5 name", "line 2: 'd0' stands twice under 'q'"),
    ],
)
def test_a_line_that_is_none_of_a_run_is_named(tmp_path: Path, line: str, wanted: str) -> None:
    (tmp_path / "run").write_text(f"q Q0 d0 1 2.5 name\n{line}\n")
    with pytest.raises(ValueError, match=wanted):
        Run.read(tmp_path / "run")


def test_a_run_of_no_query_is_refused_instead_of_scored_nought(tmp_path: Path) -> None:
    (tmp_path / "empty.run").write_text("\n")
    with pytest.raises(ValueError, match=r"the run 'empty\.run' ranks no query"):
        cde.compare(tmp_path / "empty.run", {"q": {"d": 1.0}}, {"q": {"d": 1}, "r": {"d": 1}})
    with pytest.raises(ValueError, match="ranks no query"):
        cde.compare({}, {"q": {"d": 1.0}}, {"q": {"d": 1}, "r": {"d": 1}})
    with pytest.raises(TypeError, match=r"document ids → scores; {'q': \['d'\]}"):
        cde.compare({"q": ["d"]}, {"q": {"d": 1.0}}, {"q": {"d": 1}, "r": {"d": 1}})


@pytest.mark.parametrize(
    ("rankings", "message"),
    [
        ({"q": {"two words": 1.0}}, "'two words' has a blank"),
        ({"q": {"d": float("nan")}}, "that of 'q' → 'd' is nan"),
        ({"q": {"d": "high"}}, "scores of the query 'q' must be numbers"),
        ({1: {"d": 1.0}}, "ids of a run must be strings; item 0 is of type int"),
    ],
)
def test_what_the_format_cannot_hold_is_not_written(
    tmp_path: Path, rankings: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Run(rankings).write(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_of_other_queries_is_refused_and_not_scored_zero() -> None:
    asked = RetrievalSet(["d"], ["red"], ["q1"], ["sky"], {"q1": {"d": 1}})
    with pytest.raises(ValueError, match="ranks no query of the set: it has such as 'x'"):
        cde.evaluate(Run({"x": {"d": 1.0}}), asked)


def test_many_systems_are_corrected_for_how_many_they_are(
    collection: RetrievalSet, systems: dict[str, cde.BM25]
) -> None:
    table = cde.compare_all(systems, collection)
    scores = [
        score_queries(rank(one, collection), collection)["ndcg@10"] for one in systems.values()
    ]
    alone = [paired_test(one.tolist(), scores[0].tolist()) for one in scores[1:]]
    assert table["p_value"].iloc[1:].tolist() == holm([one.p_value for one in alone]).tolist()
    assert table["difference"].iloc[1:].tolist() == [one.difference for one in alone]
    assert [one.estimate for one in table["score"]] == [one.mean() for one in scores]
    assert list(table.index) == list(systems) and table["difference"].iloc[0] is None
    one = cde.compare_all({"BM25": systems["BM25"]}, collection)
    assert one["score"].tolist() == table["score"].tolist()[:1]


class TestTables:
    better = pd.DataFrame([[3.0, 5.0], [3.3, 5.4], [2.9, 5.2]], columns=["a", "b"])
    worse = pd.DataFrame([[2.0, 4.1], [2.1, 4.5], [2.0, 4.0]], columns=["a", "b"])

    def test_rows_and_columns_belong_together_by_their_names(self) -> None:
        expected = cde.compare_tables(self.better, self.worse)
        shuffled = cde.compare_tables(self.better, self.worse.loc[[2, 0, 1], ["b", "a"]])
        assert shuffled.difference == expected.difference
        with pytest.raises(ValueError, match="columns must have the same labels.*'b', 'c'"):
            cde.compare_tables(self.better, self.worse.rename(columns={"b": "c"}))

    def test_over_seeds_alone_it_is_students_paired_test(self) -> None:
        one, other = self.better[["a"]], self.worse[["a"]]
        found = cde.compare_tables(one, other)
        expected = stats.ttest_rel(one["a"], other["a"])
        assert found.p_value == pytest.approx(expected.pvalue)
        ends = expected.confidence_interval(0.95)
        assert (found.difference.low, found.difference.high) == pytest.approx((ends.low, ends.high))


def test_the_command_scores_run_files(
    tmp_path: Path,
    collection: RetrievalSet,
    systems: dict[str, cde.BM25],
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = saved(tmp_path, collection, systems)
    assert main(["score", str(tmp_path / "qrels"), *map(str, paths)]) == 0
    table = cde.compare_all({str(path): path for path in paths}, tmp_path / "qrels")
    lines = capsys.readouterr().out.splitlines()
    assert f"{table['score'].iloc[1].estimate:.4f}" in lines[2] and str(paths[1]) in lines[2]
    assert str(table["difference"].iloc[1]) in lines[3]


def test_the_command_keeps_documents_that_have_their_query_s_id_where_it_is_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "qrels").write_text("1 0 9 1\n2 0 9 1\n")
    (tmp_path / "run").write_text(
        "".join(f"{q} Q0 {d} 1 {9 - d} me\n" for q in (1, 2) for d in (1, 2, 9))
    )
    for more, score in ([], "0.5000"), (["--keep-own"], "0.3333"):
        paths = [str(tmp_path / name) for name in ("qrels", "run")]
        assert main(["score", *paths, "--metric", "mrr@10", *more]) == 0
        assert capsys.readouterr().out.splitlines()[1].split()[0] == score
