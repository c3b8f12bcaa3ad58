"""Repairs of markup that Sphinx writes and that a screen reader cannot make sense of.

The parameters of a long signature stand in a list of definitions without terms, and the
bibliography in a list whose entries have a role that may not stand in a list. What folds a part of
the sidebar has a sign and no name.
"""

import re
from pathlib import Path

_PARAMETERS = re.compile(
    r'<dl>\s*((?:<dd><em class="sig-param">.*?</dd>\s*|<dd>[*/],?</dd>\s*)+)</dl>', re.DOTALL
)
_FOLD = '<summary><span class="toctree-toggle"'


def _as_lines(match):
    lines = match[1].replace("<dd>", '<span class="cde-parameter">').replace("</dd>", "</span>")
    return f'<span class="cde-parameters">{lines}</span>'


def _repair(app, pagename, templatename, context, doctree):
    body = context.get("body")
    if body:
        body = _PARAMETERS.sub(_as_lines, body)
        body = body.replace(
            '<div role="list" class="citation-list">', '<div class="citation-list">'
        )
        context["body"] = body.replace(' role="doc-biblioentry"', "")


def _name_folds(app, exception):
    """The theme's template makes the sidebar, so that it is there once pages are written."""
    if exception is None:
        for path in Path(app.outdir).rglob("*.html"):
            text = path.read_text(encoding="utf-8")
            named = text.replace(
                _FOLD, _FOLD.replace(">", ' aria-label="chapters of this part">', 1)
            )
            if named != text:
                path.write_text(named, encoding="utf-8")


def setup(app):
    app.connect("html-page-context", _repair)
    app.connect("build-finished", _name_folds)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
