"""A page whose collections, queries and documents are named to break it shows them as text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
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


def test_hostile_texts_are_shown_and_not_obeyed(tmp_path: Path, private_cache: Path) -> None:
    book = ToyBook(tmp_path / "toy")
    book.write(hostile=BODY)
    source = book.root / "notebooks" / "toys" / "hostile.py"
    answer = 'page.answer(" ".join(texts))'
    source.write_text(re.sub(r"page\.answer\(.*\)", answer, source.read_text()))
    built = book.cde("book", "--profile", "smoke")
    assert built.returncode == 0, built.stdout + built.stderr
    page = BeautifulSoup(book.page("hostile"), "html.parser")
    attributes = [f"{name}={value}" for tag in page(True) for name, value in tag.attrs.items()]
    run = [script.get_text() for script in page("script")]
    run += [one for one in attributes if re.match("on|[^=]*=javascript:", one)]
    assert not [one for one in run if "obeyed" in one or "alert" in one]
    shown = page.get_text()
    for text in HOSTILE:
        assert text in shown, text
    assert "38889" not in shown
