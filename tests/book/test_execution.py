"""A page is stale exactly when something it was made of has changed, and the reason is named."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from cde import provenance
from cde.storage import content_hash, write_json
from cde_book import execution
from cde_book.chapters import Chapter
from cde_book.execution import Execution, execute, raw_notebook, stale_reasons
from cde_book.records import record_state
from cde_book.run_mode import RunMode


def digest(path: Path) -> str:
    return content_hash([path.read_bytes()])


@pytest.fixture
def built(tmp_path: Path) -> Chapter:
    """A chapter with a page just made of notebook, module, lock, data and log."""
    for name, text in {
        "notebooks/part/toy.py": "# %%\n1\n",
        "cde/lexical.py": "A = 1\n",
        "constraints.txt": "torch==1\n",
        "data/pairs.jsonl": "{}\n",
        "book/records/laptop/toy.json": "{}",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    chapter = Chapter(tmp_path / "notebooks/part/toy.py")
    collection = f"folder:{tmp_path / 'data'}"
    log = Execution(
        "toy",
        "laptop",
        notebook=content_hash([chapter.source]),
        lock=digest(tmp_path / "constraints.txt"),
        claims=content_hash([]),
        modules={"cde/lexical.py": digest(tmp_path / "cde/lexical.py")},
        sources={collection: execution._source_key(collection), "beir/absent": "missing"},
        records={
            "book/records/laptop/toy.json": record_state(tmp_path / "book/records/laptop/toy.json"),
            "book/records/laptop/none.json": "missing",
        },
    )
    notebook = raw_notebook(chapter, "laptop", tmp_path)
    notebook.parent.mkdir(parents=True)
    notebook.write_text("{}")
    write_json(notebook.with_suffix(".json"), asdict(log))
    return chapter


def root(chapter: Chapter) -> Path:
    return chapter.path.parents[2]


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("notebooks/part/toy.py", "# %%\n2\n", "its notebook changed"),
        ("cde/lexical.py", "A = 2\n", "cde/lexical.py changed"),
        ("cde/lexical.py", None, "cde/lexical.py changed"),
        ("constraints.txt", "torch==2\n", "the lock changed"),
        ("data/pairs.jsonl", "{} \n", "the collection folder:"),
        ("data/more.jsonl", "{}\n", "the collection folder:"),
        ("book/records/laptop/toy.json", "{ }", "the record book/records/laptop/toy.json"),
        ("book/records/laptop/none.json", "{}", "the record book/records/laptop/none.json"),
    ],
)
def test_each_change_is_noticed_and_named(
    built: Chapter, path: str, text: str | None, reason: str
) -> None:
    changed = root(built) / path
    changed.unlink() if text is None else changed.write_text(text)
    reasons = stale_reasons(Chapter(built.path), "laptop", root(built))
    assert len(reasons) == 1 and reasons[0].startswith(reason)


def test_a_page_made_without_records_gives_way_to_one_made_with_them(built: Chapter) -> None:
    path = raw_notebook(built, "laptop", root(built)).with_suffix(".json")
    write_json(path, {**json.loads(path.read_text()), "without_records": True})
    assert stale_reasons(built, "laptop", root(built)) == ["it was made without records"]


def test_another_module_an_untouched_file_and_a_new_date_change_nothing(built: Chapter) -> None:
    (root(built) / "cde" / "surrogate.py").write_text("B = 1\n")
    (root(built) / "cde" / "lexical.py").write_text("A = 1\n")  # the same bytes, later
    assert stale_reasons(built, "laptop", root(built)) == []
    assert stale_reasons(built, "smoke", root(built)) == ["it has not run at this profile"]


def test_a_collection_that_appears_is_noticed(
    built: Chapter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere" / "beir" / "absent").mkdir(parents=True)
    (tmp_path / "elsewhere" / "beir" / "absent" / "corpus.jsonl").write_text("{}\n")
    monkeypatch.setenv("CDE_DATA", str(tmp_path / "elsewhere"))
    assert stale_reasons(built, "laptop", root(built)) == ["the collection beir/absent changed"]


def test_a_notebook_and_a_log_that_are_not_of_one_execution_are_as_none(built: Chapter) -> None:
    """A kill may come between the two, whichever is written first; and either may be damaged."""
    notebook = raw_notebook(built, "laptop", root(built))
    log = execution.load_execution(built, "laptop", root(built))
    assert log is not None
    execution.write_execution(log, notebook)
    assert stale_reasons(built, "laptop", root(built)) == []
    path = notebook.with_suffix(".json")
    good = path.read_text()
    changed = good.replace('"seconds": 0.0', '"seconds": 2')
    for text in ("{", '{"chapter": "toy"}', '{"of": "another form"}', changed):
        path.write_text(text)
        (reason,) = stale_reasons(built, "laptop", root(built))
        assert str(notebook) in reason and "not of one execution" in reason
    path.write_text(good)
    notebook.write_text('{"another": "execution"}')
    (reason,) = stale_reasons(built, "laptop", root(built))
    assert "not of one execution" in reason


def test_a_changed_claim_of_the_chapter_is_noticed_and_another_s_is_not(built: Chapter) -> None:
    entry = (
        "- {{id: {id}, paper: cde, part: p, place: q, wording: w, paper_value: v, test: t, "
        "unit: u, paper_effect: null, expect: {{above: 0}}, chapter: {chapter}, "
        "fixed: {{date: 2026-11-22, order: before, note: ''}}}}\n"
    )
    path = root(built) / "book" / "claims.yml"
    path.write_text(entry.format(id="a", chapter="another"))
    assert stale_reasons(built, "laptop", root(built)) == []
    path.write_text(entry.format(id="a", chapter="toy"))
    assert stale_reasons(built, "laptop", root(built)) == ["its claims in the ledger changed"]


def test_a_machine_with_the_other_faiss_runs_chapters_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With faiss-gpu in place of faiss-cpu a run notes the versions that there are."""
    monkeypatch.setattr(provenance, "_LIBRARIES", ("torch", "a-faiss-that-is-not-here"))
    assert list(provenance.libraries()) == ["torch"]


def test_a_page_is_stale_when_the_proof_of_its_record_no_longer_holds(
    built: Chapter, private_cache: Path
) -> None:
    path = root(built) / "book/records/laptop/toy.json"
    path.write_text('{"proof": {"rows": [1]}}')
    log = raw_notebook(built, "laptop", root(built)).with_suffix(".json")
    values = json.loads(log.read_text())
    values["records"][str(path.relative_to(root(built)))] = record_state(path)
    write_json(log, values)
    assert stale_reasons(built, "laptop", root(built)) == []
    state = {"record": content_hash([path.read_bytes()]), "differences": "loss moved by 9 %"}
    (private_cache / "proofs").mkdir(parents=True, exist_ok=True)
    write_json(private_cache / "proofs" / "laptop-toy.json", state)
    reasons = stale_reasons(built, "laptop", root(built))
    assert reasons == [
        f"the record {path.relative_to(root(built))}, or what is known of its proof, changed"
    ]


# a kernel that is forked makes the page that a kernel of its own makes

CHAPTER = """# %% [markdown]
# # A toy

# %%
from cde_book.parameters import Profile, Seed

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0

# %%
import os
import sys

import matplotlib
import torch

from cde.intervals import mean_interval
from cde_book import page

settings = page.settings(globals(), laptop={}, smoke={})
there = os.getcwd(), page.this_run(), torch.get_num_threads(), matplotlib.get_backend()
page.answer(f"{mean_interval([1.0, 2.0, 4.0])} {there} {sys.flags.optimize}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_it_has_the_same_answer_and_tells_the_same_modules(fresh: bool, tmp_path: Path) -> None:
    path = tmp_path / "notebooks" / "part" / "toy.py"
    path.parent.mkdir(parents=True)
    path.write_text(CHAPTER)
    chapter, mode = Chapter(path), RunMode(fresh=fresh)
    logs = [
        execute(chapter, {"profile": "smoke"}, tmp_path / f"{fork}.ipynb", mode=mode, fork=fork)[1]
        for fork in (False, True)
    ]
    assert not {"CDE_RUN", "MPLBACKEND"} & set(os.environ), "a kernel alone is told"
    assert [log.error for log in logs] == ["", ""]
    assert logs[0].answer == logs[1].answer
    assert f"RunMode(chapter='toy', record='', add=False, prove=(), fresh={fresh}" in logs[0].answer
    assert logs[0].modules == logs[1].modules
    assert "cde/intervals.py" in logs[1].modules and "cde/cli.py" not in logs[1].modules


RUNNER = """
from pathlib import Path
from cde_book.chapters import Chapter
from cde_book.execution import execute
execute(Chapter(Path({path!r})), {{"profile": "smoke"}}, Path({out!r}), fork=True)
"""


@pytest.mark.slow
def test_it_ends_with_the_process_that_asked_for_it_though_that_is_killed(tmp_path: Path) -> None:
    path, told = tmp_path / "notebooks" / "part" / "toy.py", tmp_path / "number"
    path.parent.mkdir(parents=True)
    os.mkfifo(told)
    waits = f"open({str(told)!r}, 'w').write(str(os.getpid()))\nimport threading\n"
    waits += "threading.Event().wait()\n"
    path.write_text(CHAPTER.partition("settings =")[0] + waits)
    code = RUNNER.format(path=str(path), out=str(tmp_path / "out.ipynb"))
    runner = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    line = os.open(told, os.O_RDWR)
    assert select.select([line], [], [], 300)[0], "the kernel has not begun"
    kernel = psutil.Process(int(os.read(line, 20)))
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    _, alive = psutil.wait_procs([kernel], timeout=30)
    assert all(one.status() == psutil.STATUS_ZOMBIE for one in alive)
