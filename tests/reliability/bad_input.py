"""Bad input for every loader and public function, and the law that each case obeys.

A case works, or one error is raised by a `raise` of `cde` that names what was given. Anything else
is a defect: an error from deep inside a library, one that Python raises for a wrong type in
passing, one that names nothing.

    python tests/reliability/bad_input.py [TIMES] [REPORT.json]

runs TIMES (5) as many cases as the suite does, goes on after a defect, prints each kind once, and
reports how many cases each target had, how many worked and how many were refused.
"""

from __future__ import annotations

import ast
import inspect
import json
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report import write_report
from safetensors.torch import save

import cde
from cde.adaptation import adapted, tempered
from cde.batching.packing import BatchSampler
from cde.corpus.files import Source, read_source
from cde.data import RetrievalSet
from cde.models import BiEncoderConfig, ContextualConfig
from cde.models.weights import read_config, read_weights
from cde.retrieval import rerank, score_queries
from cde.training.loss import contrastive_loss
from cde_book.checkout import PACKAGES
from cde_book.parameters import Parameter, parse_assignments
from cde_studies.motivation.linear_readers import fit_reader

PACKAGE = Path(cde.__file__).resolve().parent
OURS = [PACKAGE.parent / package for package in PACKAGES]
REPORT = PACKAGE.parent / "book" / "reliability" / "bad_input.json"
REFUSALS = (ValueError, TypeError, FileNotFoundError, FileExistsError, ConnectionError)
LONGEST_MESSAGE = 3000

# --- what is given

#: text as it comes: emoji, right to left, without width, controls, NUL, half of a surrogate pair
letters = st.one_of(
    st.text(max_size=8),
    st.text(st.characters(exclude_categories=[]), max_size=4),
    st.sampled_from(
        ["", " ", "\0", "\ud83d", "a\udc80b", "👩\u200d🚀", "שלום", "\u202eabc", "\u200b", "\ufeff",
         "a\0b", "q\n", "\r", "é\u0301", "true", "null", "nan", "1e400", "../x", "~", "x" * 5000]
    ),
)  # fmt: skip
numbers = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([2**31, 2**40, -(2**63), 10**20, 10**400]),
    st.floats(),
    st.booleans(),
    st.sampled_from([np.int64(2), np.float32(0.5), np.bool_(True), 1 + 2j]),
)
plain = st.one_of(st.none(), numbers, letters, st.binary(max_size=4))
arrays = st.sampled_from(
    [
        np.zeros((0, 3), np.float32),
        np.zeros(3),
        np.zeros((2, 3, 4)),
        np.full((4, 3), np.nan),
        np.full((4, 3), np.inf),
        np.full((4, 3), 1e300),
        np.ones((4, 0)),
        np.ones((4, 3), bool),
        np.ones((4, 3), complex),
        np.array([["a"]]),
        np.array([None, "a"], object),
        np.array("scalar"),
        np.array(["2020"], "datetime64[D]"),
    ]
)
anything = st.one_of(
    plain,
    arrays,
    st.lists(plain, max_size=4),
    st.dictionaries(letters, plain, max_size=3),
    st.sets(st.integers(0, 3), max_size=2),
    st.just(object),
    st.builds(object),
    st.builds(iter, st.lists(letters, max_size=3)),
    st.tuples(letters, numbers),
)


def mostly(*good: Any) -> Any:
    """One of these good values, and now and then something else."""
    fine = st.one_of(*(one if isinstance(one, st.SearchStrategy) else st.just(one) for one in good))
    # `one_of` would count each kind of junk as much as all that is good
    return st.sampled_from([fine] * 7 + [anything]).flatmap(lambda chosen: chosen)


def vectors(n: int = 4, dim: int = 3) -> Any:
    """A few vectors, which mostly fit each other."""
    made = np.random.default_rng(n).normal(size=(n, dim)).astype(np.float32)
    return mostly(made, made.astype(np.float64), made.astype(np.float16))


def some(**kinds: Any) -> Any:
    """Arguments by name, each of which may be left out."""
    return st.fixed_dictionaries({}, optional=kinds)


# --- what is asked


@dataclass
class Target:
    """A function under test.

    Attributes:
        call: calls it with a case.
        cases: strategy of cases.
        words: a refusal has one of them: names of arguments, of files, of kinds of data.
        count: cases at a time.
    """

    call: Callable[[Any], Any]
    cases: Any
    words: tuple[str, ...]
    count: int = 25


@dataclass
class Counts:
    """What became of the cases of a target."""

    cases: int = 0
    worked: int = 0
    refused: int = 0
    defects: dict[str, str] = field(default_factory=dict)


class Defect(AssertionError):
    """A case that neither worked nor was refused as it should."""


@cache
def raises_of(file: str) -> list[tuple[int, int]]:
    """First and last lines of the `raise` statements of a file."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return [(node.lineno, node.end_lineno or node.lineno) for node in nodes]


def judged(target: Target, case: Any) -> str:
    """ "worked" or "refused"; a `Defect` for anything else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.call(case)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        kind, said = type(error).__name__, str(error)
        place = f"{Path(where.filename).name}:{where.lineno}"
        about = f"{kind} at {place}: {said[:300]!r}"
        if not isinstance(error, REFUSALS):
            raise Defect(f"no refusal, {about}") from error
        file = Path(where.filename).resolve()
        if not any(one in file.parents for one in OURS):
            raise Defect(f"raised outside of cde, {about}") from error
        if not any(a <= (where.lineno or 0) <= b for a, b in raises_of(str(file))):
            raise Defect(f"raised in passing, {about}") from error
        if not any(word in said for word in target.words):
            raise Defect(f"names nothing of {target.words}, {about}") from error
        if len(said) > LONGEST_MESSAGE:
            raise Defect(f"{len(said)} letters long, {about}") from error
        return "refused"
    return "worked"


def run(target: Target, times: int = 1, counts: Counts | None = None) -> None:
    """Try a target; with counts go on after a defect and enter it there."""

    @settings(
        max_examples=target.count * times,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(target.cases)
    def law(case: Any) -> None:
        if counts is None:
            judged(target, case)
            return
        counts.cases += 1
        try:
            became = judged(target, case)
        except Defect as defect:
            counts.defects.setdefault(str(defect).split("'")[0], f"{defect}\n{case!r}"[:1500])
        else:
            setattr(counts, became, getattr(counts, became) + 1)

    law()


# --- toys


class Toy:
    """An encoder of letters: good vectors, or what it is told to give."""

    def __init__(self, gives: Any = None) -> None:
        self.gives = gives

    def encode_queries(self, texts: Any) -> Any:
        if self.gives is not None:
            return self.gives
        rows = [[1.0, len(text), text.count("a")] for text in texts]
        return np.array(rows, np.float32).reshape(-1, 3)

    encode_documents = encode_queries


def toy_set() -> RetrievalSet:
    return RetrievalSet(
        ["d1", "d2", "d3"], ["a", "bb", "ca"], ["q1", "q2"], ["a", "c"], {"q1": {"d1": 1}}
    )


@lru_cache(maxsize=1)
def tiny() -> Any:
    from tiny_encoders import bi_encoder, contextual

    return bi_encoder(), contextual()


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="bad-input-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def written(path: Path, rows: Any) -> None:
    """Rows as lines of JSON; what is text or bytes as it stands."""
    data = b""
    for row in rows:
        if isinstance(row, bytes):
            data += row
        elif isinstance(row, str):
            data += row.encode("utf-8", "surrogatepass")
        else:
            data += json.dumps(row).encode()
        data += b"\n"
    path.write_bytes(data)


# --- loaders

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), letters),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(letters, inner, max_size=3),
    max_leaves=6,
)
broken = st.sampled_from(
    ["{", "[" * 100_000, '{"a": ' * 50_000, "1" * 5000, '{"query": 1' + "0" * 5000 + "}", b"\xff",
     '"\\ud83d"', "\0", "null", "[]", "3", b"\xef\xbb\xbf{}"]
)  # fmt: skip


def rows(*fields: str, **others: Any) -> Any:
    """Rows of JSON that mostly have these fields."""
    good = st.fixed_dictionaries(
        {name: st.one_of(letters, letters, letters, values) for name in fields},
        optional={name: st.one_of(kind, values) for name, kind in others.items()},
    )
    return st.lists(st.one_of(good, good, good, good, values, broken), max_size=4)


def load_pairs_file(case: Any) -> None:
    with folder() as place:
        written(place / "pairs.jsonl", case)
        cde.load_pairs(f"folder:{place / 'pairs.jsonl'}").fingerprint  # noqa: B018


grades = st.one_of(st.integers(-1, 3).map(str), st.sampled_from(
    ["1_0", "٣", "1.5", "", " 2", "+1", str(2**31), str(2**40), "1" * 5000, "-0", "x", "nan", "1e3"]
))  # fmt: skip
ids = st.sampled_from(["a", "b", "c", "a\0", "é", "", "א", "👩\u200d🚀"])


def load_beir(case: Any) -> None:
    corpus, queries, qrels, excluded, split, drop = case
    with folder() as place:
        written(place / "corpus.jsonl", corpus)
        written(place / "queries.jsonl", queries)
        (place / "qrels").mkdir()
        written(place / "qrels" / "test.tsv", ["\t".join(row) for row in qrels])
        written(place / "exclude.tsv", ["\t".join(row) for row in excluded])
        found = cde.load_retrieval(f"folder:{place}", split, drop)
        found.fingerprint  # noqa: B018
        if found.queries:
            cde.evaluate(Toy(), found, ["ndcg@10", "map@10", "mrr@3"])


def beir_rows(kind: Any) -> Any:
    good = st.fixed_dictionaries({"_id": ids, "text": letters}, optional={"title": letters})
    usual = st.just([{"_id": one, "text": one} for one in "abc"])
    return st.one_of(usual, usual, st.lists(good, max_size=4), rows("_id", "text", title=kind))


beir_cases = st.tuples(
    beir_rows(letters),
    beir_rows(letters),
    st.lists(st.one_of(st.tuples(ids, ids, grades), st.lists(letters, max_size=3)), max_size=5),
    st.lists(st.one_of(st.tuples(ids, ids), st.lists(letters, max_size=2)), max_size=2),
    mostly("test"),
    mostly(False, True),
)

names = st.one_of(
    st.just("pydocs/mpmath"),
    letters,
    letters.map("folder:{}".format),
    letters.map("pydocs/{}".format),
    letters.map("beir/{}".format),
    letters.map("pairs/{}".format),
    anything,
)


def read_folder(case: Any) -> None:
    config, weights = case
    with folder() as place:
        for name, data in (("config.json", config), ("model.safetensors", weights)):
            if isinstance(data, bytes):
                (place / name).write_bytes(data)
            elif data is not None:
                written(place / name, [data])
        try:
            read_config(place)
        finally:
            read_weights(place)


def read_files(case: Any) -> None:
    with folder() as place:
        for number, (suffix, data) in enumerate(case):
            written(place / f"{number}{suffix}", data)
        read_source(Source.of(place))


files = st.lists(
    st.tuples(
        st.sampled_from([".txt", ".md", ".jsonl", ".csv", ".tsv", ".parquet", ".jsonl.gz", ".x"]),
        st.one_of(rows("text", id=letters, title=letters), st.lists(st.binary(), max_size=3)),
    ),
    max_size=3,
)


# --- functions


def use_pairs(case: Any) -> None:
    given_to, then = case
    made = cde.Pairs(**given_to)
    made.fingerprint, repr(made), list(made)
    for method, values in then:
        getattr(made, method)(*values)


def use_retrieval_set(case: Any) -> None:
    given_to, then = case
    made = RetrievalSet(**given_to)
    made.fingerprint, repr(made)
    for method, values in then:
        getattr(made, method)(*values)
    if made.queries:
        cde.evaluate(Toy(), made, ["ndcg@10", "map@10", "recall@3", "p@1", "mrr@3"])


text_lists = st.one_of(
    st.just(["a", "bb", "ca"]), st.lists(letters, min_size=2, max_size=3), st.just(("x", "y", "z"))
)
draws = st.lists(
    st.one_of(
        st.tuples(st.just("sample"), st.tuples(numbers, numbers)),
        st.tuples(st.just("sample_per_domain"), st.tuples(numbers)),
        st.tuples(st.just("split"), st.tuples(mostly("train", "test"))),
        st.tuples(st.just("select"), st.tuples(mostly([0, 1], [True, False], [0.5], [5], 1))),
    ),
    max_size=1,
)
shrinking = st.lists(
    st.one_of(
        st.tuples(st.just("select_queries"), st.tuples(numbers, numbers)),
        st.tuples(st.just("shrink"), st.tuples(numbers, numbers, numbers)),
    ),
    max_size=1,
)
judgements = st.dictionaries(
    st.sampled_from(["q1", "q2", "q\0"]),
    st.dictionaries(st.sampled_from(["d1", "d2"]), numbers, max_size=2),
    max_size=2,
)


def use_index(case: Any) -> None:
    made, new, query, depth, gone = case
    index = cde.Index(encoder=Toy(), **made)
    if new is not None:
        index.add(new)
    index.search(query, depth)
    if gone is not None:
        index.remove(gone)
    repr(index), index.fingerprint


def judge(case: Any) -> None:
    """Judgements in any form, a file too, of the toy set."""
    kind, given = case
    toy = toy_set()
    with folder() as place:
        if kind == "file":
            written(place / "qrels.tsv", given)
            given = place / "qrels.tsv"
        elif kind == "table":
            given = pd.DataFrame(given)
        RetrievalSet(toy.document_ids, toy.documents, toy.query_ids, toy.queries, given)


def assign(case: Any) -> None:
    kind, text = case
    parsed = parse_assignments([("setting", text)])
    Parameter("setting", kind, None).check(parsed["setting"])


def loss(case: Any) -> None:
    torch.manual_seed(0)
    contrastive_loss(torch.randn(3, 4), torch.randn(4, 4), **case)


def sampler(case: Any) -> None:
    made = BatchSampler(**case)
    made.slice(next(made))


READER = fit_reader(np.eye(3), np.eye(3))
CONFIG = {
    name: mostly(getattr(cde.TrainConfig(), name), 1, 2)
    for name in cde.TrainConfig.__dataclass_fields__
}
GOOD_MODEL = st.fixed_dictionaries(
    {},
    optional={
        "dropout": numbers, "query_prefix": plain, "first_stage_mlp": plain, "matched": plain,
        "null_token": plain, "sequence_dropout": plain, "pool": plain, "variant": plain,
        "skip_instruction_until": plain, "soft_prompt_tokens": plain, "max_tokens": plain,
    },
)  # fmt: skip


def defaults(config: type) -> dict[str, Any]:
    """Settings of a config, each mostly as it is by default."""
    given_to = inspect.signature(config.__init__).parameters
    return {
        name: mostly(one.default)
        for name, one in given_to.items()
        if name not in ("self", "kwargs")
    }


def one_or_two(kinds: Mapping[str, Any]) -> Any:
    """Arguments of which one or two are given."""
    return st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=2, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: kinds[name] for name in chosen})
    )


pair_vectors = {"query_vectors": vectors(), "document_vectors": vectors()}
grouping = {
    "cluster_size": mostly(2, 1, 100), "domains": mostly(None, list("aabb"), [0, 0, 1, 1]),
    "iterations": mostly(2), "attempts": mostly(1), "seed": mostly(0, 3), "shard_size": mostly(None, 3),
}  # fmt: skip
packing = {
    "order": mostly("random", "tsp"), "vectors": vectors(),
    "domains": mostly(None, list("aabb")), "seed": mostly(0, 3), "drop_last": mostly(True, False),
    "cross_domains": mostly(True, False),
}  # fmt: skip

TARGETS: dict[str, Target] = {
    "tempered": Target(
        lambda case: tempered(*case[0], **case[1]),
        st.tuples(st.lists(vectors(), max_size=2), some(strength=mostly(0.5, 0), shrunk=mostly(0.5))),
        ("samples", "strength", "shrunk"), 60,
    ),
    "adapted": Target(
        lambda case: adapted(**case).encode_queries(["a", "bb"]),
        st.fixed_dictionaries(
            {"encoder": mostly(Toy()), "documents": mostly(text_lists, ["a", "bb", "ca"])},
            optional={"queries": mostly(None, text_lists, ["a", "cc"]), "sample": mostly(256, 1), "seed": mostly(0), "strength": mostly(0.5, 0), "reader": mostly(None, READER)},
        ),
        ("encoder", "documents", "queries", "sample", "seed", "strength", "shrunk", "reader", "rank", "texts", "Toy"), 60,
    ),
    "judgements": Target(
        judge,
        st.one_of(
            st.tuples(st.just("file"), st.lists(st.sampled_from(["q1\td1\t1", "q1 0 d2 2", "q2,d1,1", "query-id\tcorpus-id\tscore", "q1\td1\t1_0", "q1\td1"]) | letters | st.just(b"\xff"), max_size=4)),
            st.tuples(st.just("table"), st.sampled_from([{}, {"q": ["q1"], "d": ["d1"], "g": [1]}, {"q": [1.5], "d": ["d1"], "g": [1]}, {"q": ["q1", "q1"], "d": ["d1", "d1"], "g": [1, 2]}, {"q": [None], "d": [None], "g": [None]}])),
            st.tuples(st.just("mapping"), mostly(st.dictionaries(st.sampled_from(["q1", "x"]), mostly({"d1": 1}, {"d1"}, ["d1"], "d1"), max_size=2))),
        ),
        ("qrels", "grade", "judge", "bad-input-", "id"), 60,
    ),
    "load_pairs: a file": Target(
        load_pairs_file, rows("query", "document", domain=letters), ("pairs.jsonl",), 40
    ),
    "load_retrieval: a folder": Target(load_beir, beir_cases, ("bad-input-", "drop_unknown", "split"), 60),
    "load_pairs: a name": Target(
        lambda case: cde.load_pairs(*case), st.tuples(names, mostly("all")), ("name", "collection", "folder", "file", "split"), 25,
    ),
    "load_retrieval: a name": Target(
        lambda case: cde.load_retrieval(*case), st.tuples(names, mostly("test")), ("name", "collection", "folder", "split", "qrels"), 25,
    ),
    "Pairs": Target(
        use_pairs,
        st.tuples(
            st.fixed_dictionaries(
                {"queries": mostly(text_lists), "documents": mostly(text_lists)},
                optional={"domains": mostly(text_lists), "ids": mostly(text_lists), "name": mostly("x")},
            ),
            draws,
        ),
        ("queries", "documents", "domains", "ids", "name", "size", "seed", "split", "rows"), 60,
    ),
    "RetrievalSet": Target(
        use_retrieval_set,
        st.tuples(
            st.fixed_dictionaries(
                {
                    "document_ids": mostly(["d1", "d2"]), "documents": mostly(["a", "bb"]),
                    "query_ids": mostly(["q1", "q2"]), "queries": mostly(["a", "👩\u200d🚀"]),
                    "qrels": mostly(judgements),
                },
                optional={"excluded": mostly({"q1": frozenset({"d2"})}), "name": mostly("toy")},
            ),
            shrinking,
        ),
        ("id", "texts", "qrels", "excluded", "grade", "judgements", "name", "size", "documents", "queries", "seed"), 60,
    ),
    "TrainConfig": Target(
        lambda case: repr(cde.TrainConfig(**case)),
        st.one_of(one_or_two(CONFIG), st.fixed_dictionaries({"model": GOOD_MODEL})),
        (*CONFIG, "setting"), 60,
    ),
    "train": Target(
        lambda case: cde.train(**case),
        st.fixed_dictionaries({"config": anything}, optional={"pairs": anything, "plan": anything}),
        ("config",),
    ),
    "BiEncoderConfig": Target(
        lambda case: BiEncoderConfig(**case),
        one_or_two(defaults(BiEncoderConfig)),
        tuple(defaults(BiEncoderConfig)),
    ),
    "ContextualConfig": Target(
        lambda case: ContextualConfig(**case),
        one_or_two(defaults(ContextualConfig)),
        (*defaults(ContextualConfig), "sequence dropout"),
    ),
    "-p name value": Target(
        assign,
        st.tuples(
            st.sampled_from(["Seed", "Count | None", "Share", "list[Rate]", "bool", "str", "float", "Literal['a', 'b']", "list[Count] | None", "Profile"]),
            st.one_of(st.sampled_from(["3", "1e3", "0.5", "true", "[1, 2]", "a", "null", "[]", "smoke", ""]), letters, st.text("[]{}0123456789.-+e_:,'\"&*!|>%@#a\n ", max_size=8), values.map(str), st.sampled_from(["[" * 3000, "1" * 5000, "&a [*a]", "!!python/name:os.system", "{a: 1, a: 2}", "1e999", "-1e-999"])),
        ),
        ("setting",), 60,
    ),
    "weights of a folder": Target(
        read_folder,
        st.tuples(
            st.sampled_from([st.just({})] * 3 + [values, broken]).flatmap(lambda chosen: chosen),
            st.one_of(st.just(save({"a": torch.zeros(1)})), st.none(), st.binary(max_size=40), broken),
        ),
        ("bad-input-",), 50,
    ),
    "files of a corpus": Target(read_files, files, ("bad-input-",), 40),
    "cluster_pairs": Target(
        lambda case: cde.cluster_pairs(**case),
        st.fixed_dictionaries(pair_vectors, optional=grouping),
        ("vectors", "pairs", *grouping), 40,
    ),
    "pack_batches": Target(
        lambda case: cde.pack_batches(**case),
        st.fixed_dictionaries({"labels": mostly([0, 0, 1, 1], np.array([0, 1, 2, 2])), "batch_size": mostly(2, 1, 3)}, optional=packing),
        ("labels", "batch_size", "batch", "vectors", "pairs", *packing), 40,
    ),
    "BatchSampler": Target(
        sampler,
        st.fixed_dictionaries({"labels": mostly([0, 0, 1, 1]), "batch_size": mostly(2, 1, 3)}, optional=packing | {"ranks": mostly(1, 2), "rank": mostly(0, 1)}),
        ("labels", "batch", "vectors", "rank", "pairs", *packing), 40,
    ),
    "false_negatives": Target(
        lambda case: cde.false_negatives(**case),
        st.fixed_dictionaries(pair_vectors, optional={"epsilon": mostly(0.1), "threshold": mostly(None, 0.5)}),
        ("vectors", "documents", "epsilon", "threshold"), 40,
    ),
    "contrastive_loss": Target(
        loss,
        some(temperature=mostly(0.1), hardness=mostly(0.5), symmetric=mostly(True, False), masked=mostly(None, torch.zeros(3, 4, dtype=torch.bool)), positives=mostly(None, torch.eye(3, 4, dtype=torch.bool))),
        ("temperature", "hardness", "symmetric", "masked", "positives"),
    ),
    "evaluate: an encoder": Target(
        lambda case: cde.evaluate(Toy(case[0]), toy_set(), **case[1]),
        st.tuples(
            mostly(None, np.ones((2, 3)), np.ones((3, 3))),
            some(metrics=mostly("ndcg@10", ["map@3", "mrr@1"]), depth=mostly(5), drop_own=mostly(True)),
        ),
        ("Toy", "metric", "depth", "index", "drop_own"), 60,
    ),
    "evaluate: a system and a set": Target(
        lambda case: cde.evaluate(*case),
        st.tuples(mostly(Toy(), cde.BM25()), mostly(toy_set())),
        ("rank", "retrieval_set", "cannot"),
    ),
    "compare": Target(
        lambda case: cde.compare(Toy(), cde.BM25(), toy_set(), **case),
        some(metric=mostly("ndcg@10"), depth=mostly(5), seed=mostly(1)),
        ("metric", "depth", "seed", "quer"),
    ),
    "score_queries": Target(
        lambda case: score_queries(case[0], toy_set(), case[1]),
        st.tuples(mostly(st.dictionaries(st.sampled_from(["q1", "q2", "\ud800", "x"]), mostly(st.dictionaries(st.sampled_from(["d1", "d2", "\ud800", "z"]), mostly(0.5, 1.0), max_size=2)), max_size=2)), mostly("ndcg@10")),
        ("ranking", "metric", "score"), 40,
    ),
    "rerank": Target(
        lambda case: rerank(Toy(), toy_set(), *case),
        st.tuples(mostly({"q1": {"d1": 0.1}, "q2": {}}, {"q1": {"z": 1.0}}), mostly(2)),
        ("candidates", "depth"),
    ),
    "search": Target(
        lambda case: cde.search(**case),
        st.fixed_dictionaries(pair_vectors, optional={"depth": mostly(2)}),
        ("queries", "documents", "vectors", "depth", "index"), 40,
    ),
    "Hybrid": Target(
        lambda case: cde.Hybrid(**case).rank(toy_set()),
        st.fixed_dictionaries({"systems": mostly([Toy(), cde.BM25()], [])}, optional={"k": mostly(60)}),
        ("systems", "k", "rank"),
    ),
    "BM25": Target(
        lambda case: cde.BM25(**case[0]).search(case[1], case[2]),
        st.tuples(st.fixed_dictionaries({"documents": mostly(text_lists)}, optional={"k1": mostly(0.9), "b": mostly(0.4)}), mostly(text_lists), mostly(3)),
        ("documents", "queries", "k1", "b must", "depth"), 40,
    ),
    "Surrogate": Target(
        lambda case: cde.Surrogate(**case),
        some(max_tokens=mostly(None, 8), precision=mostly("auto", "float32"), device=mostly("cpu"), batch_size=mostly(4), cache=mostly(True)),
        ("max_tokens", "precision", "device", "batch_size", "cache", "model"),
    ),
    "Index": Target(
        use_index,
        st.tuples(
            st.fixed_dictionaries({"texts": mostly(text_lists, {"a": "red", "b": {"title": "x", "text": "y"}})}, optional={"ids": mostly(None), "columns": mostly(None, {"text": "body"})}),
            mostly(None, ["more"]), mostly("red", ["red", "👩\u200d🚀"]), mostly(2), mostly(None, []),
        ),
        ("text", "ids", "columns", "depth", "queries", "part", "document"), 60,
    ),
    "encoders: texts": Target(
        lambda case: (tiny()[0].encode_queries(case), tiny()[1].with_context(None).encode_documents(case)),
        mostly(text_lists, st.lists(letters, max_size=4)),
        ("texts",), 40,
    ),
    "with_context": Target(
        lambda case: tiny()[1].with_context(**case),
        some(context=mostly(None, text_lists, np.ones((5, 32), np.float32)), size=mostly(None, 2), seed=mostly(0), fill=mostly(None, "repeat")),
        ("context", "size", "seed", "fill", "texts"), 40,
    ),
}  # fmt: skip


def main(times: int = 5, out: Path = REPORT) -> None:
    """Run every target, print what is amiss, write the counts."""
    table = []
    for name, target in TARGETS.items():
        counts = Counts()
        run(target, times, counts)
        defects = counts.cases - counts.worked - counts.refused
        row = {"cases": counts.cases, "worked": counts.worked, "refused": counts.refused}
        table.append({"target": name, **row, "defects": defects})
        print(table[-1], flush=True)
        for example in counts.defects.values():
            print(f"    {example}".replace("\n", "\n        "), flush=True)
    write_report(out, "bad input for loaders and public functions", table, times=times)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main(*(kind(value) for kind, value in zip((int, Path), sys.argv[1:], strict=False)))
