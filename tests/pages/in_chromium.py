"""Open every built page in headless Chromium, wide and narrow, light and dark: `make pages`.

A page passes if it writes no error to the console, asks for nothing outside the book, does not
scroll sideways, shows figures of the theme at hand, is not too large, and axe-core finds nothing
serious. A chapter has its answer, first figure and strip on the first screen; on a telephone the
figure is whole. The search finds what it is asked for, and folds open from the keyboard.

Without Chromium the check is skipped, and says so. Cost: four minutes on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import axe_playwright_python
import claims_behaviour
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tqdm import tqdm

HTML = Path(__file__).resolve().parents[2] / "book" / "_build" / "html"
WIDTHS = {"wide": 1400, "narrow": 390}
HEIGHT = 1000
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
Theme = Literal["light", "dark"]
View = tuple[Path, str, Theme]
LARGEST = 3_000_000  # bytes of a page
MEDIAN = 1_000_000  # of a page with what it loads
TALLEST = 640  # pixels of a leading figure on a telephone
MOST_WORDS, MOST_NUMBERS = 28, 6  # of a chapter's answer; an interval is not a word
#: what a reader may type
SEARCHES = ("null token", "mean pooling", "preregistered", "my notes", "should I use")
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
#: contrast alone depends on the theme, the rest is looked at once
AXE_RULES = {
    "light": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    "dark": {"type": "rule", "values": ["color-contrast"]},
}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--hide-scrollbars"]
PROBE = """() => {
  const seen = (e) => getComputedStyle(e).display !== 'none';
  return {
    theme: document.documentElement.dataset.theme,
    overflow: document.documentElement.scrollWidth - window.innerWidth,
    figures: [...document.querySelectorAll('.cde-figure')].map(
      (f) => [...f.querySelectorAll('img')].filter(seen).map((i) => i.className)),
    broken: [...document.images].filter((i) => seen(i) && i.complete && !i.naturalWidth)
      .map((i) => i.alt),
    answer: document.querySelector('.cde-answer > p')?.innerText ?? null,
    figure: document.querySelector('.cde-figure')?.getBoundingClientRect().top ?? null,
    strip: document.querySelector('.cde-strip')?.getBoundingClientRect().top ?? null,
    lead: [...document.querySelectorAll('.cde-answer-figure img')].filter(seen).map((i) => {
      const frame = i.closest('.cde-scroll');
      return [i.getBoundingClientRect().height, frame.scrollWidth - frame.clientWidth];
    }),
  };
}"""
VIOLATIONS = """async (rules) => {
  const found = await axe.run(document,
    {resultTypes: ['violations'], runOnly: rules, preload: false});
  return found.violations.filter((one) => ['serious', 'critical'].includes(one.impact))
    .map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((n) => n.html).join(' ')}`);
}"""


def listen(page: Page) -> list[str]:
    """What a page complains of, as it is loaded."""
    complaints: list[str] = []
    page.on(
        "console",
        lambda said: complaints.append(f"console: {said.text}") if said.type == "error" else None,
    )
    page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))

    def asked(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            complaints.append(f"asks for {request.url}")

    page.on("request", asked)
    return complaints


def first_screen(seen: dict[str, Any]) -> list[str]:
    """What is wrong with the answer and the first figure of a chapter."""
    complaints = []
    if seen["figure"] is None:
        complaints.append("has no figure")
    elif seen["figure"] > HEIGHT:
        complaints.append(f"has its first figure {seen['figure']:.0f} pixels down")
    if (seen["strip"] or 0) > HEIGHT:
        complaints.append(f"has its strip {seen['strip']:.0f} pixels down")
    answer = seen["answer"] or ""
    numbers = re.findall(r"(?<![\w@.-])[-−]?\d[\d.,]*", answer)
    if not answer:
        complaints.append("has no answer below its title")
    words = re.sub(r"\[[^\]]*\]", "", answer).split()
    if len(words) > MOST_WORDS or len(numbers) > MOST_NUMBERS:
        complaints.append(f"has {len(words)} words, {len(numbers)} numbers in its answer")
    return complaints


def on_a_telephone(seen: dict[str, Any]) -> list[str]:
    """What of a chapter's leading figure a narrow screen does not show at once."""
    complaints = []
    for height, hidden in seen["lead"]:
        if height > TALLEST:
            complaints.append(f"has a leading figure {height:.0f} pixels tall")
        if hidden > 0:
            complaints.append(f"hides {hidden:.0f} pixels of its leading figure")
    return complaints


def has_figure(page: Path) -> bool:
    """Whether a page is a chapter with a figure."""
    return is_chapter(page) and "class='cde-figure" in page.read_text(encoding="utf-8")


def is_chapter(page: Path) -> bool:
    """Whether a page is a chapter that was executed."""
    return "executed" in page.relative_to(HTML).parts


def look(window: BrowserContext, path: Path, theme: Theme) -> list[str]:
    """What is wrong with a page in a window of one width and theme."""
    page = window.new_page()
    try:
        complaints = listen(page)
        page.goto(path.as_uri())
        seen = page.evaluate(PROBE)
        if seen["theme"] != theme:
            complaints.append(f"shows the theme {seen['theme']}")
        if seen["overflow"] > 0:
            complaints.append(f"is {seen['overflow']} pixels wider than the screen")
        complaints += [f"broken image {alt!r}" for alt in seen["broken"]]
        for shown in seen["figures"]:
            if len(shown) != 1 or f"cde-{theme}" not in shown[0]:
                complaints.append(f"a figure shows {shown or 'no image'}")
        if page.viewport_size and page.viewport_size["width"] == WIDTHS["narrow"]:
            complaints += on_a_telephone(seen)
        if page.viewport_size and page.viewport_size["width"] == WIDTHS["wide"]:
            if is_chapter(path):
                complaints += first_screen(seen)
            page.evaluate(AXE.read_text(encoding="utf-8"))
            said = page.evaluate(VIOLATIONS, AXE_RULES[theme])
            complaints += [f"axe-core: {one[:600]}" for one in said]
        return complaints
    finally:
        page.close()


def pages_of_the_book() -> list[Path]:
    """Every page but the first, which is a mere redirection to the introduction."""
    pages = [page for page in sorted(HTML.rglob("*.html")) if "_static" not in page.parts]
    return [page for page in pages if 'http-equiv="Refresh"' not in page.read_text()]


def weight(page: Path) -> int:
    """Bytes of a page and of the scripts and style sheets that it loads."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r'<(?:script|link)\b[^>]*? (?:src|href)="([^"?#]+\.(?:js|css))[?"]', text)
    files = {(page.parent / unquote(one)).resolve() for one in named}
    return sum(one.stat().st_size for one in (page, *files) if one.is_file())


def is_source(page: Path) -> bool:
    """Whether a page is the source of a module, which every entry of the reference leads to."""
    return "_modules" in page.relative_to(HTML).parts


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """A Chromium of its own."""
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()


def look_at(views: Sequence[View], program: str) -> list[str]:
    """What is wrong with some views, in a browser of their own."""
    problems = []
    with browser(program) as opened:
        windows = {
            # without motion: a button that is half-way between two themes has too little contrast
            (name, theme): opened.new_context(
                viewport={"width": width, "height": HEIGHT},
                color_scheme=theme,
                reduced_motion="reduce",
            )
            for name, width in WIDTHS.items()
            for theme in THEMES
        }
        for page, name, theme in views:
            complaints = look(windows[name, theme], page, theme)
            view = f"{page.relative_to(HTML)} ({name}, {theme})"
            problems += [f"{view}: {one}" for one in complaints]
    return problems


def use(program: str) -> list[str]:
    """What does not work where a reader does something: searches, or opens a fold by keyboard."""
    with browser(program) as opened:
        window = opened.new_context(viewport={"width": WIDTHS["wide"], "height": HEIGHT})
        claims = claims_behaviour.check(window, HTML)
        found = [one for words in SEARCHES for one in search_for(window, words)]
        return [*found, *open_folds(window), *claims]


def search_for(window: BrowserContext, words: str) -> list[str]:
    """Search the book for words that it has."""
    page = window.new_page()
    page.goto(f"{(HTML / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
    try:
        page.wait_for_selector("#search-results li a", timeout=20_000)
    except Exception as reason:
        return [f"the search finds nothing for {words!r}: {reason}"]
    finally:
        page.close()
    return []


def open_folds(window: BrowserContext) -> list[str]:
    """Open the first fold of a chapter with the keyboard alone."""
    page = window.new_page()
    try:
        page.goto(next(one for one in pages_of_the_book() if has_figure(one)).as_uri())
        page.locator(".cde-figure summary").first.focus()
        page.keyboard.press("Enter")
        opened = page.locator(".cde-figure details").first.evaluate("(fold) => fold.open")
        return [] if opened else ["a fold does not open by keyboard"]
    finally:
        page.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="pages with this in their path alone")
    options = parser.parse_args()
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((executable for name in names if (executable := shutil.which(name))), None)
    if program is None:
        print("SKIPPED: no Chromium here (Debian: apt-get install chromium); pages not opened")
        return 0
    pages = [page for page in pages_of_the_book() if options.only in str(page)]
    if not pages:
        print("no pages: run `make book` first", file=sys.stderr)
        return 1
    problems = [
        f"{page.relative_to(HTML)}: has {page.stat().st_size / 1e6:.1f} MB"
        for page in pages
        if page.stat().st_size > LARGEST
    ]
    middle = statistics.median([weight(page) for page in pages if not is_source(page)] or [0])
    problems += [f"half of the pages have more than {middle / 1e6:.2f} MB"] * (middle > MEDIAN)
    every = itertools.product(pages, WIDTHS, THEMES)
    # one page of source code looks like another, but for the length of its names
    views = [view for view in every if not is_source(view[0]) or view[1:] == ("narrow", "light")]
    parts = [views[start : start + 16] for start in range(0, len(views), 16)]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        found = workers.map(partial(look_at, program=program), parts)
        shown = tqdm(found, "pages in Chromium", len(parts), mininterval=10)
        problems += [one for part in shown for one in part]
    problems += use(program)
    good = f"{len(pages)} pages are fit to be read: {len(views)} views without a complaint"
    print("\n".join(problems) or good)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
