"""A reader's journey, from `git clone` to the landing page: part of `make journeys`.

It comes after `make book PROFILE=smoke`. The clone takes over the executed pages of this checkout,
but for one quick chapter, and makes the book. Each page and link is read, each chapter's answer,
figure, provenance and notebook, the claims, and the answers to eight questions (`questions.yml`).

Cost: two minutes where the book is built and nothing is stale; else the stale chapters' time too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import nbformat
import yaml
from bs4 import BeautifulSoup, Tag

from cde.intervals import Interval
from cde_book.chapters import find_chapter
from cde_book.checkout import python_path
from cde_book.ledger import ledger
from cde_book.parameters import declared_parameters, parse_assignments

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = Path(__file__).with_name("questions.yml")
MOST_CLICKS = 3
#: of a chapter
FIRST_SCREEN = ".cde-answer, .cde-answer-figure, .cde-strip"
#: of the virtual environment that runs this; the path of its `python` may be a link that leads out
ENVIRONMENT = Path(sys.prefix)
PROFILE = "smoke"
#: a chapter that takes seconds at `smoke` and reads no record: it runs, whatever pages there are
QUICK = "nearest_neighbors"
FACTS = ("parameters", "data", "commit", "device", "time", "libraries")

Pages = Mapping[Path, BeautifulSoup]


class Stopped(Exception):
    """A journey cannot go on; the message says what a user would have relied on."""


@contextmanager
def step(words: str) -> Iterator[None]:
    """One step of a journey: its line with the seconds, or why the journey ends there."""
    begun = time.perf_counter()
    try:
        yield
    except Exception as reason:
        print(f"FAILED after {time.perf_counter() - begun:.1f} s: {words}\n{reason}", flush=True)
        if isinstance(reason, Stopped):
            sys.exit(1)
        raise
    print(f"{time.perf_counter() - begun:6.1f} s  {words}", flush=True)


def need(holds: object, otherwise: str) -> None:
    """Stop the journey unless something holds."""
    if not holds:
        raise Stopped(otherwise)


def none_of(problems: Iterable[str]) -> None:
    """Stop the journey if there are problems; the first twenty are told."""
    told = list(problems)
    need(not told, "\n".join([*told[:20], *(["…"] if len(told) > 20 else [])]))


def run(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, as a user would from a shell there; stop the journey if it fails."""
    # make hands its own settings down to every make that it starts, and a user's shell has none
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**inherited, **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout + done.stderr)[-3000:]
    words = shlex.join(map(str, command))
    need(done.returncode == 0, f"{words}\nended with {done.returncode}: {said}")
    return done


def clone(folder: Path) -> str:
    """Clone this repository, with a commit that nothing else has; its name."""
    run(["git", "clone", "--quiet", ROOT, folder], ROOT)
    person = ["-c", "user.name=a reader", "-c", "user.email=reader@localhost"]
    run(["git", *person, "commit", "--quiet", "--allow-empty", "-m", "A reader's clone"], folder)
    return run(["git", "rev-parse", "HEAD"], folder).stdout.strip()


def take_over_pages(checkout: Path) -> int:
    """Copy the executed pages of this checkout, but for the quick chapter's; how many."""
    executed = Path("book") / "executed" / "raw" / PROFILE
    logs = [path for path in sorted((ROOT / executed).glob("*.json")) if path.stem != QUICK]
    (checkout / executed).mkdir(parents=True)
    for log in logs:
        for path in (log, log.with_suffix(".ipynb")):
            shutil.copy2(path, checkout / executed / path.name)
    return len(logs)


def build(checkout: Path, variables: Mapping[str, str]) -> list[str]:
    """Build the book of a clone; the chapters that ran."""
    # the environment is older than the clone's lock, and is not to be installed into from there
    environment = [f"VENV={ENVIRONMENT}", "-o", str(ENVIRONMENT / ".ready")]
    command = ["make", "book", f"PROFILE={PROFILE}", *environment]
    lines = run(command, checkout, variables).stdout.splitlines()
    ran = [line.partition(": runs, since")[0] for line in lines if ": runs, since" in line]
    need(QUICK in ran, f"{QUICK} had no page, and was not run. The command said:\n{lines}")
    return ran


def read_pages(html: Path) -> Pages:
    """Every page of a built book."""
    return {
        path: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for path in sorted(html.resolve().rglob("*.html"))
        if "_static" not in path.parts
    }


def local(page: Path, address: str) -> Path | None:
    """The file that an address of a page leads to; None for one on another machine, or in itself."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not parts.path:
        return None
    return (page.parent / unquote(parts.path)).resolve()


def links(page: Path, part: Tag) -> set[Path]:
    """The files that a part of a page links to."""
    found = (local(page, str(anchor["href"])) for anchor in part.select("a[href]"))
    return {target for target in found if target is not None}


def landing_page(pages: Pages, html: Path) -> Path:
    """The page that `index.html` leads to."""
    index = (html / "index.html").resolve()
    need(index in pages, f"{index} is not there")
    refresh = pages[index].select_one("meta[http-equiv=Refresh]")
    if refresh is None:
        return index
    target = local(index, str(refresh["content"]).partition("url=")[2])
    if target is None or target not in pages:
        raise Stopped(f"{index} leads to {target}, which is not a page")
    return target


def reached(pages: Pages, start: Path, part: str = "html") -> dict[Path, int]:
    """The pages that links in a part of each page lead to, with the number of clicks."""
    seen, ahead = dict[Path, int](), {start}
    for clicks in range(len(pages)):
        ahead = {page for page in ahead if page in pages and page not in seen}
        seen |= dict.fromkeys(ahead, clicks)
        parts = [(page, tag) for page in ahead for tag in pages[page].select(part)]
        ahead = {target for page, tag in parts for target in links(page, tag)}
    return seen


def chapter_problems(checkout: Path, page: Path, soup: BeautifulSoup) -> Iterator[str]:
    """What a chapter's page lacks of what a reader relies on."""
    name = page.stem
    figures = soup.select("figure.cde-figure img[alt]")
    if not any(str(image["alt"]).strip() for image in figures):
        yield f"{name}: no figure with an alternative text"
    button = soup.select_one("a.btn-download-source-button[href]")
    source = local(page, str(button["href"])) if button else None
    if source is None or source.suffix != ".ipynb" or not source.exists():
        yield f"{name}: no notebook to download, but {source}"
        return
    notebook = nbformat.read(source, as_version=4)
    nbformat.validate(notebook)
    yield from answer_problems(name, soup, notebook)
    facts = facts_of(soup)
    yield from (f"{name}: the provenance says no {one}" for one in FACTS if not facts.get(one))
    command = soup.select_one(".cde-provenance pre")
    words = shlex.split(command.get_text()) if command else []
    if words[:3] != ["cde", "run", name]:
        yield f"{name}: no command to run it again, but {words}"
        return
    tagged = [one.source for one in notebook.cells if "parameters" in one.metadata.get("tags", [])]
    declared = declared_parameters("\n".join(tagged), str(source))
    carried = {one.name: one.default for one in declared.values() if one.default is not None}
    pairs = list(zip(words[4::3], words[5::3], strict=True))
    chapter = find_chapter(name, checkout)
    given = chapter.check_parameters(parse_assignments(pairs))
    for key, value in given.items():
        if carried.get(key) != value:
            yield f"{name}: {key} is {value!r} in {words}, {carried.get(key)!r} in the notebook"
    for key, value in carried.items():
        said = facts.get("parameters", "")
        as_written = f"{key} = " not in said and chapter.parameters[key].default == value
        if f"{key} = {value!r}" not in said and not as_written:
            yield f"{name}: the notebook has {key} = {value!r}, the page {said}"


def facts_of(soup: BeautifulSoup) -> dict[str, str]:
    """What a page's provenance says."""
    lines = zip(soup.select(".cde-provenance dt"), soup.select(".cde-provenance dd"), strict=True)
    return {term.get_text(): said.get_text(" ", strip=True) for term, said in lines}


def answer_problems(name: str, soup: BeautifulSoup, notebook: Any) -> Iterator[str]:
    """What is wrong with the answer below the title, and with the figure below it."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    made = [
        str(output.data["text/markdown"])
        for output in outputs
        if output.get("metadata", {}).get("scrapbook", {}).get("name") == "answer"
    ]
    shown = soup.select_one("article h1 + .cde-answer > p")
    if not made or shown is None:
        yield f"{name}: no answer below the title"
        return
    words = re.sub(r"\{\w+\}`[^`]*`|<[^>]+>", "", made[-1].partition("\n\n")[0])
    first, said = re.findall(r"\w+", words)[:8], re.findall(r"\w+", shown.get_text())[:8]
    if first[:5] != said[:5]:
        yield f"{name}: the answer begins {' '.join(said)!r}, the notebook's {' '.join(first)!r}"
    judges = soup.select_one("#verdict") is not None  # a page that only teaches has no such part
    if judges != bool(soup.select(".cde-answer .cde-badges a.verdict[href='#verdict']")):
        yield f"{name}: a verdict below the answer, or one at the end of the page, without the other"
    if not soup.select(".cde-answer + .cde-answer-figure figure.cde-figure"):
        yield f"{name}: no figure below the answer"
    principal = [one for one in ledger().values() if one.principal and one.chapter == name]
    if len(soup.select("article .cde-strip")) != len(principal):
        yield f"{name}: {len(principal)} principal claim, and not as many strips below the figure"
    drawn = [
        unquote(str(one["srcset"])) for one in soup.select(".cde-answer-figure source[srcset]")
    ]
    for claim in principal:
        has_value = claim.paper_effect is not None and not claim.by_construction
        if has_value and not all("the paper" in one for one in drawn):
            yield f"{name}: its leading figure does not show the paper's value"


def claims_of(checkout: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """What `cde claims --json` prints, by claim."""
    command = [str(ENVIRONMENT / "bin" / "cde"), "claims", "--json"]
    printed = json.loads(run(command, checkout, variables).stdout)["claims"]
    return {entry["id"]: entry for entry in printed}


def verdict_of(entry: Mapping[str, Any]) -> str:
    """The verdict on a claim as the pages word it."""
    return "by construction" if entry["by_construction"] else str(entry["verdict"])


def question_problems(
    html: Path, pages: Pages, landing: Path, said: Mapping[str, Any]
) -> Iterator[str]:
    """Questions whose answer a reader does not come to, or does not find where it should stand."""
    clicks = reached(pages, landing, "article")
    for asked in yaml.safe_load(QUESTIONS.read_text(encoding="utf-8")):
        page = (html / f"{asked['page']}.html").resolve()
        if clicks.get(page, MOST_CLICKS + 1) > MOST_CLICKS:
            yield f"{asked['question']} {page.stem} is {clicks.get(page)} links away"
            continue
        place = f"section#{asked['section']}" if "section" in asked else FIRST_SCREEN
        shown = " ".join(" ".join(tag.get_text(" ") for tag in pages[page].select(place)).split())
        shown = shown.replace("−", "-")  # the claims as JSON have hyphens
        wanted = [part for name in asked.get("claims", ()) for part in answer_of(said[name])]
        if kind := asked.get("counts"):
            count = sum(verdict_of(entry) == kind for entry in said.values())
            wanted += [f"{count} {kind}"] if count else []
        yield from (
            f"{asked['question']} {page.stem} does not say {part!r}"
            for part in wanted
            if part not in shown
        )


def answer_of(entry: Mapping[str, Any]) -> list[str]:
    """What a page has to say of a claim: its verdict, and the interval that leads to it."""
    made = [one for one in entry["measurements"] if one["scale"] == entry["scale"]]
    first = next(iter(made or entry["measurements"]), None)
    interval = [str(Interval(**first["interval"]))] if first else []
    return [verdict_of(entry), *interval]


def journey(checkout: Path) -> None:
    """Clone, build and read."""
    begun = time.perf_counter()
    with step("git clone of this repository"):
        head = clone(checkout)
    before = os.environ.get("PYTHONPATH")
    variables = {
        "PYTHONPATH": os.pathsep.join([python_path(checkout), *([before] if before else [])])
    }
    with step("the clone's package is the one that is imported"):
        show = [sys.executable, "-c", "import cde; print(cde.__file__)"]
        place = Path(run(show, checkout.parent, variables).stdout.strip())
        need(place == checkout / "cde" / "__init__.py", f"cde is imported from {place}")
        print(f"          {place}")
    taken = take_over_pages(checkout)
    with step(f"make book PROFILE={PROFILE} in the clone, {taken} executed pages taken over"):
        ran = build(checkout, variables)
        print(f"          ran there: {', '.join(ran)}")
    html = checkout / "book" / "_build" / "html"
    with step("index.html leads to the landing page, and links from there to each page"):
        pages = read_pages(html)
        landing = landing_page(pages, html)
        named = re.findall(r"(?:root|file): (\S+)", (checkout / "_toc.yml").read_text("utf-8"))
        wanted = {name: (html / f"{name}.html").resolve() for name in named}
        found = reached(pages, landing)
        none_of(f"no link leads to {name}" for name, path in wanted.items() if path not in found)
        none_of(f"{name} has no title" for name, path in wanted.items() if not pages[path].h1)
        print(f"          {len(found)} pages, {len(wanted)} of them in the table of contents")
    with step("the text of the landing page leads to the claims"):
        claims = (html / "book" / "generated" / "claims.html").resolve()
        article = pages[landing].select_one("article")
        need(article and claims in links(landing, article), f"{landing} has no link to {claims}")
    with step(f"eight questions: each answer is within {MOST_CLICKS} links of the landing page"):
        said = claims_of(checkout, variables)
        none_of(question_problems(html, pages, landing, said))
    read = [path for path in wanted.values() if "executed" in path.parts]
    with step(f"{len(read)} chapters: answer, figure, provenance, notebook, command"):
        need(read, "the table of contents has no chapter")
        none_of(one for path in read for one in chapter_problems(checkout, path, pages[path]))
        (quick,) = (path for path in read if path.stem == QUICK)
        commit = facts_of(pages[quick])["commit"]
        ours = f"the page of {QUICK}, which ran in the clone, says commit {commit!r}"
        need(commit == head[:12], f"{ours}; the clone's is {head[:12]}, with no changes")
    print(f"{time.perf_counter() - begun:6.1f} s  from the clone to the last page")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cde-reader-") as folder:
        journey(Path(folder).resolve() / "clone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
