"""The drawing that a reader moves holds every state that its script can be asked for."""

from __future__ import annotations

import html
import json
import re

from cde_book.slider import Reading, context_slider

QUESTION = "Is <b> bold?"
CORPUS = ["A red boat.", 'The "blue" <boat>.']
READINGS = [Reading((0.1 * n, 0.5), (0.25, 0.125 * n)) for n in range(3)]


def test_each_number_of_documents_has_its_place_and_its_scores_and_texts_stay_texts() -> None:
    of, axes = "harbour", ("red", "blue")
    shown = context_slider(QUESTION, {of: CORPUS}, {of: READINGS}, {of: [1, 0]}, {of: 1}, axes)
    assert "<b> bold" not in shown.markup and "<boat>" not in shown.markup
    found = re.search(r'<div class="cde-slider" hidden data-drawn="([^"]*)"', shown.markup)
    assert found is not None, "without scripts nothing is shown"
    drawn = json.loads(html.unescape(found[1]))["corpora"]["harbour"]
    assert drawn["documents"] == CORPUS
    assert (drawn["order"], drawn["answer"]) == ([1, 0], 1)
    assert drawn["places"] == [[0.0, 0.5], [0.1, 0.5], [0.2, 0.5]]
    assert drawn["scores"] == [[0.25, 0.0], [0.25, 0.125], [0.25, 0.25]]
