"""A drawing that a reader moves: how a sentence's vector, and the ranking that it makes, change
with each context document that an encoder reads. All that it shows is computed beforehand; the
script in the template only picks it. Without scripts nothing is shown: a figure beside it tells the
same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cde_book.markup import Box, render


class Reading(NamedTuple):
    """What an encoder that has read so many documents of a corpus makes of a question."""

    place: Sequence[float]  #: across and upright
    scores: Sequence[float]  #: of each document, in the corpus' order


def context_slider(
    question: str,
    corpora: Mapping[str, Sequence[str]],
    readings: Mapping[str, Sequence[Reading]],
    orders: Mapping[str, Sequence[int]],
    answers: Mapping[str, int],
    axes: tuple[str, str],
) -> Box:
    """Choose a corpus, drag the number of documents read: none, one, … all.

    `readings` has one for each number, `orders` which documents are read first, `answers` which
    document is right; `axes` name the two coordinates.
    """
    drawn = {
        name: {
            "documents": list(documents),
            "order": [int(one) for one in orders[name]],
            "answer": answers[name],
            "places": [[round(float(x), 3) for x in one.place] for one in readings[name]],
            "scores": [[round(float(x), 3) for x in one.scores] for one in readings[name]],
        }
        for name, documents in corpora.items()
    }
    markup = render(
        "slider.html.j2",
        question=question,
        corpora=list(corpora),
        most=max(map(len, corpora.values())),
        drawn=json.dumps({"corpora": drawn, "axes": axes}),
    )
    return Box(markup, f"A drawing to be moved in a browser: {question}")
