"""The computed parts of the landing page and of the parts' opening pages.

`book/intro.md` and `book/parts/<part>.md` include them. A bar of the chart is a paper and scale, a
segment a verdict, its width the number of claims. `book/highlights.yml` names results, each with
the verdicts at which its sentence is true; elsewhere the chapter's own answer stands in its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from cde_book.chapters import Chapter, chapters
from cde_book.execution import load_execution
from cde_book.ledger import PAPERS, SHORT
from cde_book.ledger_pages import Judged, tally
from cde_book.markup import render
from cde_book.thumbnails import Figure
from cde_book.verdicts import order

#: the end of a sentence: an abbreviation such as "Fig." goes on with a digit, not with a capital
_END = re.compile(r"(?<=[.!?])(\*\*)?(?=\s+[*`\"(]*[A-Z`])")


def first_sentence(answer: str) -> str:
    """The first sentence of a chapter's answer, as Markdown without bold and without links."""
    plain = re.sub(r"\{doc\}`(?:[^`<]*<)?([^`>]*)>?`", r"\1", " ".join(answer.split()))
    return _END.split(plain)[0].replace("**", "").strip()


@dataclass(frozen=True)
class Card:
    """What other pages show of a chapter."""

    chapter: Chapter
    answer: str
    verdicts: Mapping[str, int]
    figure: Figure | None


def read_list(path: Path) -> list[dict[str, Any]]:
    """The entries of a hand-written file; none where a book has no such file."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else []


def cards(
    profile: str, root: Path, entries: Sequence[Judged], figures: Mapping[str, Sequence[Figure]]
) -> dict[str, Card]:
    """What other pages show of each chapter, by its name."""
    made = {}
    for chapter in chapters(root):
        log = load_execution(chapter, profile, root)
        made[chapter.name] = Card(
            chapter,
            first_sentence(log.answer) if log is not None and log.answer else "",
            tally(one for one in entries if chapter in one.chapters),
            next(iter(figures.get(chapter.name, ())), None),
        )
    return made


def opening_pages(
    shown: Mapping[str, Card], entries: Sequence[Judged], root: Path
) -> dict[str, str]:
    """What the opening pages include, by file name: chapters' cards, and questions' claims."""
    pages = {}
    for part, some in groupby(shown.values(), key=lambda card: card.chapter.part):
        pages[f"parts/{part}.md"] = render("opening.md.j2", cards=list(some))
    by_claim = {one.claim.id: one for one in entries}
    for entry in read_list(root / "book" / "questions.yml"):
        asked = [by_claim[name] for name in entry["claims"]]
        root_of = "" if entry.get("page") == "intro" else "../"  # as the including page sees it
        table = render("question.html.j2", entries=asked, root=root_of)
        pages[f"questions/{entry['name']}.md"] = f"```{{raw}} html\n{table}```\n"
    return pages


@dataclass(frozen=True)
class Bar:
    """The claims of one paper whose evidence has one scale ("": no evidence), by verdict."""

    paper: str
    scale: str
    counts: Mapping[str, int]


def bars(entries: Sequence[Judged]) -> list[Bar]:
    """The chart: bars by paper, then by scale, the largest first, without facts of construction."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    for one in entries:
        if not one.claim.by_construction:
            groups.setdefault((one.claim.paper, one.verdict.scale), []).append(one)
    papers = list(PAPERS)
    return [
        Bar(paper, scale, tally(groups[paper, scale]))
        for paper, scale in sorted(
            groups, key=lambda one: (papers.index(one[0]), not one[1], order(one[1]), one[1])
        )
    ]


def verdict_chart(profile: str, entries: Sequence[Judged]) -> str:
    """The chart of the landing page, each segment with a link to its claims."""
    open_ones = [one for one in entries if not one.claim.by_construction]
    drawn = bars(entries)
    return render(
        "verdict_chart.html.j2",
        profile=profile,
        total=len(open_ones),
        tested=sum(one.is_tested for one in open_ones),
        constructed=len(entries) - len(open_ones),
        bars=drawn,
        longest=max((sum(bar.counts.values()) for bar in drawn), default=1),
        papers=PAPERS,
        short=SHORT,
        tally=tally(open_ones),
    )


class Highlight(NamedTuple):
    """A result with a picture and one sentence."""

    card: Card
    sentence: str
    entries: Sequence[Judged]


def highlights(path: Path, shown: Mapping[str, Card], entries: Sequence[Judged]) -> list[Highlight]:
    """The results of a file of highlights, as this build supports them."""
    by_claim = {one.claim.id: one for one in entries}
    results = []
    for entry in read_list(path):
        card, when = shown[entry["chapter"]], entry["when"]
        stands = all(by_claim[name].verdict.verdict == verdict for name, verdict in when.items())
        sentence = entry["sentence"] if stands else card.answer
        results.append(Highlight(card, sentence, [by_claim[name] for name in when]))
    return results


def findings(path: Path, shown: Mapping[str, Card], entries: Sequence[Judged]) -> str:
    """What the chapters show beyond the papers, by theme, with the verdicts that bear on it."""
    by_claim = {one.claim.id: one for one in entries}
    themes: dict[str, list[Any]] = {}
    for entry in read_list(path):
        bearing = [by_claim[name] for name in entry["claims"]]
        themes.setdefault(entry["theme"], []).append((entry, shown[entry["chapter"]], bearing))
    return render("findings.md.j2", themes=themes)


def citation(root: Path) -> str:
    """How to cite the book, in BibTeX, as `CITATION.cff` and `_config.yml` have it; empty where a
    book has no such file.
    """
    if not (root / "CITATION.cff").exists():
        return ""
    book = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    year = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["copyright"]
    authors = [
        one.get("name") or f"{one['family-names']}, {one['given-names']}" for one in book["authors"]
    ]
    return render("cite.md.j2", book=book, authors=authors, year=year)


def landing_pages(
    profile: str, root: Path, entries: Sequence[Judged], figures: Mapping[str, Sequence[Figure]]
) -> dict[str, str]:
    """What the landing page and the opening pages include, by file name below `book/generated`."""
    shown = cards(profile, root, entries, figures)
    chart = verdict_chart(profile, entries)
    results = highlights(root / "book" / "highlights.yml", shown, entries)
    return {
        "landing/verdicts.md": f"```{{raw}} html\n{chart}\n```\n",
        "landing/highlights.md": render("highlights.md.j2", results=results),
        "landing/findings.md": findings(root / "book" / "findings.yml", shown, entries),
        "landing/cite.md": citation(root),
        **opening_pages(shown, entries, root),
    }
