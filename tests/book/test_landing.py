"""The landing page counts every claim once, and says nothing that this build does not support."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bs4 import BeautifulSoup

from cde_book import landing
from cde_book.chapters import chapters
from cde_book.checkout import project_root
from cde_book.ledger import ledger
from cde_book.ledger_pages import BY_CONSTRUCTION, Judged, judged
from cde_book.verdicts import VERDICTS, Verdict

ROOT = project_root()
BOOK = ROOT / "book"
SCALES = ("hours", "laptop", "a scale of nobody")


def judged_otherwise() -> list[Judged]:
    """The ledger with made-up verdicts: each occurs, at each scale, and some claims have none."""
    entries = []
    for place, entry in enumerate(judged("a profile of nobody", ROOT)):
        verdict = VERDICTS[place % len(VERDICTS)]
        scale = "" if verdict == "not tested" else SCALES[place % len(SCALES)]
        entries.append(replace(entry, verdict=Verdict(verdict, "made up", scale)))
    return entries


ENTRIES = judged_otherwise()
SHOWN = {
    name: replace(card, answer=f"The answer of {name}.")
    for name, card in landing.cards("a profile of nobody", ROOT, ENTRIES, {}).items()
}


def test_the_chart_counts_every_claim_once_and_a_segment_leads_to_those_that_it_counts() -> None:
    chart = BeautifulSoup(landing.verdict_chart("laptop", ENTRIES), "html.parser")
    left = {entry.claim.id for entry in ENTRIES if entry.group != BY_CONSTRUCTION}
    assert 0 < len(left) < len(ledger())
    for segment in chart.select(".bar a"):
        address = urlsplit(str(segment["href"]))
        asked = {name: value for name, (value,) in parse_qs(address.query).items()}
        assert address.path == "generated/claims.html"
        assert set(asked) <= {"verdict", "paper", "part", "scale"}
        chosen = {
            entry.claim.id
            for entry in ENTRIES
            if entry.claim.paper == asked.get("paper", entry.claim.paper)
            and entry.group == asked.get("verdict", entry.group)
            and entry.verdict.scale == asked.get("scale", entry.verdict.scale)
        }
        assert len(chosen) == int(segment.get_text()) and chosen <= left
        left -= chosen
    assert not left


class TestHighlights:
    every = landing.read_list(BOOK / "highlights.yml")

    def test_a_sentence_stands_if_all_its_verdicts_do(self) -> None:
        wanted = {name: verdict for one in self.every for name, verdict in one["when"].items()}
        assert {*wanted.values()} <= {*VERDICTS} and all(one["when"] for one in self.every)
        entries = [
            replace(one, verdict=Verdict(wanted.get(one.claim.id, one.verdict.verdict), ""))
            for one in ENTRIES
        ]
        results = landing.highlights(BOOK / "highlights.yml", SHOWN, entries)
        assert [one.sentence for one in results] == [one["sentence"] for one in self.every]
        for claim, verdict in wanted.items():
            for other in set(VERDICTS) - {verdict}:
                changed = [
                    replace(one, verdict=Verdict(other, "")) if one.claim.id == claim else one
                    for one in entries
                ]
                results = landing.highlights(BOOK / "highlights.yml", SHOWN, changed)
                for one, entry in zip(results, self.every, strict=True):
                    answer = f"The answer of {entry['chapter']}."
                    assert one.sentence == (answer if claim in entry["when"] else entry["sentence"])


def test_an_opening_page_names_each_of_its_chapters_once() -> None:
    pages = landing.opening_pages(SHOWN, ENTRIES, ROOT)
    named = []
    for path in BOOK.glob("parts/*.md"):
        here = re.findall(r"</book/executed/(\w+)/(\w+)>`", pages[f"parts/{path.name}"])
        assert here == [(one.part, one.name) for one in chapters() if one.part == path.stem]
        named += [chapter for _, chapter in here]
        assert f"(../generated/parts/{path.name})" in _includes(path)
    assert sorted(named) == sorted(chapter.name for chapter in chapters())


def _includes(path: Path) -> str:
    """The files that a page includes, each in parentheses."""
    return re.sub(r"```\{include\} (\S+)", r"(\1)", path.read_text(encoding="utf-8"))


def test_every_question_is_asked_of_claims_that_exist_and_shown_on_a_page() -> None:
    pages = "".join(map(_includes, [BOOK / "intro.md", *(BOOK / "parts").glob("*.md")]))
    for entry in landing.read_list(BOOK / "questions.yml"):
        assert entry["claims"] and set(entry["claims"]) <= set(ledger())
        root_of = "" if entry.get("page") == "intro" else "../"
        assert pages.count(f"({root_of}generated/questions/{entry['name']}.md)") == 1


def test_no_sentence_by_hand_has_a_number_or_a_verdict() -> None:
    """Both come from the build, which may come out otherwise."""
    stories = [path.read_text(encoding="utf-8") for path in BOOK.glob("parts/*.md")]
    texts = [re.sub(r"(?ms)^#.*?$|^```.*?^```|BM25", "", story) for story in stories]
    texts += [one["sentence"] for one in landing.read_list(BOOK / "highlights.yml")]
    texts += [one["finding"] for one in landing.read_list(BOOK / "findings.yml")]
    verdicts = r"\b(inconclusive|contradicted|holds in part|not tested)\b"
    assert [text for text in texts if re.search(rf"\d|{verdicts}", text)] == []
