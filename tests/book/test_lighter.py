"""Pages lose what they do not use, and nothing that they do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import lighter

ICONS = (
    'var a={bars:[448,512,["navicon"],"f0c9","M0 96"],"angle-left":[320,512,[8249],"f104","M41"],'
    'moon:[384,512,[127769],"f186",["M1","M2"]],rocket:[512,512,[],"f135","M156"]};use(a)'
)
SEARCH = "".join(
    f'<script src="{{up}}{name}.js"></script>\n'
    for name in ("_static/searchtools", "_static/language_data", "searchindex", "_static/own")
)


def test_a_built_book_has_its_icons_and_searches_on_the_page_of_the_search(tmp_path: Path) -> None:
    (tmp_path / "_static" / "scripts").mkdir(parents=True)
    (tmp_path / "_static" / "scripts" / "fontawesome.js").write_text(ICONS)
    (tmp_path / "_static" / "button.js").write_text('icon("fa-moon")')
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "page.html").write_text(f'{SEARCH.format(up="../")}<i class="fa-navicon">')
    (tmp_path / "search.html").write_text(SEARCH.format(up=""))
    app = SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=tmp_path)
    for _ in range(2):  # a second build finds what the first has left
        lighter._lighten(app, None)
        page = (tmp_path / "book" / "page.html").read_text()
        assert page == '<script src="../_static/own.js"></script>\n<i class="fa-navicon">'
        assert (tmp_path / "search.html").read_text() == SEARCH.format(up="")
        icons = (tmp_path / "_static" / "scripts" / "fontawesome.js").read_text()
        assert icons.startswith("var a={") and icons.endswith("};use(a)")
        kept = [one in icons for one in ("bars", "moon", "rocket", "angle-left")]
        assert kept == [True, True, False, False], "an icon stays under its other name, too"
