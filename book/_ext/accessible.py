"""Repairs of markup that Sphinx writes and that a screen reader cannot make sense of.

The parameters of a long signature stand in a list of definitions without terms, and the
bibliography in a list whose entries have a role that may not stand in a list.
"""

import re

_PARAMETERS = re.compile(
    r'<dl>\s*((?:<dd><em class="sig-param">.*?</dd>\s*|<dd>[*/],?</dd>\s*)+)</dl>', re.DOTALL
)


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


def setup(app):
    app.connect("html-page-context", _repair)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
