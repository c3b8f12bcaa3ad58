"""Names for clusters: the words that their texts hold more often than the others (clustering paper
§4.4 and App. B).

The paper finds topics in a few members of each cluster. `telling_terms` gives words to look at, by
one rule for all clusters. For each cluster and each word it counts the texts that hold the word,
inside and outside. The word's score is the logarithm of the odds ratio of the two, in units of its
standard error. So a word has to be frequent inside as well as rare outside.

One half is added to each of the four counts, as Haldane and Anscombe do, so that a word that is
missing on one side has a finite score too. scikit-learn splits texts into words, in lower case, and
drops English stop words. Numbers and single letters are not words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cde.validation import Positions

#: two characters or more, one of them a letter
_WORD = r"(?u)\b(?=\w*[^\W\d_])\w\w+\b"


def telling_terms(texts: Sequence[str], labels: Positions, count: int = 8) -> list[list[str]]:
    """The words that tell a cluster's texts from those of the other clusters (clustering paper §4.4
    and App. B).

    Returns:
        A list for each number from 0 to the largest label, the most telling word first; equally
        telling ones stand in the order of the alphabet. A word is listed only if a larger share of
        texts holds it inside than outside. So no word that all texts hold is listed, and a cluster
        without texts, or with all of them, has none.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(
        binary=True, stop_words="english", token_pattern=_WORD, dtype=np.int64
    )
    held = counter.fit_transform(texts)
    terms = counter.get_feature_names_out()
    of_all, total = np.asarray(held.sum(axis=0)).ravel(), len(texts)
    listed = []
    for cluster in range(int(labels.max()) + 1):
        members = labels == cluster
        size = int(members.sum())
        inside = np.asarray(held[members].sum(axis=0)).ravel()
        outside = of_all - inside
        counts = np.array([inside, size - inside, outside, total - size - outside]) + 0.5
        odds_ratio = counts[0] * counts[3] / (counts[1] * counts[2])
        score = np.log(odds_ratio) / np.sqrt((1 / counts).sum(axis=0))
        score[inside * (total - size) <= outside * size] = -np.inf  # no larger share inside
        best = np.argsort(-score, kind="stable")[:count]
        listed.append([str(term) for term in terms[best[np.isfinite(score[best])]]])
    return listed
