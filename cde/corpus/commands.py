"""`cde index` on the shell: build an index of one's own text, search it, keep it in step.

cde index build SOURCE FOLDER [--model M] [--context N] [--precision P] [--on-long W] [--replace]
cde index sync FOLDER [SOURCE]
cde index search FOLDER QUERY… [--words] [--depth N] [--json]
cde index add FOLDER SOURCE
cde index remove FOLDER ID…
cde index list FOLDER
cde index status FOLDER [--json]
cde index convert OLD NEW

These are `Index.build`, `sync`, `search` and so on; every folder that Python wrote will do. Each
command returns the exit status; bad input is an exception whose message is for the user.

Nothing heavy is imported before it is needed: the parser is part of every call of `cde`.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cde.corpus.index import Changes, Index

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add `index` and its sub-commands to the command's parser."""
    index = commands.add_parser("index", help="index your own text, search it, change it")
    index.set_defaults(do=run)
    steps = index.add_subparsers(dest="step", required=True, metavar="STEP")
    folder = {"type": Path, "metavar": "FOLDER", "help": "the folder of the index"}

    build = steps.add_parser("build", help="embed a source into a new folder; goes on if killed")
    _add_source(build)
    build.add_argument("folder", **folder)
    build.add_argument(
        "--model",
        default="minilm",
        metavar="MODEL",
        help="minilm (default), bm25, or the folder of a model, of cde or sentence-transformers",
    )
    build.add_argument(
        "--context",
        type=int,
        metavar="N",
        help="documents that --model reads, if contextual (default: as many as it was made for)",
    )
    build.add_argument(
        "--max-tokens", type=int, metavar="N", help="cut texts for minilm to so many tokens"
    )
    build.add_argument(
        "--precision",
        default="auto",
        choices=("auto", "bfloat16", "float32", "int8"),
        help="of embedding; the index is searched in it too. int8 is for CPUs where bfloat16 is "
        "slow (default: auto; cde doctor says what that is here)",
    )
    build.add_argument("--replace", action="store_true", help="replace another index there")
    build.add_argument(
        "--on-long",
        default="chunk",
        choices=("chunk", "warn", "error", "truncate"),
        help="documents longer than the model reads: in passages (default), or whole and cut off",
    )
    build.add_argument(
        "--sample-query",
        action="append",
        metavar="TEXT",
        help="what people ask, without judgements: adapts the model to the corpus; repeatable",
    )

    sync = steps.add_parser("sync", help="make the index equal to its source")
    sync.add_argument("folder", **folder)
    _add_source(sync, nargs="?")

    search = steps.add_parser("search", help="the documents that answer a query best")
    search.add_argument("folder", **folder)
    search.add_argument("query", nargs="+", help="one query or several, each in quotes")
    search.add_argument("--depth", type=int, default=10, metavar="N", help="documents (default 10)")
    search.add_argument("--words", action="store_true", help="fuse with the ranking of BM25")
    search.add_argument("--json", action="store_true", help="as JSON, with the whole texts")

    add = steps.add_parser("add", help="add a source's documents; these alone are embedded")
    add.add_argument("folder", **folder)
    _add_source(add)

    remove = steps.add_parser("remove", help="remove documents")
    remove.add_argument("folder", **folder)
    remove.add_argument("id", nargs="+", help="ids of the documents")

    listed = steps.add_parser("list", help="ids of the documents")
    listed.add_argument("folder", **folder)

    status = steps.add_parser("status", help="documents, model, source, context, drift")
    status.add_argument("folder", **folder)
    status.add_argument("--json", action="store_true", help="as JSON")

    old = steps.add_parser("convert", help="an index that an earlier cde made, into a new folder")
    old.add_argument("old", type=Path)
    old.add_argument("new", type=Path)


def _add_source(parser: argparse.ArgumentParser, **options: Any) -> None:
    parser.add_argument(
        "source",
        type=Path,
        **options,
        help="a folder of .txt, .md, .rst, .jsonl[.gz], .csv, .tsv, .parquet; or one file",
    )
    for part, default in (("text", "text"), ("title", "title"), ("id", "id or _id")):
        parser.add_argument(
            f"--{part}-column", metavar="NAME", help=f"of tables (default: {default})"
        )


def run(options: argparse.Namespace) -> int:
    """Run `cde index …`."""
    step: dict[str, Callable[[argparse.Namespace], int]] = {
        "build": _build,
        "sync": _sync,
        "search": _search,
        "add": _add,
        "remove": _remove,
        "list": _list,
        "status": _status,
        "convert": _convert,
    }
    return step[options.step](options)


def _columns(options: argparse.Namespace) -> dict[str, str]:
    named = ((part, getattr(options, f"{part}_column")) for part in ("text", "title", "id"))
    return {part: name for part, name in named if name is not None}


def _load(options: argparse.Namespace) -> Index:
    from cde.corpus.index import Index

    return Index.load(options.folder)


@dataclass(frozen=True)
class _Bound:
    """A contextual encoder that is to be bound to so many documents."""

    model: Any
    size: int

    def with_context(self, texts: Sequence[str], seed: int) -> Any:
        return self.model.with_context(texts, size=self.size, seed=seed)


def _build(options: argparse.Namespace) -> int:
    from cde.corpus.encoders import named_system
    from cde.corpus.index import Index

    if options.precision != "auto" and options.model == "bm25":
        raise ValueError("--precision is for embedding, and bm25 embeds nothing")
    # the index keeps the vectors: a second copy in the cache would serve nobody
    model = named_system(options.model, options.max_tokens, False, options.precision)
    if options.context is not None:
        if not hasattr(model, "with_context"):
            raise ValueError(
                f"{options.model} is bound to no context here: only a ContextualEncoder is"
            )
        model = _Bound(model, options.context)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: print(_plain(str(message)), file=sys.stderr)
        index = Index.build(
            options.source,
            options.folder,
            encoder=model,
            columns=_columns(options),
            on_long=options.on_long,
            sample_queries=options.sample_query,
            replace=options.replace,
        )
    print(index)
    return 0


def _report(changes: Changes) -> None:
    from cde.corpus.files import counted

    if changes.left_out:
        print(f"not read: {counted(changes.left_out)}", file=sys.stderr)
    print(changes)


def _sync(options: argparse.Namespace) -> int:
    _report(_load(options).sync(options.source, _columns(options)))
    return 0


def _search(options: argparse.Namespace) -> int:
    found = _load(options).search(options.query, options.depth, words=options.words)
    if options.json:
        rows = found.to_dict(orient="records")
        if len(options.query) == 1:
            rows = [{name: value for name, value in row.items() if name != "query"} for row in rows]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    for query in options.query:
        if len(options.query) > 1:
            print(f"\n{_plain(query)}")
        some = found[found["query"] == query]
        if some.empty:
            print("nothing was found: no document has a word of it")
        for rank, row in enumerate(some.itertuples(), start=1):
            heading = f"  # {_plain(str(row.heading))}" if row.heading else ""
            print(f"{rank:3}  {row.score:.4f}  {_plain(str(row.id))}{heading}")
            print(f"     {_plain(textwrap.shorten(str(row.text), 160, placeholder=' …'))}")
    return 0


def _plain(text: str) -> str:
    """A text whose control characters cannot reach the terminal."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def _add(options: argparse.Namespace) -> int:
    _report(_load(options).add_from(options.source, _columns(options)))
    return 0


def _remove(options: argparse.Namespace) -> int:
    _load(options).remove(options.id)
    print(f"{len(options.id):,} removed")
    return 0


def _list(options: argparse.Namespace) -> int:
    for name in _load(options).ids:
        print(_plain(name))
    return 0


def _convert(options: argparse.Namespace) -> int:
    from cde.corpus.index import Index

    Index.converted(options.old).save(options.new)
    print(Index.load(options.new))
    return 0


def _status(options: argparse.Namespace) -> int:
    index = _load(options)
    found, mark = index.status(), index.fingerprint
    if options.json:
        print(json.dumps(asdict(found) | {"index": mark}, indent=1, ensure_ascii=False))
        return 0
    model = f"{found.model}{found.fingerprint and f', fingerprint {found.fingerprint}'}"
    print(f"documents    {found.documents:,} in {found.passages:,} passages")
    print(f"vectors      {f'{found.dim} dimensions' if found.dim else 'none'}")
    print(f"model        {model}")
    print(f"index        fingerprint {mark[:16]}")
    print(f"source       {found.source or 'none: documents that Python gave'}")
    print(f"context      {found.context or 'none: documents may come and go'}")
    if found.drift is not None and (found.drift.newer or found.drift.gone):
        print(
            f"drift        {found.drift.newer:.0%} of the passages came after the build, "
            f"{found.drift.gone:.0%} of the first ones are gone"
        )
        if found.context and found.drift.distance is not None:
            print(
                f"             mean vector moved by {found.drift.distance:.1f} × what drawing a "
                "context does by chance"
            )
    else:
        print("drift        none: these are the documents of the build")
    return 0
