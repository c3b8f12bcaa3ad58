"""Markup: the Jinja2 templates of the folder `templates`, filled with what a page says.

A template `*.html.j2` escapes every value. One of Markdown, `*.md.j2`, inserts values as they are,
and includes one of HTML where it needs a table. A value that a template names and is not given is
an error.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

__all__ = ["render"]


def _fence(text: str) -> str:
    """What fences a text in Markdown: four backticks, or one more than any row of them in it."""
    return "`" * max([4, *(len(row) + 1 for row in re.findall("`+", text))])


def _quoted(value: Any) -> str:
    """A parameter's value as one word of a shell's command line."""
    return shlex.quote(value if isinstance(value, str) else json.dumps(value))


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=select_autoescape(enabled_extensions=("html.j2",)),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters["fence"] = _fence
_ENVIRONMENT.filters["quoted"] = _quoted


def render(template: str, **values: Any) -> str:
    """Fill a template.

    Args:
        template: the name of a file in `cde/book/templates`.
        values: what the template names.

    Returns:
        Markdown or HTML, as the template's name says.

    Raises:
        jinja2.TemplateNotFound: there is no such template.
        jinja2.UndefinedError: the template names a value that was not given.

    Example:
        >>> render("status_table.md.j2", rows=[]).splitlines()[0]
        '| chapter | verdicts | seconds | GiB | commit |'
    """
    return _ENVIRONMENT.get_template(template).render(values)
