"""Pages carry no more than they use: of two thousand icons the dozen that occur, and the index of
the search on the page of the search alone.

The theme brings every icon twice, as drawings in a script and as letters of a font, which the rules
of a style sheet name: the drawings replace the letters as soon as the page is read. It loads the
search's index on each page although it asks for nothing there until a reader searches.
"""

import re
from pathlib import Path

_ICONS = Path("_static") / "scripts" / "fontawesome.js"
_SHEET = Path("_static") / "styles" / "pydata-sphinx-theme.css"
#: an icon of the script: its name, then width, height, other names, its letter and its outlines
_DRAWN = re.compile(
    r'(?:"([\w-]+)"|\b(\w+)):\[\d+,\d+,\[([^\]]*)\],"[0-9a-f]+",'
    r'(?:"[^"]*"|\[(?:"[^"]*",?)*\])\],?'
)
#: a rule of the sheet that does nothing but set an icon's letter
_LETTER = re.compile(r'(?:\.fa-[\w-]+:before,?)+\{content:"[^"]*"\}')
_CLASS = re.compile(r"\bfa-([\w-]+)")
_SEARCH = re.compile(
    r'[ \t]*<script src="(?:\.\./)*(?:_static/searchtools|_static/language_data|searchindex)\.js"'
    r"></script>\n?"
)


def only_icons(script, used):
    """The script with the icons that are used, by one of their names, and no others."""

    def kept(found):
        names = {found[1] or found[2], *re.findall(r'"([\w-]+)"', found[3])}
        return found[0] if names & used else ""

    return _DRAWN.sub(kept, script)


def without_letters(sheet):
    """The style sheet without the letters of icons, so that no browser fetches their font."""
    return _LETTER.sub("", sheet)


def _lighten(app, error):
    if error is not None or app.builder.format != "html":
        return
    out, used = Path(app.outdir), set()
    for page in out.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        used.update(_CLASS.findall(text))
        lighter = text if page == out / "search.html" else _SEARCH.sub("", text)
        if lighter != text:
            page.write_text(lighter, encoding="utf-8")
    for script in (out / "_static").rglob("*.js"):
        if script != out / _ICONS:
            used.update(_CLASS.findall(script.read_text(encoding="utf-8")))
    for path, lightened in (
        (out / _ICONS, lambda text: only_icons(text, used)),
        (out / _SHEET, without_letters),
    ):
        if path.is_file():
            path.write_text(lightened(path.read_text(encoding="utf-8")), encoding="utf-8")


def setup(app):
    app.connect("build-finished", _lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
