"""What the page *Reproducibility* adds up is what the logs hold."""

from __future__ import annotations

from typing import Any

import pytest
from bs4 import BeautifulSoup

from cde_book import reproducibility
from cde_book.chapters import Chapter, chapters
from cde_book.checkout import project_root
from cde_book.execution import Execution
from cde_book.reproducibility import collections, reproducibility_page
from cde_studies.collections.pydocs import PACKAGES

ROOT = project_root()


def log(seconds: float, data: dict[str, str], device: str = "a machine") -> Execution:
    of: dict[str, Any] = {"data": data, "device": device, "commit": "c0ffee00", "dirty": True}
    return Execution("toy", "laptop", seconds=seconds, **of)


LOGS = [
    log(100, {"pydocs": "aa", "beir/scifact": "bb"}),
    log(50, {"pydocs": "aa", "pydocs/rich": "cc"}),
    log(30, {"pydocs": "dd"}, "another machine"),
]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> str:
    """The page where the first three chapters have run."""
    ran = dict(zip([chapter.name for chapter in chapters()], LOGS, strict=False))

    def load(chapter: Chapter, *_: Any) -> Execution | None:
        return ran.get(chapter.name)

    monkeypatch.setattr(reproducibility, "load_execution", load)
    return reproducibility_page("laptop", ROOT, [])


def cells(page: str, place: int) -> list[list[str]]:
    """The rows of a table of the page."""
    table = BeautifulSoup(page, "html.parser").select("table")[place]
    return [[cell.get_text() for cell in row("td")] for row in table.select("tbody tr")]


def test_each_collection_stands_once_with_every_fingerprint_that_was_loaded() -> None:
    found = {one["name"]: one for one in collections(LOGS)}
    assert sorted(found) == ["beir/scifact", "pydocs", "pydocs/rich"]
    assert found["pydocs"]["fingerprints"] == ["aa", "dd"] and found["pydocs"]["chapters"] == 3
    assert found["pydocs/rich"]["licence"] == "MIT"
    assert found["beir/scifact"]["licence"].startswith("yours")


def test_every_package_of_the_default_data_has_a_version_and_a_licence(page: str) -> None:
    rows = cells(page, 0)
    assert [name for name, *_ in rows] == list(PACKAGES)
    assert all(version[0].isdigit() and text != "none declared" for _, version, text, _ in rows)
