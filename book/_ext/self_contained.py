"""Keep the pages free of scripts that are fetched from elsewhere, or serve a feature that is off.

Jupyter Book loads the extension for Thebe (live code, over the network) whether it is used or not;
its inline script is written twice and the second copy is an error in the console of every page.
"""


def _is_wanted(script):
    body = getattr(script, "attributes", {}).get("body") or ""
    return "://" not in str(getattr(script, "filename", script)) and "thebe" not in body.lower()


def _drop_scripts(app, pagename, templatename, context, doctree):
    wanted = [script for script in context.get("script_files", []) if _is_wanted(script)]
    context["script_files"] = wanted


def setup(app):
    app.connect("html-page-context", _drop_scripts, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
