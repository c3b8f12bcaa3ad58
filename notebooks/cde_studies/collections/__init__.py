"""The collections that the book reads from installed packages: `pydocs` and `manuals`."""
