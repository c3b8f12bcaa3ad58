"""Keep the pages free of scripts that Jupyter Book would fetch from elsewhere when a page opens."""


def _drop_remote_scripts(app, pagename, templatename, context, doctree):
    context["script_files"] = [
        script for script in context.get("script_files", []) if "://" not in str(getattr(script, "filename", script))
    ]


def setup(app):
    app.connect("html-page-context", _drop_remote_scripts, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
