"""The command `cde`: index one's own text, and look at this machine.

`cde index build SOURCE FOLDER` is `Index.build`; the other steps are of a folder that it or Python
wrote. Bad input is an exception whose message is for the user. Nothing heavy is imported before it
is needed.

An installed package adds commands of its own as an entry point of the group `cde.commands`: a
module with `add_parsers(commands)`, which gives each of its parsers the default `do`, a function of
the options that returns the exit status, or None for 0. A function `checks()` in it adds to `cde
doctor`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import signal
import sqlite3
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import entry_points
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from cde import __version__, corpus, retrieval  # whose parts are loaded on first use
from cde.hardware import prefer_short_waits
from cde.storage import cache_folder, cache_root, lock_reach, told_of_the_disk

__all__ = ["main"]

Check = tuple[str, bool, str]  # what is checked, whether it is well, what was found
#: what a class of machine is fast at; `benchmarks/precision.py` measures it
_CLASSES = {
    "cuda": "a GPU: bfloat16 is faster than float32",
    "bfloat16": "a CPU of class bfloat16 (AMX or AMD's AVX512-BF16): bfloat16 is faster",
    "avx512": "a CPU of class avx512: bfloat16 is slower than float32",
    "avx2": "a CPU of class avx2: bfloat16 is slower than float32",
    "other": "another CPU: whether bfloat16 is faster than float32 was not measured",
}
_LOCKS = {
    "own": "other machines do not see this one's locks in the cache, by the options of its mount: "
    "two may train the same run. Mount it with locks, or give each machine a CDE_CACHE of its own",
    "unknown": "this kind of disk does not tell whether other machines see locks in the cache: if "
    "they do not, two may train the same run",
}

# the processes that the command starts inherit it
prefer_short_waits()


def _parser(more: Sequence[ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cde", description="Contextual document embeddings, and the book about them."
    )
    parser.add_argument("--version", action="version", version=f"cde {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in more:
        module.add_parsers(commands)
    _add_index(commands)
    score = commands.add_parser("score", help="TREC run files: scores, and how sure they are")
    score.add_argument("qrels", type=Path, help="judgements: query, document, grade, or TREC's")
    score.add_argument("run", type=Path, nargs="+", help="run files, held against the first")
    score.add_argument("--metric", default="ndcg@10", help="of ndcg, map, recall, p, mrr @ k")
    own = "keep documents that have their query's id, which are left out, as in BEIR"
    score.add_argument("--keep-own", action="store_true", help=own)
    score.set_defaults(do=_score)
    sources = commands.add_parser("sources", help="list the collections that can be loaded here")
    sources.set_defaults(do=_sources)
    doctor = commands.add_parser("doctor", help="check this machine: devices, data, disk, versions")
    doctor.set_defaults(do=lambda _: _doctor(more))
    return parser


def _add_index(commands: Any) -> None:
    index = commands.add_parser("index", help="index your own text, search it, change it")
    steps = index.add_subparsers(dest="step", required=True, metavar="STEP")
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of the index")

    def step(
        name: str, do: Callable[[argparse.Namespace], None], about: str, *parents: Any
    ) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = steps.add_parser(name, help=about, parents=parents)
        parser.set_defaults(do=do)
        return parser

    build = step("build", _build, "embed a source into a new folder", _source(), folder)
    add = build.add_argument
    add("--model", default="minilm", metavar="M", help="minilm (default), bm25, a model's folder")
    add("--context", type=int, metavar="N", help="documents that a contextual model reads")
    add("--max-tokens", type=int, metavar="N", help="that minilm reads of a passage")
    chosen = ("auto", "bfloat16", "float32")
    add("--precision", default="auto", choices=chosen, help="of embedding (cde doctor)")
    add("--replace", action="store_true", help="replace another index there")
    ways = ("chunk", "warn", "error", "truncate")
    add("--on-long", default="chunk", choices=ways, help="what to do with long documents")
    asked = "what people ask: adapts the model to the corpus; repeatable"
    add("--sample-query", action="append", metavar="TEXT", help=asked)
    step("sync", _change, "make the index equal to its source", folder, _source(nargs="?"))
    search = step("search", _search, "the documents that answer a query best", folder)
    search.add_argument("query", nargs="+", help="one query or several, each in quotes")
    search.add_argument("--depth", type=int, default=10, metavar="N", help="documents (default 10)")
    search.add_argument("--words", action="store_true", help="fuse with the ranking of BM25")
    search.add_argument("--json", action="store_true", help="as JSON, with the whole texts")
    step("add", _change, "add a source's documents; these alone are embedded", folder, _source())
    remove = step("remove", _remove, "remove documents", folder)
    remove.add_argument("id", nargs="+", help="ids of the documents")
    step("list", _list, "ids of the documents", folder)
    status = step("status", _status, "documents, model, source, context, drift", folder)
    status.add_argument("--json", action="store_true", help="as JSON")


def _score(options: argparse.Namespace) -> None:
    from cde.intervals import interval_text

    runs, drop_own = {str(path): path for path in options.run}, not options.keep_own
    table = retrieval.compare_all(runs, options.qrels, options.metric, drop_own=drop_own)
    print(f"{options.metric}, over {table['score'].iloc[0].n} queries; intervals are of 95 %")
    for system, row in table.iterrows():
        one = row["score"]
        print(f"  {interval_text(one.estimate, one.low, one.high, 4)}  {system}")
        if row["difference"] is not None:
            seen = f"{row['smallest_effect']:.2g} would have been seen"
            found = f"{row['difference']}, p = {row['p_value']:.3g} after Holm"
            print(f"    against the first: {found}; {seen}")


def _source(**options: Any) -> argparse.ArgumentParser:
    """The arguments of a source, for a parser of which this is a parent."""
    parser = argparse.ArgumentParser(add_help=False)
    kinds = "a folder of .txt, .md, .rst, .jsonl[.gz], .csv, .tsv, .parquet; or one file"
    parser.add_argument("source", type=Path, **options, help=kinds)
    for part, usual in (("text", "text"), ("title", "title"), ("id", "id or _id")):
        parser.add_argument(f"--{part}-column", metavar="NAME", help=f"of tables (usual: {usual})")
    return parser


def _columns(options: argparse.Namespace) -> dict[str, str]:
    named = ((part, getattr(options, f"{part}_column")) for part in ("text", "title", "id"))
    return {part: name for part, name in named if name is not None}


def _build(options: argparse.Namespace) -> None:
    from cde.corpus.encoders import named_system

    if options.precision != "auto" and options.model == "bm25":
        raise ValueError("--precision is for embedding, and bm25 embeds nothing")
    # the index keeps the vectors: a second copy in the cache would serve nobody
    model = named_system(options.model, options.max_tokens, False, options.precision)
    if options.context is not None:
        if not hasattr(model, "with_context"):
            raise ValueError(f"{options.model} is bound to no context: a ContextualEncoder is")
        # the index binds it to its texts
        model = SimpleNamespace(with_context=partial(model.with_context, size=options.context))
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: print(_plain(str(message)), file=sys.stderr)
        index = corpus.Index.build(
            options.source,
            options.folder,
            encoder=model,
            columns=_columns(options),
            on_long=options.on_long,
            sample_queries=options.sample_query,
            replace=options.replace,
        )
    print(index)


def _change(options: argparse.Namespace) -> None:
    from cde.corpus.files import counted

    index = corpus.Index.load(options.folder)
    change: Callable[..., Any] = index.sync if options.step == "sync" else index.add_from
    changes = change(options.source, _columns(options))
    if changes.left_out:
        print(f"not read: {counted(changes.left_out)}", file=sys.stderr)
    print(changes)


def _search(options: argparse.Namespace) -> None:
    queries = list(dict.fromkeys(options.query))
    several = len(queries) > 1
    index = corpus.Index.load(options.folder)
    found = index.search(queries, options.depth, words=options.words)
    if options.json:
        rows = (found if several else found.drop(columns="query")).to_dict(orient="records")
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for query in queries:
        if several:
            print(f"\n{_plain(query)}")
        some = found[found["query"] == query]
        if some.empty:
            print("nothing was found: no document has a word of it")
        for rank, row in enumerate(some.itertuples(), start=1):
            heading = f"  # {_plain(str(row.heading))}" if row.heading else ""
            print(f"{rank:3}  {row.score:.4f}  {_plain(str(row.id))}{heading}")
            print(f"     {_plain(textwrap.shorten(str(row.text), 160, placeholder=' …'))}")


def _plain(text: str) -> str:
    """A text whose control characters cannot reach the terminal."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def _remove(options: argparse.Namespace) -> None:
    corpus.Index.load(options.folder).remove(options.id)
    print(f"{len(set(options.id)):,} removed")


def _list(options: argparse.Namespace) -> None:
    for name in corpus.Index.load(options.folder).ids:
        print(_plain(name))


def _status(options: argparse.Namespace) -> None:
    index = corpus.Index.load(options.folder)
    found, mark = index.status(), index.fingerprint
    if options.json:
        print(json.dumps(asdict(found) | {"index": mark}, indent=1, ensure_ascii=False))
        return
    model = f"{found.model}{found.fingerprint and f', fingerprint {found.fingerprint}'}"
    print(f"documents    {found.documents:,} in {found.passages:,} passages")
    print(f"vectors      {f'{found.dim} dimensions' if found.dim else 'none'}")
    print(f"model        {model}")
    print(f"index        fingerprint {mark[:16]}")
    print(f"source       {found.source or 'none: documents that Python gave'}")
    print(f"context      {found.context or 'none: documents may come and go'}")
    if found.adapted:
        print(f"adapted      to the documents of the build; {found.adapted}")
    newer, gone, moved = found.drift.newer, found.drift.gone, found.drift.distance
    if newer or gone:
        came = f"{newer:.0%} of the passages came after the build"
        print(f"drift        {came}, {gone:.0%} of the first ones are gone")
        if found.context and moved is not None:
            chance = "× what drawing a context does by chance"
            print(f"             mean vector moved by {moved:.1f} {chance}")
    else:
        print("drift        none: these are the documents of the build")


def _sources(_: argparse.Namespace) -> None:
    from cde.data import list_sources

    for source in list_sources():
        print(f"{source.name:<36} {source.kind:<18} {source.location}")
    print(
        "also: folder:<path>, hub:<repo>[:<config>]; below $CDE_DATA: beir/<name>, pairs/<source>"
    )


def _checks() -> Iterator[Check]:
    import torch

    from cde.data.sources import list_sources
    from cde.hardware import chosen_precision, cpu_class
    from cde.surrogate import minilm_folder

    yield "Python", True, f"{platform.python_version()} on {platform.platform()}"
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU: all on the CPU"
    yield "device", True, f"{gpu}; {torch.get_num_threads()} threads"
    kind, chosen = cpu_class(), os.environ.get("CDE_PRECISION", "auto")
    own = f" (CDE_PRECISION={chosen})" if chosen != "auto" else ""
    try:
        yield "precision", True, f"{_CLASSES[kind]}; auto is {chosen_precision('auto')}{own}"
    except ValueError as error:
        yield "precision", False, str(error)
    has_flash = importlib.util.find_spec("flash_attn") is not None
    flash = "installed" if has_flash else "not installed; torch's own attention is used"
    yield "flash-attn", True, flash
    try:
        yield "MiniLM", True, f"{minilm_folder()} (sha256 checked)"
    except (ModuleNotFoundError, ValueError) as error:
        yield "MiniLM", False, str(error)
    folder = cache_folder()
    free = shutil.disk_usage(folder).free / 2**30
    yield "cache", free > 2, f"{folder}, {free:.0f} GiB free"
    if meaning := _LOCKS.get(reach := lock_reach(folder)):
        yield "locks", reach != "own", meaning
    try:
        count = sum(source.name.startswith(("beir/", "pairs/")) for source in list_sources())
        data = os.environ.get("CDE_DATA")
        yield "CDE_DATA", True, f"{data}: {count} collections" if data else "not set: packages only"
    except FileNotFoundError as error:
        yield "CDE_DATA", False, str(error)


def _doctor(more: Sequence[ModuleType]) -> int:
    """Print one line per check; return 0 if all is well, 1 if something needs mending."""
    good = True
    for checks in (_checks, *(module.checks for module in more if hasattr(module, "checks"))):
        for name, passed, detail in checks():
            good = good and passed
            print(f"{'ok  ' if passed else 'FAIL'}  {name:<11} {detail}")
    return 0 if good else 1


def main(arguments: Sequence[str] | None = None, more: Sequence[ModuleType] = ()) -> int:
    """Run the command; its exit status: 0 well, 1 a check or a chapter failed, 2 bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal may not have all letters
            stream.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = given[0] if given else ""
    modules = {module.__name__: module for module in more}
    try:
        for point in entry_points(group="cde.commands"):
            if point.value not in modules:
                modules[point.value] = point.load()
        with told_of_the_disk():
            options = _parser(list(modules.values())).parse_args(given)
            return int(options.do(options) or 0)
    except BrokenPipeError:  # the reader of our output has gone, as in `cde list | head`
        sys.stdout = None
        return 0
    except (ValueError, TypeError, ModuleNotFoundError, OSError, RuntimeError) as error:
        print(f"cde {command}: {error}", file=sys.stderr)
        return 1 if isinstance(error, RuntimeError) else 2
    except sqlite3.Error as error:
        place = f"the store of vectors in {cache_root() / 'embeddings'}"
        wait = "Wait for the processes that use it, or set CDE_CACHE to another folder"
        print(f"cde {command}: {place}: {error}. {wait}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed again, it would end in a traceback
        print(
            "\ninterrupted: vectors, finished trainings, checkpoints of long ones, finished "
            "chapters and parts of an index are kept; the same command goes on from there",
            file=sys.stderr,
        )
        return 130


if __name__ == "__main__":
    sys.exit(main())
