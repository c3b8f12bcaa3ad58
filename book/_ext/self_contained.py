"""Keep the pages free of scripts that are fetched from elsewhere, or serve a feature that is off.

Jupyter Book loads the extension for Thebe (live code, over the network) whether it is used or not;
its inline script is written twice and the second copy is an error in the console of every page. The
style of cards and tabs stays where a page has some.
"""

#: of cards and tabs, whose elements all have a class that begins so
_DESIGN, _SIGN = ("sphinx-design", "design-tabs"), 'class="sd-'


def _is_wanted(asset, page):
    body = getattr(asset, "attributes", {}).get("body") or ""
    name = str(getattr(asset, "filename", asset))
    if "://" in name or "thebe" in f"{name} {body}".lower():
        return False
    return _SIGN in page or not any(one in name for one in _DESIGN)


def _drop_assets(app, pagename, templatename, context, doctree):
    page = context.get("body") or ""
    for kind in ("script_files", "css_files"):
        context[kind] = [one for one in context.get(kind, []) if _is_wanted(one, page)]


def setup(app):
    app.connect("html-page-context", _drop_assets, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
