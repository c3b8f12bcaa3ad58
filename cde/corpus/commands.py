"""`cde index` on the shell: build an index of one's own text, search it, change it, look at it.

cde index build SOURCE FOLDER [--model M] [--also M]… [--context N] [--precision P] [--replace]
cde index search FOLDER QUERY… [--depth N] [--json]
cde index add FOLDER SOURCE [--update]
cde index remove FOLDER ID…
cde index status FOLDER [--json]

Every folder that `cde.Index.save` or `cde.corpus.build_index` wrote will do, and what is made here
is read by `cde.Index.load`. Each command returns the exit status; bad input is an exception whose
message is for the user.

Nothing heavy is imported before it is needed: the parser is part of every call of `cde`.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cde.corpus.folders import State

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
        "--also",
        action="append",
        default=[],
        metavar="MODEL",
        help="another model, whose ranking is fused with the first one's; repeatable",
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

    search = steps.add_parser("search", help="the documents that answer a query best")
    search.add_argument("folder", **folder)
    search.add_argument("query", nargs="+", help="one query or several, each in quotes")
    search.add_argument("--depth", type=int, default=10, metavar="N", help="documents (default 10)")
    search.add_argument("--json", action="store_true", help="as JSON, with the whole texts")

    add = steps.add_parser("add", help="add a source's documents; these alone are embedded")
    add.add_argument("folder", **folder)
    _add_source(add)
    add.add_argument(
        "--update",
        action="store_true",
        help="pass over documents that are there, and replace those whose text has changed",
    )

    remove = steps.add_parser("remove", help="remove documents")
    remove.add_argument("folder", **folder)
    remove.add_argument("id", nargs="+", help="ids of the documents")

    status = steps.add_parser("status", help="documents, model, context, drift, cost")
    status.add_argument("folder", **folder)
    status.add_argument("--json", action="store_true", help="as JSON")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, help="a folder of .txt, .md, .jsonl[.gz], .csv, .tsv, .parquet; or one"
    )
    for part, default in (("text", "text"), ("title", "title"), ("id", "id or _id")):
        parser.add_argument(
            f"--{part}-column", metavar="NAME", help=f"of tables (default: {default})"
        )
    parser.add_argument(
        "--largest", type=int, metavar="BYTES", help="leave larger documents out (default: 10 MB)"
    )


def run(options: argparse.Namespace) -> int:
    """Run `cde index …`."""
    step: dict[str, Callable[[argparse.Namespace], int]] = {
        "build": _build,
        "search": _search,
        "add": _add,
        "remove": _remove,
        "status": _status,
    }
    return step[options.step](options)


def _read(options: argparse.Namespace) -> dict[str, str]:
    from cde.corpus.files import LARGEST, left_out_of, read_texts

    parts = ("text", "title", "id")
    columns = {part: name for part in parts if (name := getattr(options, f"{part}_column"))}
    texts, left_out = read_texts(
        options.source, columns, LARGEST if options.largest is None else options.largest
    )
    if left_out:
        print(left_out_of(options.source, len(texts), left_out), file=sys.stderr)
    return texts


def _build(options: argparse.Namespace) -> int:
    from cde.corpus.building import finished_parts
    from cde.corpus.folders import build_folder, named_model

    names = [options.model, *options.also]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{', '.join(sorted(twice))} is named twice: name each model once")
    models = {}
    for place, name in enumerate(names):  # misspelt names are told before a long reading
        contextual = options.context if place == 0 else None
        tokens = options.max_tokens if name == "minilm" else None
        models[name] = named_model(name, contextual, tokens, options.precision)
    if options.max_tokens is not None and "minilm" not in models:
        raise ValueError("--max-tokens is for minilm, which is none of the models here")
    if options.precision != "auto" and set(models) == {"bm25"}:
        raise ValueError("--precision is for embedding, and bm25 embeds nothing")
    texts = _read(options)
    if parts := finished_parts(options.folder):
        print(f"{options.folder}: going on after {parts} parts of an interrupted build")
    for one in build_folder(texts, options.folder, models, replace=options.replace):
        print(one)
    return 0


def _search(options: argparse.Namespace) -> int:
    from cde.corpus.folders import open_folder, search_folder

    found = search_folder(open_folder(options.folder), options.query, options.depth)
    if options.json:
        rows = found.to_dict(orient="records")
        if len(options.query) == 1:
            rows = [{name: row[name] for name in ("id", "score", "text")} for row in rows]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    for query in options.query:
        if len(options.query) > 1:
            print(f"\n{query}")
        some = found[found["query"] == query] if "query" in found else found
        if some.empty:
            print("nothing was found")
        for rank, row in enumerate(some.itertuples(), start=1):
            print(f"{rank:3}  {row.score:.4f}  {row.id}")
            print(textwrap.indent(textwrap.shorten(str(row.text), 160, placeholder=" …"), " " * 5))
    return 0


def _add(options: argparse.Namespace) -> int:
    from cde.corpus.folders import change_folder

    indexes, new, gone = change_folder(options.folder, _read(options), update=options.update)
    print(f"{new - gone:,} added, {gone:,} replaced: {len(indexes[0]):,} documents")
    return 0


def _remove(options: argparse.Namespace) -> int:
    from cde.corpus.folders import change_folder

    indexes, _, gone = change_folder(options.folder, remove=options.id)
    print(f"{gone:,} removed: {len(indexes[0]):,} documents")
    return 0


def _status(options: argparse.Namespace) -> int:
    from cde.corpus.building import finished_parts
    from cde.corpus.folders import states

    parts, place = finished_parts(options.folder), options.folder.expanduser()
    if parts and not (place / "index.json").exists():
        print(
            f"{options.folder}: a build was interrupted after {parts} parts; the same cde index "
            "build goes on from there"
        )
        return 0
    found = states(options.folder)
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=1, ensure_ascii=False))
        return 0
    for one in found:
        print("\n".join(_lines(one)))
    return 0


def _lines(one: State) -> list[str]:
    """What `status` prints of an index."""
    of = f"{one.dim} dimensions" if one.dim else "no vectors"
    lines = [
        one.folder,
        f"  documents    {one.documents:,}, {of}",
        f"  model        {one.model}{one.fingerprint and f', fingerprint {one.fingerprint}'}",
        f"  index        fingerprint {one.index[:16]}",
        f"  context      {one.context or 'none: documents may come and go'}",
    ]
    if one.drift is None:
        lines.append("  drift        not known: an earlier cde saved this index")
    elif one.drift.newer or one.drift.gone:
        lines.append(
            f"  drift        {one.drift.newer:.0%} of the documents came after the build, "
            f"{one.drift.gone:.0%} of the first ones are gone"
        )
        if one.context and one.drift.distance is not None:
            lines.append(
                f"               mean vector moved by {one.drift.distance:.1f} × what drawing a "
                "context does by chance"
            )
    else:
        lines.append("  drift        none: these are the documents of the build")
    if one.seconds is not None:
        lines.append(f"  embed again  {_duration(one.seconds)}, by the speed of the build")
    elif one.dim:
        lines.append("  embed again  not measured")
    return lines


def _duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
