"""The book: what a chapter calls, and what finds, executes and renders chapters.

What a chapter calls:

- `cde_book.page`: settings, experiments, the answer;
- `cde_book.parameters`: what a chapter's parameters may be;
- `cde_book.claims`: gates, measurements and verdicts;
- `cde_book.gates`: the gates that chapters of results measure;
- `cde_book.plots`: figures and tables;
- `cde_book.boxes`: where numbers come from, settings as a table;
- `cde_book.differences`: arms compared at every profile;
- `cde_book.sketches`: drawings that explain;
- `cde_book.records`: committed numbers, and the proof that they still stand.

What decides:

- `cde_book.ledger`: the papers' claims, their rules, and since when they are fixed;
- `cde_book.verdicts`: from measurements to a verdict, by rule alone;
- `cde_book.simulation`: what each rule could have said.

What the command calls:

- `cde_book.chapter_run`: `cde run`;
- `cde_book.commands`: what the other subcommands do;
- `cde_book.chapters`: the notebooks and their parameters;
- `cde_book.execution`: one chapter through jupytext and papermill, and whether its page is fresh;
- `cde_book.comparison`: runs of one chapter side by side;
- `cde_book.ledger_pages`: *Claims*, *How verdicts are decided*, *Map*;
- `cde_book.forest`: intervals drawn on one scale;
- `cde_book.thumbnails`: the chapters' figures as files, for pages that show them small;
- `cde_book.reproducibility`: *Reproducibility*;
- `cde_book.own_code`: whether a rendered page holds code that is not the book's;
- `cde_book.markup`: the templates that pages are made of;
- `cde_book.pages`: executed notebooks and the ledger made into pages;
- `cde_book.public_names`: the names of the package, read from its sources;
- `cde_book.reference`: the pages of those names, and the links between them and the chapters;
- `cde_book.rendering`: Jupyter Book, and checks of the HTML.
"""
