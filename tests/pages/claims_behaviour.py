"""What a reader does on the page *Claims*, with the keyboard: filter, sort, search, link."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from playwright.sync_api import BrowserContext, Page

PAGE = Path("book") / "generated" / "claims.html"
SEEN = """() => [...document.querySelectorAll('.cde-claim')]
  .filter((c) => c.checkVisibility())
  .map((c) => ({id: c.id, text: c.textContent.toLowerCase(), ...c.dataset}))"""
FOCUSED = "document.activeElement.name || ''"


def visible(page: Page) -> list[dict[str, Any]]:
    """The claims that are shown, in their order."""
    found: list[dict[str, Any]] = page.evaluate(SEEN)
    return found


def tab_to(page: Page, name: str) -> bool:
    """Press Tab, from the beginning of the page's own text, until a control has the focus."""
    page.evaluate("document.querySelector('article').setAttribute('tabindex', '-1')")
    page.evaluate("document.querySelector('article').focus()")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED) == name:
            return True
    return False


def filter_by_keyboard(page: Page, address: str) -> Iterator[str]:
    page.goto(address)
    every = visible(page)
    if not tab_to(page, "verdict"):
        yield "the filter of verdicts cannot be reached with Tab"
        return
    verdict = page.locator("select[name=verdict]")
    for _ in range(verdict.locator("option").count() - 1):
        page.keyboard.press("ArrowDown")
        chosen = verdict.input_value()
        wanted = [claim["id"] for claim in every if claim["verdict"] == chosen]
        if [claim["id"] for claim in visible(page)] != wanted:
            yield f"the filter {chosen!r} does not show just the {len(wanted)} claims that have it"
        if not page.locator(".cde-filters output").inner_text().startswith(f"{len(wanted)} of "):
            yield f"the count for {chosen!r} is not {len(wanted)}"
        if f"verdict={quote_plus(chosen)}" not in page.url:
            yield f"the filter {chosen!r} does not stand in the address {page.url}"
    page.reload()
    if verdict.input_value() != chosen or [one["id"] for one in visible(page)] != wanted:
        yield "the address does not bring the filter back"
    if not tab_to(page, "words"):
        yield "the field for words cannot be reached with Tab"
    page.locator("form.cde-filters button").press("Enter")
    if len(visible(page)) != len(every) or "?" in page.url:
        yield "the button does not show all claims again"


def look_for_words(page: Page, address: str) -> Iterator[str]:
    page.goto(address)
    every = visible(page)
    tab_to(page, "words")
    page.keyboard.type("Batches cluster")
    found = visible(page)
    wanted = [one["id"] for one in every if "batches" in one["text"] and "cluster" in one["text"]]
    if not wanted or [claim["id"] for claim in found] != wanted:
        yield f"{len(found)} claims are found by two words that {len(wanted)} have"
    page.keyboard.press("Enter")
    if len(visible(page)) != len(found):
        yield "Enter in the field for words changes what is shown"


def sort_claims(page: Page, address: str) -> Iterator[str]:
    page.goto(f"{address}?sort=place")
    places = [int(claim["place"]) for claim in visible(page)]
    if places != sorted(places):
        yield "claims sorted by paper and place are not in that order"
    for name in ("scale", "part", "verdict"):
        page.goto(f"{address}?sort={name}")
        values = [claim[name] for claim in visible(page)]
        if len(list(groupby(values))) != len(set(values)):
            yield f"sorted by {name}, what belongs together does not stand together"
        if "" in values and values[-1] != "":
            yield f"sorted by {name}, what has none does not come last"


def follow_links(page: Page, address: str) -> Iterator[str]:
    page.goto(address)
    claim = visible(page)[-1]
    signs = page.locator(".cde-claim .anchor")
    if signs.count() != len(visible(page)):
        yield "not every claim has a sign that links to it"
    other = next((o["paper"] for o in visible(page) if o["paper"] != claim["paper"]), None)
    for query in ("", f"?paper={claim['paper']}", *([f"?paper={other}"] if other else [])):
        page.goto("about:blank")
        page.goto(f"{address}{query}#{claim['id']}")
        row = page.locator(f"[id='{claim['id']}']")
        if not row.is_visible() or not row.locator("details").evaluate("(one) => one.open"):
            yield f"{query}#{claim['id']} does not open the claim"
            continue
        top = row.evaluate("(one) => one.getBoundingClientRect().top")
        if not 0 <= top < page.evaluate("innerHeight"):
            yield f"{query}#{claim['id']} leaves the claim out of sight, at {top:.0f} pixels"
        if not row.evaluate("(one) => one.matches(':target')"):
            yield f"{query}#{claim['id']} does not mark the claim"
    page.goto(f"{address}?paper={claim['paper']}&verdict={quote_plus(claim['verdict'])}")
    if {(one["paper"], one["verdict"]) for one in visible(page)} != {
        (claim["paper"], claim["verdict"])
    }:
        yield "an address with two filters shows other claims than those"
    page.goto(f"{address}?paper=none&scale=nowhere")
    if not visible(page):
        yield "an address with values that no claim has shows an empty page"


def check(window: BrowserContext, html: Path) -> list[str]:
    """What does not work on the page of claims, in a window of any width."""
    address = (html / PAGE).as_uri()
    uses = (filter_by_keyboard, look_for_words, sort_claims, follow_links)
    page = window.new_page()
    try:
        return [f"claims: {said}" for use in uses for said in use(page, address)]
    finally:
        page.close()
