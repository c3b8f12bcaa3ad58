"""Code on a rendered page that is not the book's own.

Texts of data, of errors and of parameters stand on pages. Templates and Sphinx escape them; this
check reads the finished page as a browser would, and names whatever could run and is neither a
file of the book nor one of the few lines that the theme of the lock writes. A theme with other
lines fails here until somebody has read them and entered them below.

Cost: one pass over each page.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urlsplit

__all__ = ["foreign_code"]

#: the theme's own lines, blanks drawn together, each page's own name left out
_THEME = frozenset(
    {
        'document.documentElement.dataset.mode = localStorage.getItem("mode") || "auto"; '
        'document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto";',
        "DOCUMENTATION_OPTIONS.pagename = '';",
        "DOCUMENTATION_OPTIONS.search_as_you_type = false;",
        "kernelName = 'python3'",
        "let toggleHintHide = 'Click to hide';",
        "let toggleHintShow = 'Click to show';",
        "let toggleOpenOnPrint = 'true';",
        "var togglebuttonSelector = '.toggle, .admonition.dropdown';",
        "// Activate the search field on page load "
        'let searchInput = document.querySelector("form.bd-search input"); '
        "if (searchInput) { searchInput.focus(); searchInput.select(); "
        'console.log("[PST]: Set focus on search field."); }',
    }
)
_BUTTONS = frozenset({"toggleFullScreen()", "window.print()"})
#: types of a script that a browser runs; it keeps others as data
_RUNS = ("", "module", "text/javascript", "application/javascript")
#: elements that load or run something; none stands in a text of ours
_ACTIVE = ("applet", "base", "embed", "frame", "iframe", "object")
_PAGENAME = re.compile(r"pagename = '[\w./-]*'")
_SCHEME = re.compile(r"(javascript|vbscript):|data:[^,]*(html|script)", re.IGNORECASE)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._script: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "script":
            self._begin(attributes)
        if tag in _ACTIVE:
            self.found.append(f"the element {tag}")
        if tag == "meta" and (attributes.get("http-equiv") or "").lower() == "refresh":
            self._redirection(attributes.get("content") or "")
        for name, value in attributes.items():
            if name.startswith("on") and value not in _BUTTONS:
                self.found.append(f"the attribute {name} of {tag}: {(value or '')[:60]}")
            # a browser reads over blanks and control characters in the name of a scheme
            elif _SCHEME.match(re.sub(r"[\x00-\x20]", "", value or "")):
                self.found.append(f"a script as the address in {name} of {tag}")

    def _begin(self, attributes: dict[str, str | None]) -> None:
        source = attributes.get("src")
        if source is None:
            runs = (attributes.get("type") or "").strip().lower() in _RUNS
            self._script = [] if runs else None
            return
        path = urlsplit(source).path.split("/")
        if not urlsplit(source).netloc and "_static" not in path and path[-1] != "searchindex.js":
            self.found.append(f"the script {source[:60]}, which is no file of the book")

    def _redirection(self, content: str) -> None:
        address = content.partition("=")[2]
        if urlsplit(address).scheme or urlsplit(address).netloc:
            self.found.append(f"a redirection to {address[:60]}")

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self._script.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._script is not None:
            text = _PAGENAME.sub("pagename = ''", " ".join("".join(self._script).split()))
            if text not in _THEME:
                self.found.append(f"a script: {text[:60]}")
            self._script = None


def foreign_code(page: str) -> list[str]:
    """What could run on a page and is not the book's own, one line each."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.found
