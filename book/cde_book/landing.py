"""The computed parts of the landing page and of the parts' opening pages.

`book/intro.md` and `book/parts/<part>.md` include them. A bar of the chart is a paper and scale, a
segment a verdict, its width the number of claims. `book/highlights.yml` names results, each with
the verdicts at which its sentence is true; elsewhere the chapter's own answer stands in its place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from cde_book.chapters import Chapter, chapters
from cde_book.execution import load_execution
from cde_book.ledger import PAPERS, SHORT
from cde_book.ledger_pages import Judged, judged
from cde_book.markup import render
from cde_book.thumbnails import Figure
from cde_book.verdicts import VERDICTS, order

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
        tally = Counter(one.verdict.verdict for one in entries if chapter in one.chapters)
        made[chapter.name] = Card(
            chapter,
            first_sentence(log.answer) if log is not None and log.answer else "",
            {name: tally[name] for name in VERDICTS if tally[name]},
            next(iter(figures.get(chapter.name, ())), None),
        )
    return made


def parts(root: Path) -> dict[str, list[str]]:
    """The parts of the table of contents that have an opening page: its name → their chapters."""
    contents = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    entries = [entry for part in contents.get("parts", []) for entry in part["chapters"]]
    return {
        Path(entry["file"]).name: [Path(one["file"]).name for one in entry.get("sections", [])]
        for entry in entries
        if Path(entry["file"]).parent == Path("book/parts")
    }


def opening_pages(
    shown: Mapping[str, Card], entries: Sequence[Judged], root: Path
) -> dict[str, str]:
    """What the opening pages include, by file name: chapters' cards, and questions' claims."""
    pages = {
        f"parts/{part}.md": render(
            "opening.md.j2", cards=[shown[name] for name in names if name in shown]
        )
        for part, names in parts(root).items()
    }
    by_claim = {one.claim.id: one for one in entries}
    for entry in read_list(root / "book" / "questions.yml"):
        asked = [by_claim[name] for name in entry["claims"]]
        root_of = "" if entry.get("page") == "intro" else "../"  # as the including page sees it
        table = render("question.html.j2", entries=asked, root=root_of)
        pages[f"questions/{entry['name']}.md"] = f"```{{raw}} html\n{table}```\n"
    return pages


def claims_address(**choices: str) -> str:
    """The page *Claims*, seen from the landing page, filtered by what is chosen."""
    chosen = urlencode({name: value for name, value in choices.items() if value})
    return f"generated/claims.html?{chosen}" if chosen else "generated/claims.html"


@dataclass(frozen=True)
class Segment:
    """Claims of one paper, scale and verdict: how many, and where they stand."""

    verdict: str
    count: int
    address: str
    description: str


@dataclass(frozen=True)
class Bar:
    """The claims of one paper whose evidence has one scale ("": no evidence)."""

    paper: str
    scale: str
    segments: Sequence[Segment]


def bars(entries: Sequence[Judged]) -> list[Bar]:
    """The chart: bars by paper, then by scale, the largest first, without facts of construction."""
    tally: Counter[tuple[str, str, str]] = Counter(
        (one.claim.paper, one.verdict.scale, one.verdict.verdict)
        for one in entries
        if not one.claim.by_construction
    )
    drawn = []
    for paper, title in PAPERS.items():
        scales = {scale for of, scale, _ in tally if of == paper}
        for scale in sorted(scales, key=lambda one: (not one, order(one), one)):
            words = f"{title}, {f'evidence at {scale}' if scale else 'no evidence'}"
            segments = [
                Segment(
                    verdict,
                    count,
                    claims_address(verdict=verdict, paper=paper, scale=scale),
                    f"{words}: {count} {'claim' if count == 1 else 'claims'}, {verdict}",
                )
                for verdict in VERDICTS
                if (count := tally[paper, scale, verdict])
            ]
            drawn.append(Bar(paper, scale, segments))
    return drawn


@dataclass(frozen=True)
class Highlight:
    """A result with a picture and one sentence."""

    card: Card
    sentence: str
    stands: bool
    entries: Sequence[Judged]


def highlights(path: Path, shown: Mapping[str, Card], entries: Sequence[Judged]) -> list[Highlight]:
    """The results of a file of highlights, as this build supports them."""
    by_claim = {one.claim.id: one for one in entries}
    results = []
    for entry in read_list(path):
        card, when = shown[entry["chapter"]], entry["when"]
        stands = all(by_claim[name].verdict.verdict == verdict for name, verdict in when.items())
        sentence = entry["sentence"] if stands else card.answer
        results.append(Highlight(card, sentence, stands, [by_claim[name] for name in when]))
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
    profile: str, root: Path, figures: Mapping[str, Sequence[Figure]]
) -> dict[str, str]:
    """What the landing page and the opening pages include, by file name below `book/generated`."""
    entries = judged(profile, root)
    shown = cards(profile, root, entries, figures)
    drawn = bars(entries)
    open_ones = [one for one in entries if not one.claim.by_construction]
    tally = Counter(one.verdict.verdict for one in open_ones)
    chart = render(
        "verdict_chart.html.j2",
        profile=profile,
        total=len(open_ones),
        tested=sum(one.is_tested for one in open_ones),
        constructed=len(entries) - len(open_ones),
        bars=drawn,
        longest=max((sum(one.count for one in bar.segments) for bar in drawn), default=1),
        short=SHORT,
        address=claims_address,
        tally=[(name, tally[name]) for name in VERDICTS],
    )
    results = highlights(root / "book" / "highlights.yml", shown, entries)
    return {
        "landing/verdicts.md": f"```{{raw}} html\n{chart}\n```\n",
        "landing/highlights.md": render("highlights.md.j2", results=results),
        "landing/findings.md": findings(root / "book" / "findings.yml", shown, entries),
        "landing/cite.md": citation(root),
        **opening_pages(shown, entries, root),
    }
