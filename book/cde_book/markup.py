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
#: a code span on one line, or where a tag, a comment or an address in angle brackets may begin
_CODE_OR_TAG = re.compile(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)|<(?=[A-Za-z/!?])")
#: a hyphen that stands for a minus sign
_HYPHEN = re.compile(r"(?<![\w.-])-(?=\d)")
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


def with_minus(value: Any) -> str:
    """A text whose numbers below zero have a minus sign, as they have in figures."""
    return _HYPHEN.sub("−", str(value))


def inert(markdown: str) -> str:
    """Markdown whose HTML is shown as text: outside of code, or if need be everywhere."""
    mended = _CODE_OR_TAG.sub(lambda found: found[0] if found[1] else "&lt;", markdown)
    every = (one for block in _MARKDOWN.parse(mended) for one in (block, *(block.children or ())))
    is_obeyed = any(one.type in ("html_block", "html_inline") for one in every)
    return markdown.replace("<", "&lt;") if is_obeyed else mended


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
_ENVIRONMENT.filters.update(
    fence=_fence, literal=_literal, minus=with_minus, quoted=_quoted, style=_style
)


def render(template: str, **values: Any) -> str:
    """Fill a template."""
    return _ENVIRONMENT.get_template(template).render(values)
