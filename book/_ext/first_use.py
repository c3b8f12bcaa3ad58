"""A term of the glossary is a link where a page first uses it.

On chapters, the parts' opening pages and the page of what was learned, in running prose alone: not
in headings, code, formulas, links, tables, captions or raw HTML. Case does not matter, a plural
counts as the term, a longer term goes before a shorter one within it, and each is linked once a
page. Two things are never linked: a term whose name has a word in parentheses, such as "gate (of a
claim)", since prose uses its word for other things too; and a word with a capital within a
sentence, which is part of a name.

Cost: one regular expression over a page's prose.
"""

import re

from docutils import nodes

GLOSSARY = "book/glossary"
#: pages whose prose is linked
PAGES = ("book/executed/", "book/parts/", "book/learned")
_LEFT_ALONE = (
    nodes.title,
    nodes.rubric,
    nodes.reference,
    nodes.literal,
    nodes.literal_block,
    nodes.FixedTextElement,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.table,
    nodes.caption,
    nodes.figure,
    nodes.image,
    nodes.term,
    nodes.strong,
    nodes.footnote,
    nodes.citation,
    nodes.topic,
    nodes.Invisible,
)


def spellings(term):
    """A term as a regular expression, with its plain plural; any white space may part its words."""
    words = r"\s+".join(re.escape(word) for word in term.split())
    return f"{words[:-1]}(?:y|ies)" if term.endswith("y") else f"{words}s?"


def pattern_of(terms):
    """What finds a term in prose; None if there is no term."""
    plain = sorted((term for term in terms if "(" not in term), key=len, reverse=True)
    if not plain:
        return None
    spelt = "|".join(f"({spellings(term)})" for term in plain)
    return plain, re.compile(rf"(?<![\w@–-])(?:{spelt})(?![\w@–-])", re.IGNORECASE)


def link_first_uses(doctree, addresses):
    """Make links of the first uses of terms in a page.

    Args:
        doctree: the page; changed in place.
        addresses: term → where its link leads.
    """
    found = pattern_of(addresses)
    if found is None:
        return
    terms, pattern = found
    used = set()
    for text in list(doctree.findall(nodes.Text)):
        if _is_prose(text):
            parts = _linked(text.astext(), terms, pattern, addresses, used)
            if len(parts) > 1:
                text.parent.replace(text, parts)


def _is_prose(text):
    node = text.parent
    while node is not None:
        if isinstance(node, _LEFT_ALONE) or "cell_output" in node.get("classes", ()):
            return False
        node = node.parent
    return True


def _linked(text, terms, pattern, addresses, used):
    """The pieces of a text: words as they were, and links of terms that the page had not used."""
    parts, end = [], 0
    for match in pattern.finditer(text):
        term = terms[match.lastindex - 1]
        if term in used or _is_name(term, match):
            continue
        used.add(term)
        link = nodes.reference("", "", internal=True, refuri=addresses[term])
        link["classes"].append("cde-term")
        link += nodes.inline("", match[0])
        parts += [nodes.Text(text[end : match.start()]), link]
        end = match.end()
    return [part for part in [*parts, nodes.Text(text[end:])] if part.astext()] or [nodes.Text("")]


def _is_name(term, match):
    """Whether a capital within a sentence makes a name of it: "Contextual Document Embeddings"."""
    before = match.string[: match.start()].rstrip()
    starts = not before or before[-1] in ".!?:"
    return term[0].islower() and match[0][0].isupper() and not starts


def _terms(env):
    """The glossary's terms, each with its anchor."""
    known = env.get_domain("std").get_objects()
    return {
        name: anchor
        for name, _, kind, page, anchor, _ in known
        if kind == "term" and page == GLOSSARY
    }


def _link_page(app, doctree, docname):
    if docname.startswith(PAGES) and GLOSSARY in app.env.all_docs:
        page = app.builder.get_relative_uri(docname, GLOSSARY)
        anchors = _terms(app.env)
        link_first_uses(doctree, {term: f"{page}#{anchor}" for term, anchor in anchors.items()})


def _changed(app, env):
    """Every linked page is written again where the glossary has other terms than last time."""
    terms, before = _terms(env), getattr(env, "cde_glossary", None)
    env.cde_glossary = terms
    return [name for name in env.all_docs if name.startswith(PAGES)] if terms != before else []


def setup(app):
    app.connect("doctree-resolved", _link_page, priority=900)  # what are links by then stay so
    app.connect("env-updated", _changed)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
