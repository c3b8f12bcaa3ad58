"""A page whose collections, queries and documents are named to break it shows them as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from toy_book import ToyBook

pytestmark = pytest.mark.slow

#: what HTML, a template, MyST, MathJax, a spreadsheet or the eye would obey
HOSTILE = (
    "<script>document.title = 'obeyed'</script>",
    "</div></details></section>",
    "<img src=x onerror=alert(1)>",
    "{{ 4321 * 9 }}{% raw %}",
    "{doc}`x`",
    "{cite}`nobody2020`",
    "[a](javascript:alert(1))",
    "$$x$$",
    "$\\undefined{",
    "```{note}",
    "w" * 300,
    "a\u202eb\u202cc",
    "=1+1",
    "&lt;b&gt;",
)
BODY = f"""import pandas as pd
from IPython.display import display

from cde.data import RetrievalSet
from cde_book import charts, page, plots

texts = {HOSTILE!r}
frame = pd.DataFrame({{"collection": texts, "score": range(len(texts))}})
display(plots.table(frame.rename(columns={{"score": texts[0]}})))
display(plots.table(frame.set_index("collection")))
display(page.folded(texts[0], plots.table(frame)))
with plots.figure(height=6) as (drawing, axes):
    charts.seed_dots(axes, {{text: {{"": [float(len(text))]}} for text in texts}}, "score")
    shown = plots.show(drawing, " ".join(texts), frame, answers=texts[0])
display(shown)
page.show_source(f"{{texts[0]}}, not computed here. {{' '.join(texts)}}")
display(page.in_numbers(" ".join(texts)))
print(RetrievalSet(["d"], [texts[0]], ["q"], [texts[1]], {{"q": {{"d": 1}}}}, name=texts[0]))
print(*texts)"""


class Tags(HTMLParser):
    """A page's text, and what it would run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text, self.run = "", []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.run += [f"{tag} {name}={value}" for name, value in attrs if name.startswith("on")]
        self.run += [
            f"{tag} {value}" for _, value in attrs if (value or "").startswith("javascript:")
        ]

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.run.append(data)
        else:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass


def test_hostile_texts_are_shown_and_not_obeyed(tmp_path: Path, private_cache: Path) -> None:
    book = ToyBook(tmp_path / "toy")
    book.write(hostile=BODY)
    source = book.root / "notebooks" / "toys" / "hostile.py"
    answer = 'page.answer(" ".join(texts))'
    source.write_text(re.sub(r"page\.answer\(.*\)", answer, source.read_text()))
    built = book.cde("book", "--profile", "smoke")
    assert built.returncode == 0, built.stdout + built.stderr
    page = Tags()
    page.feed(book.page("hostile"))
    assert not [one for one in page.run if "obeyed" in one or "alert" in one]
    for text in HOSTILE:
        assert text in page.text, text
    assert "38889" not in page.text
