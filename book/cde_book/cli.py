"""The book's commands: run a chapter, build the book, print the ledger.

cde run CHAPTER [-p name value]… [--profile P] [--out FILE.ipynb]
        [--fresh | --record [PROFILE/NAME] [--add]]
cde book [--profile P] [--only CHAPTER]… [--fresh]
cde claims [--json] [--profile P]
cde compare RERUN [RERUN]… [--profile P]
cde list

`cde run CHAPTER --help` lists a chapter's parameters; `-p name=value` works as well. Nothing heavy
is imported before it is needed: the parsers are part of every call of `cde`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cde.cli
from cde_book import commands
from cde_book.run_mode import EVERY
from cde_studies.benchmark import commands as mteb
from cde_studies.profiles import PROFILES


def add_parsers(parsers: Any) -> None:
    """Add the book's commands to the parser of `cde`."""
    _add_run(parsers)
    _add_book(parsers)
    ledger = parsers.add_parser("claims", help="print each claim of the papers with its verdict")
    ledger.add_argument("--json", action="store_true", help="as JSON, with every measurement")
    ledger.add_argument(
        "--profile", choices=PROFILES, help="whose measurements (default: the last built)"
    )
    ledger.set_defaults(do=commands.claims)
    compare = parsers.add_parser("compare", help="two or more runs of a chapter, side by side")
    compare.add_argument(
        "runs",
        nargs="+",
        metavar="RERUN",
        help="a notebook of cde run, or a chapter's name for its page; one alone is held against "
        "its page",
    )
    compare.add_argument("--profile", choices=PROFILES, help="of the book's pages")
    compare.set_defaults(do=commands.compare)
    listed = parsers.add_parser("list", help="list the chapters with their question and time")
    listed.set_defaults(do=commands.list_chapters)


def _add_run(parsers: Any) -> None:
    said = "execute one chapter with your own parameters"
    run = parsers.add_parser("run", help=said, add_help=False)
    run.add_argument("-h", "--help", action=_Help, nargs=0, help="CHAPTER --help: its parameters")
    run.add_argument("chapter", help="the file's stem, such as headroom")
    run.add_argument(
        "-p", "--parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE")
    )
    run.add_argument("--profile", choices=PROFILES, help="for what is not given (laptop)")
    run.add_argument("--dirty", action="store_true", help="allow --record of uncommitted changes")
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything, say settings, time and memory, run nothing",
    )
    run.add_argument("--out", type=Path, metavar="FILE.ipynb", help="the executed notebook")
    records = run.add_mutually_exclusive_group()
    records.add_argument(
        "--fresh",
        action="store_true",
        help="use no record of the chapter's own; at laptop, with less training",
    )
    records.add_argument(
        "--record",
        nargs="?",
        const=EVERY,
        metavar="PROFILE/NAME",
        help="also write the chapter's records, or this one of them, such as hours/table1-arms; "
        "hours/* writes all of that profile",
    )
    run.add_argument(
        "--add",
        action="store_true",
        help="with --record PROFILE/NAME: add these seeds to those that the record has",
    )
    run.set_defaults(do=commands.run)
    parse = run.parse_known_args
    run.parse_known_args = lambda given, namespace=None: parse(_separated(given), namespace)


def _add_book(parsers: Any) -> None:
    book = parsers.add_parser("book", help="execute the stale chapters and render the book")
    book.add_argument("--profile", choices=PROFILES, default="laptop")
    book.add_argument(
        "--only", action="append", default=[], metavar="CHAPTER", help="only this one"
    )
    book.add_argument(
        "--fresh",
        action="store_true",
        help="execute every chapter, stale or not, and use no record of its own",
    )
    book.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="chapters at once, each with its share of the threads (default: 2 where there are two "
        "cores, 1 on a GPU)",
    )
    book.set_defaults(do=commands.book)


class _Help(argparse.Action):
    """`--help`, which tells of a chapter where one is named."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, *_: Any) -> None:
        chapter = namespace.chapter
        print(commands.describe_chapter(chapter) if chapter else parser.format_help())
        parser.exit()


def _separated(arguments: Sequence[str]) -> list[str]:
    """`-p name=value` as `-p name value`, and `--help` behind the chapter whose name it follows."""
    parts: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        follows = parts[-1:] in (["-p"], ["--parameter"])
        parts += [name, value] if follows and equals and name.isidentifier() else [argument]
    return sorted(parts, key=("-h", "--help").__contains__)


def checks() -> Iterator[tuple[str, bool, str]]:
    """What `cde doctor` looks at beside the library, in a checkout: the lock, and the records."""
    from cde_book.checkout import project_root, version_differences

    try:
        project_root()
    except FileNotFoundError:
        return
    from cde_book.records import proof_states

    differences = version_differences()
    yield "lock", not differences, ", ".join(differences[:5]) or "versions as the lock says"
    states = proof_states()
    bad = [one for one in states if one.state in ("stale", "altered")]
    held = sum(one.state == "holds" for one in states)
    waiting = len(states) - held - len(bad)
    later = f", {waiting} not compared here yet (`cde book --profile smoke`)" if waiting else ""
    gone = "".join(f"; {one.state.upper()}: {one.record}" for one in bad)
    yield "records", not bad, f"{held} proofs hold{later}{gone}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `cde` with the book's commands, installed or on the path alone."""
    return cde.cli.main(arguments, [sys.modules[__name__], mteb])


if __name__ == "__main__":
    import cde_book.cli  # under its own name: the entry point finds the same module

    sys.exit(cde_book.cli.main())
