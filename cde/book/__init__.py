"""The book: what a chapter calls, and what finds, executes and renders chapters.

What a chapter calls:

- `cde.book.page`: settings, experiments, the answer;
- `cde.book.claims`: measurements and verdicts;
- `cde.book.plots`: figures and tables;
- `cde.book.sketches`: drawings that explain;
- `cde.book.records`: committed numbers, and the proof that they still stand.

What the command calls:

- `cde.book.chapters`: the notebooks and their parameters;
- `cde.book.execution`: one chapter through jupytext and papermill, and whether its page is fresh;
- `cde.book.markup`: the templates that pages are made of;
- `cde.book.pages`: executed notebooks and the ledger made into pages;
- `cde.book.rendering`: Jupyter Book, and checks of the HTML.
"""
