"""Open every built page in headless Chromium, wide and narrow, light and dark: `make pages`.

A page passes if it writes no error to the console, asks for nothing outside the book, does not
scroll sideways, and shows each figure in the version of the theme at hand. Pictures of the pages go
to book/_build/pictures with `--pictures`. Without Chromium the check is skipped, and says so.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import BrowserContext, Page, sync_playwright
from tqdm import tqdm

HTML = Path(__file__).resolve().parents[2] / "book" / "_build" / "html"
WIDTHS = {"wide": 1400, "narrow": 390}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
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
  };
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


def look(window: BrowserContext, path: Path, theme: str, picture: Path | None) -> list[str]:
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
        if picture is not None:
            page.screenshot(path=picture, full_page=True)
        return complaints
    finally:
        page.close()


def pages_of_the_book() -> list[Path]:
    """Every page but the first, which is a mere redirection to the introduction."""
    pages = [page for page in sorted(HTML.rglob("*.html")) if "_static" not in page.parts]
    return [page for page in pages if 'http-equiv="Refresh"' not in page.read_text()]


def is_source(page: Path) -> bool:
    """Whether a page is the source of a module, which every entry of the reference leads to."""
    return "_modules" in page.relative_to(HTML).parts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", action="store_true", help="keep a picture of each page")
    options = parser.parse_args()
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((executable for name in names if (executable := shutil.which(name))), None)
    if program is None:
        print("SKIPPED: no Chromium here (Debian: apt-get install chromium); pages not opened")
        return 0
    pages = pages_of_the_book()
    if not pages:
        print("no pages: run `make book` first", file=sys.stderr)
        return 1
    problems = []
    every = itertools.product(pages, WIDTHS, THEMES)
    # one page of source code looks like another, but for the length of its names
    views = [view for view in every if not is_source(view[0]) or view[1:] == ("narrow", "light")]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=FLAGS)
        windows = {
            (name, theme): browser.new_context(
                viewport={"width": width, "height": 1000}, color_scheme=theme
            )
            for name, width in WIDTHS.items()
            for theme in THEMES
        }
        for page, name, theme in tqdm(views, desc="pages in Chromium", mininterval=10):
            relative = page.relative_to(HTML)
            file = f"{'-'.join(relative.with_suffix('').parts)}-{name}-{theme}.png"
            picture = HTML.parent / "pictures" / file if options.pictures else None
            complaints = look(windows[name, theme], page, theme, picture)
            problems += [f"{relative} ({name}, {theme}): {one}" for one in complaints]
        browser.close()
    good = f"{len(pages)} pages are fit to be read: {len(views)} views without a complaint"
    print("\n".join(problems) or good)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
