"""The book: find chapters, execute the stale ones, render the pages.

- `cde.book.chapters`: the notebooks and their parameters;
- `cde.book.execution`: one chapter through jupytext and papermill, and whether its page is fresh;
- `cde.book.pages`: executed notebooks and the ledger made into pages;
- `cde.book.rendering`: Jupyter Book, and checks of the HTML.
"""
