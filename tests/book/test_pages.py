"""What a page says is shown as text: signs of HTML or Markdown in it do not become markup."""

from __future__ import annotations

import html
from dataclasses import replace

import myst_nb
import nbformat
import pytest
from markdown_it import MarkdownIt

from cde_book import page, reproducibility
from cde_book.chapters import find_chapter
from cde_book.checkout import project_root
from cde_book.execution import Execution
from cde_book.ledger import ledger
from cde_book.ledger_pages import Judged, claims_page
from cde_book.markup import inert, render
from cde_book.pages import chapter_notebook
from cde_book.verdicts import Verdict

HOSTILE = '<script>alert("it\'s & it was")</script>'


def test_a_hostile_wording_is_escaped_in_the_table_of_claims() -> None:
    claim = replace(next(iter(ledger().values())), wording=HOSTILE, place=f'"{HOSTILE}')
    page = claims_page("smoke", [Judged(claim, Verdict("not tested", ""), [], [])])
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(&#34;it&#39;s &amp; it was&#34;)&lt;/script&gt;") == 2


@pytest.mark.parametrize("fence", ["", "```", "````", "`````", "`" * 9])
def test_a_hostile_error_stays_within_the_box_of_the_failure(fence: str) -> None:
    error = f"cell 3: ValueError: {HOSTILE}\n{fence}\n{HOSTILE}"
    log = Execution("toy", "smoke", error=error)
    markdown = MarkdownIt("commonmark")
    (box,) = markdown.parse(render("failure.md.j2", log=log))
    assert box.info == "{danger}"
    *sentence, traceback = markdown.parse(box.content)
    assert [token.type for token in sentence] == ["paragraph_open", "inline", "paragraph_close"]
    assert {token.type for token in sentence[1].children or ()} <= {"text", "text_special"}
    assert HOSTILE in "".join(token.content for token in sentence[1].children or ())
    assert traceback.info == "text" and traceback.content == f"{error}\n"


MARKDOWN_WITH_HTML = (
    f"of {HOSTILE} and *more*",
    f"of `{HOSTILE}` and {HOSTILE}",
    f"\\`{HOSTILE} `",
    f"`` ` {HOSTILE}",
    "<img src=x onerror=alert(1)>",
    "<!-- a --><b\nstyle='x'>",
    "<https://a.b>",
    f"<scr{HOSTILE}ipt>",
    f"```\n{HOSTILE}\n```\n{HOSTILE}",
    f"    {HOSTILE}\n\n{HOSTILE}",
)


def html_of(markdown: str) -> list[str]:
    tokens = MarkdownIt("commonmark").parse(markdown)
    every = [one for token in tokens for one in (token, *(token.children or ()))]
    return [one.content for one in every if one.type in ("html_inline", "html_block")]


@pytest.mark.parametrize("text", MARKDOWN_WITH_HTML)
def test_html_in_an_answer_is_shown_and_not_obeyed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "badges", lambda: "")
    shown = page.in_numbers(text).data
    assert not html_of(shown)
    shown = MarkdownIt("commonmark").render(shown)
    assert html.unescape(shown).count("<script>") - shown.count("<script>") == text.count(
        "<script>"
    )
    monkeypatch.setattr(myst_nb, "glue", lambda name, value: None)
    page.answer(text)
    assert not html_of(page.account.answer)


def test_roles_and_dollars_of_an_answer_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection may be named so; what an author writes as code stays code."""
    text = "{doc}`x` of $a$ and `$CDE_DATA` with {cite:p}`y`, `{z}` and *{w}*"
    shown = page.in_numbers(text).data
    assert "{doc}" not in shown and "{cite:p}" not in shown and shown.count("$") == 1
    assert html.unescape(shown) == text
    assert "<code>$CDE_DATA</code>" in MarkdownIt("commonmark").render(shown)


def test_what_is_no_html_stays_as_it_is() -> None:
    text = "*Ahead* by 0.5 at p < 0.05, `a<b>c`, [a link](there), a > b, x<3"
    assert inert(text) == text


def test_a_hostile_name_of_a_collection_stays_text_on_the_page_of_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"folder:/x` | {HOSTILE} | `[y](javascript:z) <b>"
    told = f"yours {HOSTILE}"
    one = {"name": name, "fingerprints": ["0123"], "chapters": 1, "licence": told}
    monkeypatch.setattr(reproducibility, "collections", lambda logs: [one])
    text = reproducibility.reproducibility_page("a profile of nobody", project_root(), [])
    (row,) = [line for line in text.splitlines() if line.startswith("| <code>")]
    assert html_of(row) == ["<code>", "</code>"]
    assert html.unescape(row).count("|") - row.count("|") == 2 and row.count("|") == 5
    rendered = (
        MarkdownIt("commonmark").enable("table").render(f"| a | b | c | d |\n|-|-|-|-|\n{row}")
    )
    assert html.unescape(rendered).count(name) == 1 and "<a" not in rendered


@pytest.mark.parametrize(("discovery", "shown"), [(0.01, False), (0.12, True)])
def test_a_verdict_that_the_correction_undoes_is_marked_below_the_answer(
    discovery: float, shown: bool
) -> None:
    chapter = find_chapter("headroom")
    claim = next(one for one in ledger().values() if one.chapter == chapter.name)
    entry = Judged(claim, Verdict("holds", "", "laptop"), [], [chapter], discovery)
    log = Execution(chapter.name, "laptop", answer="Yes.")
    raw = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title")])
    own = [entry] if entry.is_fragile else []
    page = chapter_notebook(chapter, raw, log, own).cells[0].source
    assert ("1 decided, but not after correction" in page) is shown
    assert (html.escape(claim.wording) in page) is shown
