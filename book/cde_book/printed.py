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
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from cde.storage import atomic_path

__all__ = ["find_chromium", "joined_pages", "print_book"]

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_ARTICLE = re.compile(r"<article\b[^>]*>(.*)</article>", re.DOTALL)
#: scripts, images of the dark theme and of telephones, downloads, and what waits for scrolling
_DROPPED = re.compile(
    r"<script\b.*?</script>|<img\b[^>]*\bcde-dark\b[^>]*>|<source\b[^>]*>"
    r'|<a class="cde-csv".*?</a>| loading="lazy"',
    re.DOTALL,
)
_TAG = re.compile(r"<[A-Za-z][^<>]*>")
_ATTRIBUTE = re.compile(r"""(?<=\s)(id|href|src)=(["'])(.*?)\2""", re.DOTALL)
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
    contents = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    names = [name for name in _names(contents) if (html / f"{name}.html").is_file()]
    if not names:
        raise FileNotFoundError(f"{html} has no pages: build the book first")
    articles = [_article(name, html, frozenset(names)) for name in names]
    first = (html / f"{names[0]}.html").read_text(encoding="utf-8")
    sheets = [
        f'<link rel="stylesheet" href="{escape(_from_build(unescape(address), names[0]))}">'
        for link in re.findall(r"<link\b[^>]*>", first)
        if 'rel="stylesheet"' in link
        for address in re.findall(r'(?<=\s)href="([^"]*)"', link)
    ]
    title = re.findall(r"<title>[^<]*</title>", first)[:1]
    return (
        '<!DOCTYPE html><html lang="en" data-theme="light" data-mode="light"><head>'
        f'<meta charset="utf-8">{"".join([*title, *sheets])}<style>{_STYLE}</style></head>'
        f"<body>{''.join(articles)}</body></html>"
    )


def _names(entry: Any) -> Iterator[str]:
    """The files that a table of contents names, in its order."""
    if isinstance(entry, dict):
        yield from (str(entry[key]) for key in ("root", "file") if key in entry)
    for below in entry.values() if isinstance(entry, dict) else entry:
        if isinstance(below, dict | list):
            yield from _names(below)


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


def _article(name: str, html: Path, names: frozenset[str]) -> str:
    """A page's article, with its names, links and images as the joined page needs them."""
    page = (html / f"{name}.html").read_text(encoding="utf-8")
    found = _ARTICLE.search(page)

    def moved(attribute: re.Match[str]) -> str:
        kind, value = attribute[1], unescape(attribute[3])
        if kind == "id":
            value = _anchor(name, value)
        elif kind == "href":
            value = _within(value, name, names)
        else:
            value = _from_build(value, name)
        return f'{kind}="{escape(value)}"'

    text = _DROPPED.sub("", found[1]) if found else ""
    text = _TAG.sub(lambda tag: _ATTRIBUTE.sub(moved, tag[0]), text)
    return f'<article class="bd-article printed" id="{_anchor(name)}">{text}</article>'


def _within(address: str, name: str, names: frozenset[str]) -> str:
    """A link to a page of the book, as one within the joined page; others as they are."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return address
    page = os.path.normpath(os.path.join(os.path.dirname(name), unquote(parts.path)))
    target = page.removesuffix(".html") if parts.path else name
    if target in names:
        return f"#{_anchor(target, unquote(parts.fragment))}"
    return _from_build(address, name)
