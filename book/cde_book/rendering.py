"""Render the pages with Jupyter Book, strictly, and check the HTML that results.

Warnings are errors. After that each page is read again: every image needs an alternative text and a
file, every link within the book a target, and nothing may be fetched from elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cde.storage import content_hash
from cde_book.reference import read_reference, reference_files
from cde_book.thumbnails import FOLDER

_INPUTS = (
    "README.md",
    "_config.yml",
    "_toc.yml",
    "book/*.md",
    "book/parts/*.md",
    "book/*.bib",
    "book/moved.yml",
    "book/generated/**/*.md",
    "book/executed/*/*.ipynb",
    "book/_static/*",
    "book/generated/figures/*.svg",
    "book/_ext/*.py",
    "constraints.txt",
)


def _inputs_key(root: Path) -> str:
    files = sorted({path for pattern in _INPUTS for path in root.glob(pattern) if path.is_file()})
    documented = reference_files()  # Sphinx reads their docstrings and shows their sources
    return content_hash(
        part for path in (*files, *documented) for part in (str(path), path.read_bytes())
    )


def render(root: Path) -> Path:
    """Render the book, unless nothing that it is made of has changed."""
    index = root / "book" / "_build" / "html" / "index.html"
    stamp = root / "book" / "_build" / ".inputs"
    key = _inputs_key(root)
    if index.exists() and stamp.exists() and stamp.read_text() == key:
        return index
    # from the interpreter that runs this, so that an environment that is not activated works as
    # well; to look for garbage less often saves a third of the time, and costs memory
    code = (
        "import gc, sys; gc.set_threshold(1_000_000, 50, 1000); "
        f"from cde_studies.workers import end_with; end_with({os.getpid()}); "
        "from jupyter_book.cli.main import main; sys.exit(main())"
    )
    options = ["-W", "-n", "--keep-going", "--path-output", "book", "."]
    command = [sys.executable, "-c", code, "build", *options]
    (root / FOLDER).mkdir(parents=True, exist_ok=True)  # a static folder: Sphinx insists on it
    # Sphinx writes the bibliography again only if it reads it again, and a chapter that is new in
    # the book may be the first to cite a paper
    doctrees = index.parents[1] / ".doctrees" / "book"
    (doctrees / "bibliography.doctree").unlink(missing_ok=True)
    # and a name that has moved changes the links of pages whose own text has not
    names, known = index.parents[1] / ".names", content_hash(sorted(read_reference().paths))
    if not names.exists() or names.read_text() != known:
        for path in (doctrees / "generated" / "reference").glob("*.doctree"):
            path.unlink()
    for page in (sources := index.parent / "_modules").rglob("*.html"):  # of modules that are gone
        module = root / page.relative_to(sources).with_suffix("")
        if page.stem != "index" and not (module.is_dir() or module.with_suffix(".py").exists()):
            page.unlink()
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode or not index.exists():
        output = done.stdout + done.stderr
        said = [line for line in output.splitlines() if "WARNING" in line or "ERROR" in line]
        detail = "\n".join(said) or output[-4000:]
        raise RuntimeError(f"Jupyter Book could not render the pages:\n{detail}")
    problems = check_html(index.parent)
    if problems:
        raise ValueError("the rendered pages are not fit to be read:\n" + "\n".join(problems))
    names.write_text(known)
    stamp.write_text(key)
    return index


class _Page(HTMLParser):
    """What a page shows, leads to and fetches."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.images: list[tuple[str, str]] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self.anchors |= {own.get("id", ""), own.get("name", "")}
        if tag == "img":
            self.images.append((own.get("alt", ""), own.get("src", "")))
        if tag == "a" and own.get("href"):
            self.links.append(own["href"])
        source = own.get("src") or (own.get("href", "") if tag == "link" else "")
        if urlsplit(source).netloc and own.get("rel") not in ("canonical", "search"):
            self.fetched.append(source)


def check_html(folder: Path) -> list[str]:
    """What is wrong with the pages of a folder, one line each; empty if nothing is."""
    paths = [one for one in sorted(folder.rglob("*.html")) if "_static" not in one.parts]
    pages = {path.resolve(): _Page(path) for path in paths}
    problems = []
    for path, page in pages.items():
        said = ["an image has no alternative text" for alt, _ in page.images if not alt.strip()]
        said += [f"fetches {address}" for address in page.fetched]
        for _, source in page.images:
            if (file := _file_of(source, path)) and not file.is_file():
                said.append(f"there is no image {source}")
        for link in page.links:
            if target := _file_of(link, path):
                target = target / "index.html" if target.is_dir() else target
                anchor = unquote(urlsplit(link).fragment)
                if not target.exists():
                    said.append(f"the link {link} leads nowhere")
                elif anchor and target in pages and anchor not in pages[target].anchors:
                    said.append(f"the link {link} has no such anchor")
        problems += [f"{path.relative_to(folder.resolve())}: {one}" for one in said]
    return problems


def _file_of(address: str, page: Path) -> Path | None:
    """What an address on a page leads to, if that is a file beside it."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    return (page.parent / unquote(parts.path)).resolve() if parts.path else page
