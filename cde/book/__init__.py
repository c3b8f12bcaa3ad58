"""The book: what a chapter calls, and what finds, executes and renders chapters.

What a chapter calls:

- `cde.book.page`: settings, experiments, the answer;
- `cde.book.parameters`: what a chapter's parameters may be;
- `cde.book.claims`: gates, measurements and verdicts;
- `cde.book.gates`: the gates that chapters of results measure;
- `cde.book.plots`: figures and tables;
- `cde.book.boxes`: where numbers come from, settings as a table;
- `cde.book.differences`: arms compared at every profile;
- `cde.book.sketches`: drawings that explain;
- `cde.book.records`: committed numbers, and the proof that they still stand.

What decides:

- `cde.book.ledger`: the papers' claims, their rules, and since when they are fixed;
- `cde.book.verdicts`: from measurements to a verdict, by rule alone;
- `cde.book.simulation`: what each rule could have said.

What the command calls:

- `cde.book.chapter_run`: `cde run`;
- `cde.book.commands`: what the other subcommands do;
- `cde.book.chapters`: the notebooks and their parameters;
- `cde.book.execution`: one chapter through jupytext and papermill, and whether its page is fresh;
- `cde.book.comparison`: runs of one chapter side by side;
- `cde.book.ledger_pages`: *Claims*, *How verdicts are decided*, *Map*;
- `cde.book.forest`: intervals drawn on one scale;
- `cde.book.thumbnails`: the chapters' figures as files, for pages that show them small;
- `cde.book.reproducibility`: *Reproducibility*; `cde.book.reliability`: *Reliability*;
- `cde.book.scale`: *Scale*;
- `cde.book.cost`: *What it costs*; `cde.book.cost_reports`, `cde.book.cost_targets` and
  `cde.book.cost_charts`: what was measured, what was to be reached, and the figures;
- `cde.book.own_code`: whether a rendered page holds code that is not the book's;
- `cde.book.markup`: the templates that pages are made of;
- `cde.book.pages`: executed notebooks and the ledger made into pages;
- `cde.book.public_names`: the names of the package, read from its sources;
- `cde.book.reference`: the pages of those names, and the links between them and the chapters;
- `cde.book.rendering`: Jupyter Book, and checks of the HTML.
"""
