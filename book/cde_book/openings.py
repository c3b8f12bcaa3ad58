"""Each part's opening page: its chapters with question, picture, answer and verdicts.

The story of a part is written by hand, in `book/parts/<part>.md`; what is computed stands in
`book/generated/parts/<part>.md`, which that page includes. The folder `templates` holds the markup.

Cost: reading the chapters' logs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cde_book.chapters import Chapter, chapters
from cde_book.execution import load_execution
from cde_book.ledger_pages import Judged
from cde_book.markup import render
from cde_book.thumbnails import Figure
from cde_book.verdicts import VERDICTS

__all__ = ["Card", "cards", "first_sentence", "opening_pages", "parts", "read_list"]

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
    found = {}
    for part in contents.get("parts", []):
        files = [Path(one) for one in _files(part)]
        for opening in (one.name for one in files if one.parent == Path("book/parts")):
            found[opening] = [one.name for one in files if one.parent.parent.name == "executed"]
    return found


def _files(part: Mapping[str, Any]) -> Iterator[str]:
    for entry in part.get("chapters", []):
        yield entry["file"]
        for section in entry.get("sections", []):
            yield section["file"]


def opening_pages(
    shown: Mapping[str, Card], entries: Sequence[Judged], root: Path
) -> dict[str, str]:
    """What the opening pages include, by file name: each chapter of the part as a card, and the
    claims that answer the part's own question.
    """
    pages = {
        f"parts/{part}.md": render(
            "opening.md.j2", cards=[shown[name] for name in names if name in shown]
        )
        for part, names in parts(root).items()
    }
    by_claim = {one.claim.id: one for one in entries}
    for entry in read_list(root / "book" / "questions.yml"):
        asked = [by_claim[name] for name in entry["claims"]]
        pages[f"questions/{entry['name']}.md"] = render("question.md.j2", entries=asked)
    return pages
