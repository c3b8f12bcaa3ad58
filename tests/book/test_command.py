"""The command line, from end to end, on a toy book whose chapters take a second each."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from toy_book import DRAWING, ToyBook

from cde_book.checkout import python_path
from cde_book.cli import main
from cde_book.rendering import check_html

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ToyBook:
    book = ToyBook(tmp_path_factory.mktemp("toy"))
    book.write(words="from cde import lexical", drawing=DRAWING)
    finished = book.cde("book", "--profile", "smoke")
    assert finished.returncode == 0, finished.stderr
    assert book.ran(finished) == {"words", "drawing"}
    return book


def outputs_of(path: Path) -> str:
    """Everything that a notebook's cells have said, and its prose."""
    notebook = nbformat.read(path, as_version=4)
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            texts += [str(text) for text in output.get("data", {}).values()]
    return "\n".join(texts)


def run_plainly(toy: ToyBook, *command: str) -> None:
    """A tool of somebody else's, in the toy book's folder."""
    environment = {**os.environ, "PYTHONPATH": python_path(toy.root)}
    tool = [sys.executable, "-m", *command]
    subprocess.run(tool, check=True, cwd=toy.root, env=environment, capture_output=True)


def test_a_page_that_plain_papermill_runs_again_tells_of_its_new_run(
    toy: ToyBook, tmp_path: Path
) -> None:
    page = toy.root / "book" / "executed" / "toys" / "words.ipynb"
    before = outputs_of(page)
    assert "The answer of words is 42." in before and "seed = 0" in before
    again = tmp_path / "again.ipynb"
    run_plainly(toy, "papermill", str(page), str(again), "-p", "seed", "7")
    after = outputs_of(again)
    assert "The answer of words is 49." in after and "seed = 7" in after
    # the whole sentence: a clock can show 42, too
    assert "is 42" not in after and "seed = 0" not in after
    assert "profile = 'smoke'" in after, "the page's own profile, which the rerun did not name"


def test_a_chapter_that_plain_jupytext_runs_tells_of_itself(toy: ToyBook, tmp_path: Path) -> None:
    source, output = toy.root / "notebooks" / "toys" / "words.py", tmp_path / "words.ipynb"
    options = ["--set-kernel", "python3", "--to", "ipynb", "--execute", "--output", str(output)]
    run_plainly(toy, "jupytext", *options, str(source))
    said = outputs_of(output)
    assert "The answer of words is 42." in said and "profile = 'laptop'" in said


def test_nothing_runs_again_when_nothing_has_changed(toy: ToyBook) -> None:
    built = toy.root / "book" / "_build" / "html" / "index.html"
    before = built.stat().st_mtime_ns
    again = toy.cde("book", "--profile", "smoke")
    assert again.returncode == 0 and toy.ran(again) == set()
    assert built.stat().st_mtime_ns == before, "the pages were rendered again"


def test_an_edited_module_runs_exactly_the_chapters_that_use_it(toy: ToyBook) -> None:
    """Of the modules that their kernels told of; for the rest see test_execution.py."""
    assert "cde/lexical.py" in toy.record("words")["modules"]
    assert "cde/lexical.py" not in toy.record("drawing")["modules"]

    def edit(*modules: str) -> None:
        for module in modules:
            with (toy.root / module).open("a") as file:
                file.write("\n# an edit\n")

    def runs(*options: str) -> list[str]:
        finished = toy.cde("book", "--profile", "smoke", *options)
        return [line for line in finished.stdout.splitlines() if ": runs" in line]

    edit("cde/lexical.py", "cde/adaptation.py")  # which no chapter uses
    assert runs() == ["words: runs, since cde/lexical.py changed"]
    edit("cde/intervals.py")  # which both use
    assert runs("--only", "drawing") == ["drawing: runs, since cde/intervals.py changed"]


def test_parameters_are_checked_before_anything_runs(toy: ToyBook) -> None:
    refused = {
        ("-p", "sead", "3"): "there is no parameter sead (seed?)",
        ("-p", "seed", "three"): "parameter seed must be a whole number; it is 'three'",
        ("--record", "toy"): "a record's profile and name, such as laptop/table1-arms",
        ("--fresh", "--record"): "not allowed with argument --fresh",
    }
    for options, said in refused.items():
        done = toy.cde("run", "drawing", *options)
        assert done.returncode == 2 and said in done.stderr and "Executing" not in done.stderr
    assert not (toy.root / "book" / "reruns").exists()


def test_a_chapter_runs_with_parameters_of_ones_own(toy: ToyBook) -> None:
    output = toy.root / "mine.ipynb"
    given = ["--profile", "smoke", "-p", "seed", "100", "--out", str(output)]
    finished = toy.cde("run", "drawing", *given)
    assert finished.returncode == 0, finished.stderr
    assert "The answer of drawing is 142." in outputs_of(output)
    log = json.loads(output.with_suffix(".json").read_text())
    assert log["parameters"] == {"seed": 100, "profile": "smoke"}
    # the book's own page is another matter
    assert toy.record("drawing")["parameters"] == {"profile": "smoke"}


def test_a_dry_run_says_what_a_run_with_these_settings_took_and_of_another_that_nothing_is_known(
    toy: ToyBook,
) -> None:
    known = toy.cde("run", "drawing", "--profile", "smoke", "--dry-run")
    assert known.returncode == 0, known.stderr
    log = toy.record("drawing")
    took = f"took {log['seconds']:.0f} s and {log['memory']:.1f} GiB of memory in its kernel"
    assert 0.05 < log["memory"] < 50 and f"a run with these settings {took}" in known.stdout
    other = toy.cde("run", "drawing", "--profile", "smoke", "-p", "seed", "9", "--dry-run")
    assert "nothing is known here yet of a run with these settings" in other.stdout
    assert f"one with profile = 'smoke' {took}" in other.stdout and "seed = 9" in other.stdout
    assert not list(toy.root.glob("book/reruns/*seed=9*"))


GROWING = """import os

import pandas as pd

from cde_book import page

settings = page.settings(globals(), laptop={"seeds": 2}, smoke={"seeds": 1})


def measured():
    rows = {"run": settings.every_seed, "loss": [1.0 + x for x in settings.every_seed]}
    return pd.DataFrame(rows).assign(precision=os.environ["CDE_PRECISION"])


page.experiment("toy", measured, settings.only("seeds"))"""
KILLED = """import os, signal, sys
from cde.storage import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    temporary.write_text('{"rows": [')
    os.kill(os.getpid(), signal.SIGKILL)"""


def test_a_record_is_made_from_a_clean_tree_grows_with_its_proof_and_is_stale_when_numbers_move(
    tmp_path: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDE_PRECISION", "bfloat16")
    book = ToyBook(tmp_path / "toy")
    book.write(toy=GROWING)
    book.commit()
    made = book.cde("run", "toy", "--record")
    assert made.returncode == 0, made.stderr
    path = book.root / "book" / "records" / "laptop" / "toy.json"
    first, add = json.loads(path.read_text()), ("run", "toy", "--record", "laptop/toy", "--add")
    assert first["clean"] is True
    rows = [{"run": one, "loss": 1.0 + one, "precision": "bfloat16"} for one in range(4)]
    assert first["rows"] == rows[:2] and first["proof"]["settings"]["seeds"] == 1
    # a miniature is computed in float32, whatever the record was
    assert first["proof"]["rows"] == [rows[0] | {"precision": "float32"}]
    # the record itself is not committed yet
    refused = book.cde("run", "toy", "--record")
    assert refused.returncode == 2 and "there are uncommitted changes" in refused.stderr
    # another text with the same numbers
    book.write(toy=GROWING.replace("1.0 + x", "x + 1.0"))
    book.commit()
    # a process that is killed as it writes leaves the record as it was; the next run tidies up
    subprocess.run([sys.executable, "-c", KILLED, str(path)])
    assert json.loads(path.read_text()) == first and len([*path.parent.iterdir()]) > 1
    added = book.cde(*add, "-p", "seed=2")
    assert added.returncode == 0, added.stderr
    assert [*path.parent.iterdir()] == [path]
    record = json.loads(path.read_text())
    assert record["rows"] == rows and record["settings"] == {"seed": 0, "seeds": 4}
    assert record["proof"] == first["proof"]
    assert [(one["seed"], one["seeds"]) for one in record["parts"]] == [(0, 2), (2, 2)]
    assert record["parts"][0]["time"] == record["time"] == first["time"]
    # and other numbers
    book.write(toy=GROWING.replace("1.0 + x", "2.0 + x"))
    book.commit()
    other = book.cde(*add, "-p", "seed=4")
    assert other.returncode == 1 and "the proof of laptop/toy does not hold here" in other.stderr
    assert json.loads(path.read_text()) == record
    absent = book.cde("run", "toy", "--record", "laptop/absent", "--add")
    assert absent.returncode == 2 and "adds seeds to a record that is there" in absent.stderr
    moved = book.cde("book", "--profile", "smoke")
    assert "STALE: laptop/toy: loss moved by 1e+02 %" in moved.stdout, moved.stderr
    assert "records: 0 of 1 proofs hold" in moved.stdout


def test_a_failed_chapter_is_named_with_its_traceback_and_the_others_are_built(
    tmp_path: Path,
) -> None:
    """Two at a time: neither an error nor a kernel that dies takes another chapter with it."""
    book = ToyBook(tmp_path / "toy")
    sound = {"sound": "from cde_book import claims", "last": "x = 1"}
    broken = 'raise ArithmeticError("two and two are five")'
    dead = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    book.write(**sound, broken=broken, dead=dead)
    finished = book.cde("book", "--profile", "smoke", "--jobs", "2")
    assert finished.returncode == 1
    assert book.ran(finished) == {"sound", "last", "broken", "dead"}
    assert "chapter broken failed in cell" in finished.stderr
    assert "ArithmeticError: two and two are five" in finished.stderr
    named = finished.stderr.rpartition("failed: ")[2].partition(";")[0]
    assert {*named.split(", ")} == {"broken", "dead"}
    assert "The answer of sound is 42." in book.page("sound")
    assert "two and two are five" in book.page("broken")
    assert "the kernel died" in book.page("dead")
    # repaired chapters run, the sound ones do not run again
    book.write(**sound, broken="y = 1", dead="z = 1")
    repaired = book.cde("book", "--profile", "smoke")
    assert repaired.returncode == 0 and book.ran(repaired) == {"broken", "dead"}


def test_after_an_interruption_the_next_call_goes_on(tmp_path: Path) -> None:
    book = ToyBook(tmp_path / "toy")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # the second chapter tells that it has begun, and then waits for an answer that does not come
    waiting = f"open({str(pipe)!r}, 'w').write('begun')\nprint(open({str(pipe)!r}).read())"
    book.write(first="from cde_book import claims", second=waiting)
    process = book.start("book", "--profile", "smoke", "--jobs", "1")
    assert pipe.read_text() == "begun"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "goes on from there" in err
    assert "Traceback" not in err
    raw = book.root / "book" / "executed" / "raw" / "smoke"
    assert sorted(path.name for path in raw.iterdir()) == ["first.ipynb", "first.json"]
    book.write(first="from cde_book import claims", second="from cde_book import claims")
    finished = book.cde("book", "--profile", "smoke")
    assert finished.returncode == 0, finished.stderr
    assert book.ran(finished) == {"second"}


def test_chapters_side_by_side_run_at_once_and_stop_at_once(tmp_path: Path) -> None:
    book = ToyBook(tmp_path / "toy")
    pipes = [tmp_path / "first", tmp_path / "last"]
    for pipe in pipes:
        os.mkfifo(pipe)
    tell = "import os\nopen({!r}, 'w').write(str(os.getpid()))\nprint(open({!r}).read())"
    first, last = (tell.format(str(pipe), str(pipe)) for pipe in pipes)
    book.write(first=first, middle="from cde_book import claims", last=last)
    process = book.start("book", "--profile", "smoke", "--jobs", "2")
    # both tell of themselves, and go on only when both have: one after the other they would not
    kernels = [int(pipe.read_text()) for pipe in pipes]
    assert len(set(kernels)) == 2
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "goes on from there" in err
    assert "Traceback" not in err and "middle: runs" not in out
    for kernel in kernels:
        with pytest.raises(ProcessLookupError):
            os.kill(kernel, 0)
    assert not any((book.root / "book" / "executed" / "raw").rglob("*.*"))


def test_a_kernel_that_does_not_stop_is_killed_when_it_is_interrupted_again(tmp_path: Path) -> None:
    book = ToyBook(tmp_path / "toy")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # the chapter says that it goes on, whatever is asked
    lines = ["import os, signal", f"say = lambda word: open({str(pipe)!r}, 'w').write(word)"]
    lines += ["signal.signal(signal.SIGINT, lambda *_: say('no'))", "say(str(os.getpid()))"]
    book.write(stubborn="\n".join([*lines, f"print(open({str(pipe)!r}).read())"]))
    output = tmp_path / "out" / "stubborn.ipynb"
    process = book.start("run", "stubborn", "--out", str(output))
    kernel = int(pipe.read_text())
    os.killpg(process.pid, signal.SIGINT)
    assert pipe.read_text() == "no"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err and err.count("interrupted: ") == 1
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)
    assert list(output.parent.iterdir()) == []


def test_help_is_a_chapter_s_wherever_its_name_stands(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["table1", "--help"], ["--help", "table1"], ["-p", "seed=1", "table1", "-h"]):
        with pytest.raises(SystemExit, match="0"):
            main(["run", *arguments])
        said = capsys.readouterr().out
        assert said.startswith("cde run table1 ") and "learning_rate" in said
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "usage: cde run" in capsys.readouterr().out


def test_html_without_alt_text_with_dead_links_or_remote_scripts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text(
        '<h1 id="top">x</h1><img alt="a line" src="x.png"><a href="#top">top</a>'
        '<img alt="a drawing" src="data:image/png;base64,AA==">'
    )
    (tmp_path / "x.png").write_bytes(b"an image")
    assert check_html(tmp_path) == []
    (tmp_path / "bad.html").write_text(
        '<img src="x.png"><img alt=" " src="y.png">'
        '<a href="gone.html">a</a><a href="good.html#no">b</a>'
        '<script src="https://example.org/x.js"></script><a href="https://example.org">fine</a>'
    )
    problems = check_html(tmp_path)
    assert [problem.split(": ", 1)[1] for problem in problems] == [
        "an image has no alternative text",
        "an image has no alternative text",
        "fetches https://example.org/x.js",
        "there is no image y.png",
        "the link gone.html leads nowhere",
        "the link good.html#no has no such anchor",
    ]


def test_a_command_that_computes_nothing_imports_no_model() -> None:
    """`cde list`, `--help` and a refused parameter answer without torch, which takes seconds."""
    heavy = "{'torch', 'transformers', 'sklearn', 'faiss'} & set(sys.modules)"
    code = f"import sys, cde_book.cli, cde_book.commands; sys.exit(', '.join({heavy}) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"imported for nothing: {done.stderr}"


#: what HTML, a template, MyST, MathJax, a spreadsheet or the eye would obey
HOSTILE = (
    "<script>document.title = 'obeyed'</script>",
    "</div></details></section>",
    "<img src=x onerror=alert(1)>",
    "{{ 4321 * 9 }}{% raw %}",
    "{doc}`x`",
    "{cite}`nobody2020`",
    "[a](javascript:alert(1))",
    "$$x$$",
    "$\\undefined{",
    "```{note}",
    "w" * 300,
    "a\u202eb\u202cc",
    "=1+1",
    "&lt;b&gt;",
)
BODY = f"""import pandas as pd
from IPython.display import display

from cde.data import RetrievalSet
from cde_book import charts, page, plots

texts = {HOSTILE!r}
frame = pd.DataFrame({{"collection": texts, "score": range(len(texts))}})
display(plots.table(frame.rename(columns={{"score": texts[0]}})))
display(plots.table(frame.set_index("collection")))
display(page.folded(texts[0], plots.table(frame)))
with plots.figure(height=6) as (drawing, axes):
    charts.seed_dots(axes, {{text: {{"": [float(len(text))]}} for text in texts}}, "score")
    shown = plots.show(drawing, " ".join(texts), frame, answers=texts[0])
display(shown)
page.show_source(f"{{texts[0]}}, not computed here. {{' '.join(texts)}}")
display(page.in_numbers(" ".join(texts)))
print(RetrievalSet(["d"], [texts[0]], ["q"], [texts[1]], {{"q": {{"d": 1}}}}, name=texts[0]))
print(*texts)"""


def test_hostile_texts_are_shown_and_not_obeyed(tmp_path: Path, private_cache: Path) -> None:
    book = ToyBook(tmp_path / "toy")
    book.write(hostile=BODY)
    source = book.root / "notebooks" / "toys" / "hostile.py"
    answer = 'page.answer(" ".join(texts))'
    source.write_text(re.sub(r"page\.answer\(.*\)", answer, source.read_text()))
    built = book.cde("book", "--profile", "smoke")
    assert built.returncode == 0, built.stdout + built.stderr
    page = BeautifulSoup(book.page("hostile"), "html.parser")
    attributes = [f"{name}={value}" for tag in page(True) for name, value in tag.attrs.items()]
    run = [script.get_text() for script in page("script")]
    run += [one for one in attributes if re.match("on|[^=]*=javascript:", one)]
    assert not [one for one in run if "obeyed" in one or "alert" in one]
    shown = page.get_text()
    for text in HOSTILE:
        assert text in shown, text
    assert "38889" not in shown
