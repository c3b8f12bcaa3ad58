"""What vectors tell of words: of those in a document, and of how common they are in a corpus.

A linear probe is fitted by ridge regression from vectors of documents of many corpora to whether a
word stands in them. It is linear, so what it reads from the mean vector of a sample is its guess of
each word's document frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from cde.data import RetrievalSet

_LEAST = 3  # documents with a word, and without it, that an area under the curve needs


def probe_words(
    encoder: Any,
    training: Sequence[str],
    corpora: Sequence[RetrievalSet],
    samples: Sequence[int] = (4, 16, 64),
    ridge: float = 1.0,
    seed: int = 0,
) -> pd.DataFrame:
    """What a probe of words that stand in 1 to 20 % of the training documents reads.

    Returns:
        A row for each corpus and size of a sample: `collection`, `sample`, `area` (under the ROC
        curve, the mean over words: which documents of the corpus hold the word?), and rank
        correlations over words with the corpus' document frequency: of what the probe reads from
        the sample (`read`), of frequencies in the sample itself (`counted`), and of frequencies in
        the training documents (`training`).
    """
    from scipy.stats import spearmanr
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import Ridge
    from sklearn.metrics import roc_auc_score

    words = CountVectorizer(binary=True, token_pattern=r"[a-z]{2,}", min_df=0.01, max_df=0.2)
    held = words.fit_transform(training).toarray().astype(np.float32)
    probe = Ridge(ridge).fit(encoder.encode_documents(list(training)), held)
    generator, rows = np.random.default_rng(seed), []
    for corpus in corpora:
        vectors = encoder.encode_documents(corpus.documents)
        there = words.transform(corpus.documents).toarray()
        guessed, common = probe.predict(vectors), there.mean(axis=0)
        enough = np.minimum(there.sum(axis=0), (1 - there).sum(axis=0)) >= _LEAST
        area = roc_auc_score(there[:, enough], guessed[:, enough]) if enough.sum() > 1 else np.nan
        for sample in samples:
            drawn = generator.permutation(len(vectors))[:sample]
            guesses = {
                "read": guessed[drawn].mean(axis=0),
                "counted": there[drawn].mean(axis=0),
                "training": held.mean(axis=0),
            }
            agreed = {name: spearmanr(one, common).statistic for name, one in guesses.items()}
            about = {"collection": corpus.name, "sample": sample, "area": area}
            rows.append({**about, "words": len(common), **agreed})
    return pd.DataFrame(rows)
