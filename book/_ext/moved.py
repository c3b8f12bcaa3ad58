"""Pages whose content stands on another page now: the old address leads there.

`book/moved.yml` has the pages, old and new.
"""

from pathlib import Path

import yaml

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<meta http-equiv="Refresh" content="0; url={address}">
</head>
<body><p>This page is now part of <a href="{address}">another</a>.</p></body>
</html>
"""


def _write(app, error):
    if error is not None or app.builder.format != "html":
        return
    listed = Path(app.srcdir) / "book" / "moved.yml"
    moved = yaml.safe_load(listed.read_text("utf-8")) if listed.is_file() else None
    for old, new in (moved or {}).items():
        page = Path(app.outdir) / f"{old}.html"
        if not (Path(app.outdir) / f"{new}.html").is_file():
            raise ValueError(f"book/moved.yml leads from {old} to {new}, which is not a page")
        page.parent.mkdir(parents=True, exist_ok=True)
        address = app.builder.get_relative_uri(old, new)
        page.write_text(_PAGE.format(address=address), "utf-8")


def setup(app):
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
