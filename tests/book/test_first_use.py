"""A term of the glossary is linked where a page first uses it, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from first_use import link_first_uses


def linked(source: str, *terms: str) -> dict[str, list[str]]:
    """Which words of a page become links, by the term that they lead to."""
    doctree: Any = publish_doctree(source, settings_overrides={"report_level": 5})
    link_first_uses(doctree, {term: f"glossary#{term}" for term in terms})
    found: dict[str, list[str]] = {}
    for link in doctree.findall(nodes.reference):
        if "cde-term" in link["classes"]:
            found.setdefault(link["refuri"].partition("#")[2], []).append(link.astext())
    return found


def test_only_the_first_use_is_a_link_whatever_its_case_or_number() -> None:
    page = "Queries are short.\n\nA query, and another query. A corpus; the CORPUS."
    assert linked(page, "query", "corpus") == {"query": ["Queries"], "corpus": ["corpus"]}


@pytest.mark.parametrize(
    "page",
    [
        "A corpus\n========\n\nText.\n\nThe corpus\n----------\n\nText.",
        "Some ``corpus`` here.",
        "::\n\n  corpus = load()",
        ".. code-block:: python\n\n  corpus = load()",
        "See `the corpus <page.html>`_.",
        "**The corpus is read.**",
        ".. math:: corpus",
        ".. raw:: html\n\n  <p>corpus</p>",
        "=======  ====\ncorpus   text\n=======  ====\na        b\n=======  ====",
        ".. figure:: x.svg\n\n   The corpus.",
        ".. corpus",
        "A sub-corpus, a corpus-wide thing, corpus–corpus, corpuscles.",
        "The paper is called Embedding a Corpus.",
    ],
)
def test_nothing_else_than_prose_is_linked(page: str) -> None:
    assert linked(page, "corpus") == {}


def test_the_words_of_a_page_stay_what_they_were() -> None:
    page = "A query finds documents of a corpus. Queries (many) find *documents*, ``x``."
    before: Any = publish_doctree(page)
    after: Any = publish_doctree(page)
    link_first_uses(after, {"query": "a", "document": "b", "corpus": "c"})
    assert after.astext() == before.astext()
    assert len(list(after.findall(nodes.reference))) == 3
