"""The old address of a page that moved leads to the new one, from wherever it stands."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urljoin

import moved
import pytest
from sphinx.util.osutil import relative_uri

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def app(tmp_path: Path) -> Any:
    """What the extension sees of Sphinx, of a book with one page."""

    def address(one: str, other: str) -> str:
        return relative_uri(f"{one}.html", f"{other}.html")

    (tmp_path / "book").mkdir()
    page = tmp_path / "out" / "executed" / "results" / "new.html"
    page.parent.mkdir(parents=True)
    page.write_text("<h1 id='part'>New</h1>")
    builder = SimpleNamespace(format="html", get_relative_uri=address)
    return SimpleNamespace(builder=builder, srcdir=tmp_path, outdir=tmp_path / "out")


@pytest.mark.parametrize("old", ["executed/batches/old", "executed/results/old", "old", "a/b/c/d"])
def test_the_old_address_leads_to_the_page(app: Any, old: str) -> None:
    new = "executed/results/new"
    (app.srcdir / "book" / "moved.yml").write_text(f"{old}: {new}\n")
    moved._write(app, None)
    written = (app.outdir / f"{old}.html").read_text()
    found = {*re.findall(r'url=([^"]+)"|href="([^"]+)"', written)}
    addresses = {one for both in found for one in both if one}
    here = f"https://book.example/{old}.html"
    assert {urljoin(here, one) for one in addresses} == {f"https://book.example/{new}.html"}


def test_an_address_that_leads_nowhere_is_refused_by_name(app: Any) -> None:
    (app.srcdir / "book" / "moved.yml").write_text("executed/old: executed/gone\n")
    with pytest.raises(ValueError, match="leads from executed/old to executed/gone, which is not"):
        moved._write(app, None)


def test_every_page_that_moved_leads_to_a_page_of_the_book_and_none_is_both() -> None:
    import yaml

    addresses = yaml.safe_load((ROOT / "book" / "moved.yml").read_text())
    toc = (ROOT / "_toc.yml").read_text()
    pages = set(re.findall(r"file: (\S+)", toc))
    assert set(addresses.values()) <= pages
    assert not set(addresses) & pages
