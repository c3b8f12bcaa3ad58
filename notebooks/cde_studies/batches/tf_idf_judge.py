"""A judge for the filter that knows words alone: tf-idf in 384 dimensions.

It is kept as a model of sentence-transformers, so that training takes it as it takes any surrogate.
A text's vector is the mean, over its word pieces, of idf times the piece's row of the leading
singular vectors (LSA): tf-idf folded into that space, but for its length.

Cost: a minute for 100,000 pairs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from filelock import FileLock

from cde.data import Pairs
from cde.models.encoder import load_tokenizer
from cde.storage import cache_folder, content_hash, temporary_folder


def save_tf_idf(pairs: Pairs, tokens: int, dim: int = 384) -> str:
    """The folder of the model of these pairs' texts, each cut to so many tokens; kept."""
    folder = cache_folder("judges") / content_hash([pairs.fingerprint, f"{tokens} {dim}"])
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            _save(pairs, tokens, dim, folder)
    return str(folder)


def _save(pairs: Pairs, tokens: int, dim: int, folder: Path) -> None:
    from scipy.sparse import csr_array
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    words = load_tokenizer("minilm")
    cut = {"add_special_tokens": False, "truncation": True, "max_length": tokens}
    ids = words([*pairs.queries, *pairs.documents], **cut)["input_ids"]
    ends = np.cumsum([0, *map(len, ids)])
    pieces = np.concatenate(ids).astype(np.int32)
    shape = (len(ids), len(words))
    counts = csr_array((np.ones(len(pieces), np.float32), pieces, ends), shape=shape)
    counts.sum_duplicates()
    weights = TfidfTransformer().fit(counts)
    space = TruncatedSVD(min(dim, len(ids)), random_state=0).fit(weights.transform(counts))
    vectors = (weights.idf_[:, None] * space.components_.T).astype(np.float32)
    model = SentenceTransformer(modules=[StaticEmbedding(words, embedding_weights=vectors)])
    with temporary_folder(folder.parent) as made:
        model.save_pretrained(str(made / "model"), create_model_card=False)
        (made / "model").replace(folder)
