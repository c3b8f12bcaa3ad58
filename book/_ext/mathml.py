"""Formulas as MathML, made at build time: no script to fetch, readable offline and by screen
readers.
"""

import html

import latex2mathml.converter
from docutils.nodes import SkipNode


def _inline(self, node):
    self.body.append(latex2mathml.converter.convert(node.astext()))
    raise SkipNode


def _display(self, node):
    formula = latex2mathml.converter.convert(node.astext(), display="block")
    name = f' id="{html.escape(node["ids"][0])}"' if node.get("ids") else ""
    self.body.append(f'<div class="math"{name}>{formula}</div>')
    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
