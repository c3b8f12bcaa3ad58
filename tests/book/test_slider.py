"""The drawing that a reader moves holds every state that its script can be asked for."""

from __future__ import annotations

import html
import json
import re

from cde_book.slider import Reading, context_slider

QUESTION = "Is <b> bold?"
CORPUS = ["A red boat.", 'The "blue" <boat>.']
READINGS = [Reading((0.1 * n, 0.5), (0.25, 0.125 * n)) for n in range(3)]


def slider(order: list[int], readings: list[Reading]) -> str:
    of = "harbour"
    axes = ("red", "blue")
    return context_slider(QUESTION, {of: CORPUS}, {of: readings}, {of: order}, {of: 1}, axes).markup


def test_each_number_of_documents_has_its_place_and_its_scores() -> None:
    found = re.search(r'data-drawn="([^"]*)"', slider([1, 0], READINGS))
    assert found is not None
    drawn = json.loads(html.unescape(found[1]))["corpora"]["harbour"]
    assert drawn["documents"] == CORPUS
    assert (drawn["order"], drawn["answer"]) == ([1, 0], 1)
    assert drawn["places"] == [[0.0, 0.5], [0.1, 0.5], [0.2, 0.5]]
    assert drawn["scores"] == [[0.25, 0.0], [0.25, 0.125], [0.25, 0.25]]


def test_texts_stay_texts_and_without_scripts_nothing_is_shown() -> None:
    markup = slider([1, 0], READINGS)
    assert "<b> bold" not in markup and "<boat>" not in markup
    assert re.search(r'<div class="cde-slider" hidden ', markup)
