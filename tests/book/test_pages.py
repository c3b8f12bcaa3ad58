"""What a page says is shown as text: signs of HTML or Markdown in it do not become markup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from cde.book import ledger_pages
from cde.book.execution import Execution
from cde.book.ledger import ledger
from cde.book.ledger_pages import claims_page
from cde.book.pages import failure

HOSTILE = '<script>alert("it\'s & it was")</script>'


def test_a_hostile_wording_is_escaped_in_the_table_of_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = replace(next(iter(ledger().values())), wording=HOSTILE, place=f'"{HOSTILE}')
    monkeypatch.setattr(ledger_pages, "ledger", lambda: {claim.id: claim})
    page = claims_page("smoke", tmp_path)
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(&#34;it&#39;s &amp; it was&#34;)&lt;/script&gt;") == 2


@pytest.mark.parametrize("fence", ["", "```", "````", "`````", "`" * 9])
def test_a_hostile_error_stays_within_the_box_of_the_failure(fence: str) -> None:
    error = f"cell 3: ValueError: {HOSTILE}\n{fence}\n{HOSTILE}"
    log = Execution("toy", "smoke", {}, "today", 1, "", False, "", "", error=error)
    markdown = MarkdownIt("commonmark")
    (box,) = markdown.parse(failure(log))
    assert box.info == "{danger}"
    *sentence, traceback = markdown.parse(box.content)
    assert [token.type for token in sentence] == ["paragraph_open", "inline", "paragraph_close"]
    assert {token.type for token in sentence[1].children or ()} <= {"text", "text_special"}
    assert HOSTILE in "".join(token.content for token in sentence[1].children or ())
    assert traceback.info == "text" and traceback.content == f"{error}\n"
