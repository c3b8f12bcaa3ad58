"""Markup: the Jinja2 templates of the folder `templates`, filled with what a page says.

A template `*.html.j2` escapes every value. One of Markdown, `*.md.j2`, inserts values as Markdown
in which HTML is shown and not obeyed, and includes one of HTML where it needs a table. So a text
from data cannot become markup of a page. A value that a template names and is not given is an
error.
"""

from __future__ import annotations

import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import jinja2
from jinja2.nodes import EvalContext
from markdown_it import MarkdownIt
from markupsafe import Markup

_MARKDOWN = MarkdownIt("commonmark")
#: where a tag, a comment or an address in angle brackets may begin
_OPENING = re.compile(r"<(?=[A-Za-z/!?])")
#: a text with more of them has each escaped, in code spans, too
_MOST = 50
#: what means something in Markdown's text, or in a table's cell
_SIGNS = {ord(sign): f"&#{ord(sign)};" for sign in "`*_[]{}|\\\n$"}


class Box:
    """HTML, with its text for readers without a browser."""

    def __init__(self, markup: str, text: str) -> None:
        self.markup, self.text = markup, text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.markup, "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text


def _fence(text: str) -> str:
    """What fences a text in Markdown: four backticks, or one more than any row of them in it."""
    return "`" * max([4, *(len(row) + 1 for row in re.findall("`+", text))])


def _quoted(value: Any) -> str:
    """A parameter's value as one word of a shell's command line."""
    return shlex.quote(value if isinstance(value, str) else json.dumps(value))


def _literal(value: Any) -> str:
    """A value as text in Markdown, none of whose signs means anything."""
    return Markup(html.escape(str(value)).translate(_SIGNS))


def _style(verdict: str) -> str:
    """The style class of a verdict."""
    return f"verdict-{verdict.replace(' ', '-')}"


def _tags(markdown: str) -> list[str]:
    every = [one for token in _MARKDOWN.parse(markdown) for one in (token, *(token.children or ()))]
    return [one.content for one in every if one.type in ("html_block", "html_inline")]


def inert(text: str) -> str:
    """Markdown whose HTML is shown as text; nothing else of it changes."""
    places = [match.start() for match in _OPENING.finditer(text)]
    tags = _tags(text) if places else []
    if not tags:
        return text
    mended = text
    for place in reversed(places if len(places) <= _MOST else ()):
        tried = f"{mended[:place]}&lt;{mended[place + 1 :]}"
        if (left := _tags(tried)) != tags:  # it begins no code span's text
            mended, tags = tried, left
    return _OPENING.sub("&lt;", text) if tags else mended


@jinja2.pass_eval_context
def _inserted(context: EvalContext, value: Any) -> Any:
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return inert(value) if plain and not context.autoescape else value


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
    finalize=_inserted,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters.update(fence=_fence, literal=_literal, quoted=_quoted, style=_style)


def render(template: str, **values: Any) -> str:
    """Fill a template."""
    return _ENVIRONMENT.get_template(template).render(values)
