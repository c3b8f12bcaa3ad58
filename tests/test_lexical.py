"""BM25 against its formula, and writing without spaces."""

from __future__ import annotations

import math
import unicodedata

import bm25s
import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

import cde
from cde.data import RetrievalSet
from cde.lexical import BM25, split_into_terms

#: words that are their own stems and no stop words
WORDS = ("boat", "hill", "stone", "river", "lamp", "red")
DOCUMENT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
CORPUS = st.lists(DOCUMENT, min_size=1, max_size=7)
QUERY = st.lists(st.sampled_from([*WORDS, "zebra"]), min_size=1, max_size=4).map(" ".join)


def bm25_by_definition(corpus: list[str], query: str, k1: float, b: float) -> dict[int, float]:
    """With Lucene's IDF, ln(1 + (N − df + 0.5)/(df + 0.5)); repeated words count again."""
    texts = [text.split() for text in corpus]
    mean = sum(map(len, texts)) / len(texts)
    scores = {}
    for position, words in enumerate(texts):
        score = 0.0
        for term in query.split():
            df, tf = sum(term in text for text in texts), words.count(term)
            idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
            if tf:
                score += idf * tf / (tf + k1 * (1 - b + b * len(words) / mean))
        if score > 0:
            scores[position] = score
    return scores


@given(
    CORPUS,
    st.lists(QUERY, min_size=1, max_size=3),
    st.sampled_from([(0.9, 0.4), (1.5, 0.75), (0.5, 0.0), (0.0, 0.4)]),
)
def test_scores_are_those_of_the_formula(
    corpus: list[str], queries: list[str], setting: tuple[float, float]
) -> None:
    """Of all documents with a word of the query, and of no others."""
    results = BM25(corpus, *setting).search(queries)
    for query, scores in zip(queries, results, strict=True):
        assert scores == pytest.approx(bm25_by_definition(corpus, query, *setting), rel=1e-5)


@given(CORPUS, QUERY, st.integers(1, 8))
def test_a_shallower_search_returns_the_best_of_a_deeper_one(
    corpus: list[str], query: str, depth: int
) -> None:
    ranker = BM25(corpus)
    best = sorted(ranker.search([query])[0].values(), reverse=True)[:depth]
    assert sorted(ranker.search([query], depth=depth)[0].values(), reverse=True) == best


def test_the_words_of_a_query_are_treated_as_those_of_the_corpus() -> None:
    ranker = BM25(["red boats", "green houses"])
    assert ranker.search(["The BOATS"]) == ranker.search(["boating"]) == ranker.search(["boat"])


def test_where_there_is_no_word_in_common_nothing_is_found() -> None:
    """A corpus of stop words is one without terms."""
    assert BM25(["red boats", ""]).search(["zebra", "", "the"]) == [{}, {}, {}]
    assert BM25(["red boats", ""]).search([]) == []
    assert BM25().search(["red", "boats"]) == [{}, {}]
    assert BM25(["the", ""]).search(["red"]) == [{}]


def test_ranking_a_set_searches_its_own_corpus_by_id_with_the_rankers_settings() -> None:
    texts, asked = ["red boats", "green green house"], ["green", "zebra"]
    toy = RetrievalSet(["x", "y"], texts, ["q", "r"], asked, {"q": {"y": 1}})
    (scores,) = BM25(toy.documents, k1=2.0, b=0.1).search(["green"])
    assert BM25(k1=2.0, b=0.1).rank(toy) == {"q": {"y": scores[1]}, "r": {}}
    assert BM25(["another corpus"], k1=2.0, b=0.1).rank(toy) == {"q": {"y": scores[1]}, "r": {}}


JAPANESE = [
    "港に赤い船が三隻ならんでいる。",
    "じゃがいもとねぎのスープの作り方です。",
    "海は一日に二度、満ちて引きます。",
]
CHINESE = ["红色的船停在港口里。", "这道汤用土豆和韭葱做成。", "大海每天涨落两次。"]
THAI = ["เรือสีแดงจอดอยู่ในท่าเรือ", "ซุปมันฝรั่งกับต้นหอม", "น้ำทะเลขึ้นและลงวันละสองครั้ง"]


@pytest.mark.parametrize(
    ("corpus", "queries"),
    [
        (JAPANESE, ["赤い船はどこ", "スープを作りたい", "海"]),
        (JAPANESE, ["港の船", "ｽｰﾌﾟ", "海が引く"]),
        (CHINESE, ["港口的船", "土豆汤", "大海的涨落"]),
        (THAI, ["ท่าเรือ", "ต้นหอม", "ทะเล"]),
    ],
)
def test_texts_without_spaces_are_found_by_their_parts(
    corpus: list[str], queries: list[str]
) -> None:
    found = BM25(corpus).search(queries)
    assert [max(scores, key=scores.__getitem__) for scores in found] == [0, 1, 2]


@given(st.lists(st.text("海船港赤いスープのเรอ", min_size=2, max_size=12), min_size=1), st.data())
def test_any_two_neighbouring_characters_of_a_document_find_it(
    corpus: list[str], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(corpus) - 1))
    start = data.draw(st.integers(0, len(corpus[place]) - 2))
    length = data.draw(st.integers(2, 12))
    assert place in BM25(corpus).search([corpus[place][start:][:length]])[0]


def test_a_foreign_name_is_found_by_its_parts_in_an_english_corpus() -> None:
    """Runs are cut text by text: one Japanese name among many English words is found too."""
    corpus = ["the red boat in the harbour of 神戸港 " + "by the sea " * 60, "a lamp on the hill"]
    found = BM25(corpus).search(["神戸", "港", "神戸港の船", "lamp"])
    assert [list(one) for one in found] == [[0], [0], [0], [1]]


def test_korean_words_are_found_without_their_particles() -> None:
    corpus = ["항구에 빨간 배가 있다", "감자와 대파로 만든 수프"]
    found = BM25(corpus).search(["항구", "대파 수프", "감자는"])
    assert [list(one) for one in found] == [[0], [1], [1]]


def test_words_between_such_runs_stay_words() -> None:
    corpus = ["Python入門 第2版", "機械学習 with boats", "料理"]
    ranker = BM25(corpus)
    assert [list(scores) for scores in ranker.search(["python", "boat", "学習"])] == [[0], [1], [1]]


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        (unicodedata.normalize("NFC", "café crème"), unicodedata.normalize("NFD", "CAFÉ")),
        ("die lange Straße", "STRASSE"),
        ("ein Fußball", "fussball"),
        ("an \ufb03cient o\ufb03ce", "office"),
        ("a hy\u00adphen\u00adated word", "hyphenated"),
        ("ｆｕｌｌ　ｗｉｄｔｈ", "width"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("एक किताब है", "किताब"),
        ("என் மொழி", "மொழி"),
        ("الكِتَابُ على الطاولة", "الكِتَابُ"),
    ],
)
def test_the_same_word_in_another_form_is_found(written: str, asked: str) -> None:
    corpus = ["some other text", written]
    assert list(BM25(corpus).search([asked])[0]) == [1]
    assert list(BM25([corpus[0], asked]).search([written])[0]) == [1]


@pytest.mark.parametrize(("word", "other"), [("किताब", "कतब"), ("மொழி", "மழ"), ("कि", "की")])
def test_vowel_signs_belong_to_words(word: str, other: str) -> None:
    """`re` ends a word at each, so that only its consonants were left, or nothing."""
    assert BM25([f"{word} boat", f"{other} boat"]).search([word])[0].keys() == {0}


def test_a_query_without_an_ordinary_word_is_searched_by_all_its_words() -> None:
    corpus = ["The C language", "chapter 7", "To be, or not to be", "of boats"]
    asked = ["C", "7", "C++", "to be or not to be", "of", "", "+"]
    found = [sorted(one) for one in BM25(corpus).search(asked)]
    assert found == [[0], [1], [0], [2], [3], [], []]
    # beside a word they are stop words as ever
    assert [sorted(one) for one in BM25(corpus).search(["the boat", "c boats"])] == [[3], [3]]
    assert BM25(corpus).search(["boats", "of", "boats"])[0] == BM25(corpus).search(["boats"])[0]


def test_english_in_ascii_is_split_as_bm25s_does() -> None:
    """The book's records are of these terms."""
    pairs = cde.load_pairs("pydocs/rich")
    texts = [text for text in [*pairs.documents, *pairs.queries] if text.isascii()]
    assert len(texts) > 400
    theirs = bm25s.tokenize(
        texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False
    )
    ours = split_into_terms(texts)
    names = [{number: term for term, number in one.vocab.items()} for one in (theirs, ours)]
    for one, other in zip(theirs.ids, ours.ids, strict=True):
        assert [names[0][number] for number in one] == [names[1][number] for number in other]
