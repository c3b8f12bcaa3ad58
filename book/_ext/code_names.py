"""Names in docstrings lead to their entries in the reference.

A word between single backticks is code; it is a link as well if `cde_book.reference` knows where
it leads. A type or a name of another package stays plain code: there is no network at build time,
so there is nothing to link it to, and nothing to warn of.
"""

import dataclasses
import inspect
import re
import typing

from docutils import nodes, utils
from sphinx import addnodes
from sphinx.util.inspect import stringify_signature
from sphinx.util.nodes import make_refnode

from cde_book.reference import read_reference

_PAGES = "book/generated/reference/"
_ARRAY = re.compile(
    r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[([^\]]*)\]\]"
)


def _name(role, rawtext, text, lineno, inliner, options=None, content=()):
    """The role of what stands between single backticks."""
    text = utils.unescape(text)
    code = nodes.literal(rawtext, text, classes=["xref", "py", "py-obj"])
    docname = inliner.document.settings.env.docname
    if (
        not docname.startswith(_PAGES)
        or not text.removesuffix("()").replace(".", "").isidentifier()
    ):
        return [nodes.literal(rawtext, text)], []
    reference = addnodes.pending_xref(
        rawtext, code, refdomain="py", reftype="obj", reftarget=text, refdoc=docname
    )
    return [reference], []


def _process_docstring(app, what, name, thing, options, lines):
    text, entry = "\n".join(lines), read_reference().paths.get(name)
    if entry is not None and entry.path != name:
        first, _, rest = text.partition("\n\n")
        text = f"{first}\n\nImported as ``{entry.path}``.\n\n{rest}"
    lines[:] = text.splitlines()


def _without_checks(thing):
    """The signature of a dataclass without what is checked beyond the types of its fields."""
    try:
        hints = typing.get_type_hints(thing)
    except (NameError, TypeError):  # of a type that only type checkers know
        return None
    signature = inspect.signature(thing)
    arguments = [
        one.replace(annotation=hints.get(one.name, one.annotation))
        for one in signature.parameters.values()
    ]
    whole = signature.replace(parameters=arguments, return_annotation=signature.empty)
    return stringify_signature(whole, unqualified_typehints=True)


def _process_signature(app, what, name, thing, options, signature, returned):
    """As the source has it: arrays by their short name, and no arguments where a protocol or a
    class that only passes them on has none of its own.
    """
    if signature == "(*args, **kwargs)" and what == "class":
        return "", returned
    if dataclasses.is_dataclass(thing) and isinstance(thing, type):
        signature = _without_checks(thing) or signature
    return tuple(
        text and _ARRAY.sub(r"NDArray[\1]", text).replace("<factory>", "...")
        for text in (signature, returned)
    )


def _is_skipped(app, what, name, thing, skip, options):
    """Fields of a named tuple say no more of themselves than that; its docstring does."""
    is_field = str(getattr(thing, "__doc__", "")).startswith("Alias for field number")
    return True if is_field else None


def _resolve(app, env, node, contnode):
    """What Sphinx does not find: a name by another path, or one that is not ours."""
    page = node.get("refdoc", "")
    if node.get("refdomain") != "py" or not page.startswith(_PAGES):
        return None
    path = read_reference().find(node["reftarget"], room=page.removeprefix(_PAGES))
    found = env.get_domain("py").objects.get(path)
    if found is None:
        if isinstance(contnode, nodes.literal):
            contnode["classes"] = []  # plain code
        return contnode
    return make_refnode(app.builder, page, found.docname, found.node_id, contnode, path)


def setup(app):
    app.add_role("name", _name)
    app.connect("autodoc-process-docstring", _process_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", _process_signature)
    app.connect("autodoc-skip-member", _is_skipped)
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
