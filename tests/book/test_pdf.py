"""The book as one PDF: every page once, in order, and links that stay within it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from cde_book import printed
from cde_book.cli import main
from cde_book.printed import find_chromium, joined_pages, print_book

PAGE = """<html><head><title>A book</title><link rel="stylesheet" href="{up}_static/s.css"></head>
<body><nav>the sidebar</nav><article><h1 id="top">{title}</h1>{body}</article></body></html>"""
PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><rect width="8" height="8"/></svg>'


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of three pages, two of which have the same anchor, and one without a page."""
    (tmp_path / "_toc.yml").write_text(
        "root: start\nparts:\n- chapters:\n  - file: a/one\n    sections:\n    - file: a/two\n"
        "  - file: not/written\n"
    )
    pages = {
        "start": '<a href="a/two.html#top">on</a> <a href="https://example.org/x">out</a>',
        "a/two": '<a href="#top">up</a> <a href="one.html">back</a> <a href="../_static/x.csv">n</a>',
        "a/one": '<img class="cde-light" loading="lazy" src="../_images/i.svg"><img class="cde-dark" '
        'src="../_images/d.svg"><script>1</script>',
    }
    html = tmp_path / "book" / "_build" / "html"
    for name, body in pages.items():
        path = html / f"{name}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE.format(title=name, body=body, up="../" * name.count("/")))
    (html / "_images").mkdir()
    (html / "_images" / "i.svg").write_text(PICTURE)
    return tmp_path


def test_every_page_is_there_once_in_the_order_of_the_contents(book: Path) -> None:
    soup = BeautifulSoup(joined_pages(book), "html.parser")
    assert [one.get_text() for one in soup.select("h1")] == ["start", "a/one", "a/two"]
    assert soup.nav is None and soup.script is None
    sheet = soup.select_one("link[rel=stylesheet]")
    assert sheet is not None and sheet["href"] == "html/_static/s.css"


def test_links_between_pages_lead_within_the_document(book: Path) -> None:
    soup = BeautifulSoup(joined_pages(book), "html.parser")
    anchors = [str(one["id"]) for one in soup.select("[id]")]
    assert len(anchors) == len(set(anchors))
    to = {one.get_text(): str(one["href"]) for one in soup.select("a")}
    titles = {one.get_text(): f"#{one['id']}" for one in soup.select("h1")}
    assert to["on"] == to["up"] == titles["a/two"]
    assert to["back"].removeprefix("#") in anchors
    assert to["out"] == "https://example.org/x" and to["n"] == "html/_static/x.csv"


def test_images_are_those_of_the_light_theme_and_are_found(book: Path) -> None:
    (image,) = BeautifulSoup(joined_pages(book), "html.parser").select("img")
    assert (book / "book" / "_build" / str(image["src"])).read_text() == PICTURE
    assert "loading" not in image.attrs


def test_without_chromium_nothing_is_built_and_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(printed.shutil, "which", lambda name: None)
    assert main(["book", "--pdf", "--profile", "smoke"]) == 2
    told = capsys.readouterr()
    assert "Chromium" in told.err and "apt-get install" in told.err and not told.out


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_the_pdf_has_each_page_on_a_sheet_of_its_own(book: Path) -> None:
    pdf = print_book(book)
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF") and find_chromium()
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", content)) == 3
    assert [one.name for one in pdf.parent.iterdir()].count("whole.html") == 0
