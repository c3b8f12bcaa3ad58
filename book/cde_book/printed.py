"""The whole book as one PDF, from its rendered pages, by headless Chromium.

The pages are joined in the order of the table of contents: only their articles, in light colours,
with links between them made to lead within the document. What is folded on a page stays folded.

Cost: a minute or two; `cde book` alone does none of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Container, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

from cde.storage import atomic_path

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
#: scripts, images of the dark theme and of telephones, and downloads
_DROPPED = "script, img.cde-dark, source, a.cde-csv"
_STYLE = """article.printed { break-before: page; }
article.printed .headerlink { display: none !important; }
.cde-figure img, .cde-thumbnail img { min-width: 0 !important; max-width: 100%; }
pre, code .pre { white-space: pre-wrap; overflow-wrap: anywhere; }"""


def find_chromium() -> str:
    """The program that prints.

    Raises:
        FileNotFoundError: no Chromium is on the path.
    """
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        raise FileNotFoundError(
            "a PDF is printed by Chromium, and none of "
            f"{', '.join(_PROGRAMS)} is on the path (Debian: apt-get install chromium)"
        )
    return found


def print_book(root: Path) -> Path:
    """Print the rendered book; the PDF is beside the HTML's folder."""
    program, build = find_chromium(), root.resolve() / "book" / "_build"
    joined, pdf = build / "whole.html", build / "book.pdf"
    joined.write_text(joined_pages(root), encoding="utf-8")
    with atomic_path(pdf) as temporary:
        command = [
            program,
            "--headless",
            "--disable-gpu",
            "--no-sandbox",  # it opens our own pages alone, and root may not have a sandbox
            "--no-pdf-header-footer",
            "--generate-pdf-document-outline",
            f"--print-to-pdf={temporary}",
            joined.as_uri(),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "LANG": "C"}
        )
        if done.returncode or not temporary.is_file() or not temporary.stat().st_size:
            raise RuntimeError(f"{program} could not print the book:\n{done.stderr[-2000:]}")
    joined.unlink()
    return pdf


def joined_pages(root: Path) -> str:
    """The articles of the book's pages as one page of HTML, to stand beside the HTML's folder."""
    html = root / "book" / "_build" / "html"
    lines = (root / "_toc.yml").read_text(encoding="utf-8").splitlines()
    listed = [line.strip(" -").partition(": ") for line in lines]
    names = [one for key, _, one in listed if key in ("root", "file")]
    names = [name for name in names if (html / f"{name}.html").is_file()]
    if not names:
        raise FileNotFoundError(f"{html} has no pages: build the book first")
    pages = {
        name: BeautifulSoup((html / f"{name}.html").read_bytes(), "html.parser") for name in names
    }
    head = pages[names[0]].select("title, link[rel~=stylesheet]")
    for sheet in head[1:]:
        sheet["href"] = _from_build(str(sheet["href"]), names[0])
    return (
        '<!DOCTYPE html><html lang="en" data-theme="light" data-mode="light"><head>'
        f'<meta charset="utf-8">{"".join(map(str, head))}<style>{_STYLE}</style></head>'
        f"<body>{''.join(_article(name, pages) for name in names)}</body></html>"
    )


def _article(name: str, pages: Mapping[str, BeautifulSoup]) -> str:
    """A page's article, with its names, links and images as the joined page needs them."""
    article = pages[name].article
    if article is None:
        return ""
    for one in article.select(_DROPPED):
        one.decompose()
    for one in article.select("[id]"):
        one["id"] = _anchor(name, str(one["id"]))
    for one in article.select("[href]"):
        one["href"] = _within(str(one["href"]), name, pages)
    for one in article.select("[src]"):
        one["src"] = _from_build(str(one["src"]), name)
        del one["loading"]  # what waits for scrolling is not printed
    article.attrs = {"class": "bd-article printed", "id": _anchor(name)}
    return str(article)


def _anchor(name: str, fragment: str = "") -> str:
    """An anchor of a page in the joined one, where pages may not share names."""
    return re.sub(r"\W", "-", name) + (f"--{fragment}" if fragment else "")


def _from_build(address: str, name: str) -> str:
    """An address that a page has, as seen from the folder above the pages."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return address
    path = os.path.normpath(os.path.join("html", os.path.dirname(name), parts.path))
    return f"{path}?{parts.query}" if parts.query else path


def _within(address: str, name: str, pages: Container[str]) -> str:
    """A link to a page of the book, as one within the joined page; others as they are."""
    parts = urlsplit(address)
    page = os.path.normpath(os.path.join(os.path.dirname(name), unquote(parts.path)))
    target = page.removesuffix(".html") if parts.path else name
    if target in pages and not parts.netloc:
        return f"#{_anchor(target, unquote(parts.fragment))}"
    return _from_build(address, name)
