"""The command `cde`: run a chapter, build the book, print the ledger, index one's own text.

cde run CHAPTER [-p name value]… [--profile P] [--out FILE.ipynb]
        [--record [PROFILE/NAME] [--add]]
cde book [--profile P] [--only CHAPTER]… [--fresh]
cde claims [--json | --simulate] [--profile P]
cde compare RERUN [RERUN]… [--profile P]
cde mteb --model MODEL [--tasks TASK …] [--context own|other|random|null …] [--draws N]
cde index build | search | add | remove | status
cde list
cde sources
cde doctor

`cde run CHAPTER --help` lists a chapter's parameters; `-p name=value` works as well.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import signal
import sqlite3
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from cde.benchmark import commands as mteb_commands
from cde.corpus import commands as index_commands
from cde.hardware import prefer_short_waits
from cde.provenance import PROFILES
from cde.storage.disk import cache_root, told_of_the_disk

__all__ = ["main"]

# the chapters' kernels inherit it
prefer_short_waits()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cde", description="The book of contextual document embeddings."
    )
    parser.add_argument("--version", action="version", version=f"cde {version('cde')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="execute one chapter with your own parameters")
    run.add_argument("chapter", help="the file's stem, such as idf_divergence")
    run.add_argument(
        "-p", "--parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE")
    )
    run.add_argument(
        "--profile",
        choices=PROFILES,
        help="scale of every setting that is not given (default: laptop)",
    )
    run.add_argument(
        "--dirty",
        action="store_true",
        help="allow --record with uncommitted changes; the page says so",
    )
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything, say settings, time and memory, run nothing",
    )
    run.add_argument(
        "--out",
        type=Path,
        metavar="FILE.ipynb",
        help="the executed notebook (default: book/reruns/)",
    )
    run.add_argument(
        "--record",
        nargs="?",
        const="1",
        metavar="PROFILE/NAME",
        help="also write the chapter's records, or this one of them, such as hours/table1-arms",
    )
    run.add_argument(
        "--add",
        action="store_true",
        help="with --record PROFILE/NAME: add these seeds to those that the record has",
    )

    book = commands.add_parser("book", help="execute the stale chapters and render the book")
    book.add_argument("--profile", choices=PROFILES, default="laptop")
    book.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CHAPTER",
        help="only this chapter; repeatable",
    )
    book.add_argument(
        "--fresh",
        action="store_true",
        help="execute every chapter, stale or not, and use no record",
    )
    book.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="chapters at once, each with its share of the threads (default: 2 where there are two "
        "cores, 1 on a GPU)",
    )

    ledger = commands.add_parser("claims", help="print each claim of the papers with its verdict")
    ledger.add_argument("--simulate", action="store_true", help="what each rule could have said")
    ledger.add_argument("--json", action="store_true", help="as JSON, with every measurement")
    ledger.add_argument(
        "--profile",
        choices=PROFILES,
        default=None,
        help="whose measurements (default: the last built)",
    )

    index_commands.add_parser(commands)
    compare = commands.add_parser("compare", help="two or more runs of a chapter, side by side")
    compare.add_argument(
        "runs",
        nargs="+",
        metavar="RERUN",
        help="a notebook of cde run, or a chapter's name for its page; one alone is held against "
        "its page",
    )
    compare.add_argument("--profile", choices=PROFILES, default=None, help="of the book's pages")
    mteb_commands.add_parser(commands)
    commands.add_parser("list", help="list the chapters, their questions, and how long they took")
    commands.add_parser("sources", help="list the collections that can be loaded here")
    commands.add_parser("doctor", help="check this machine: versions, devices, data, disk")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status (0 well, 1 a chapter or a check failed, 2 bad input).

    Example:
        >>> main(["run", "no_such_chapter"])
        2
    """
    given = _separated(sys.argv[1:] if arguments is None else arguments)
    command = given[0] if given else ""
    try:
        if command == "run" and {"-h", "--help"} & set(given) and (chapter := _chapter_in(given)):
            from cde.book.chapter_run import describe_chapter

            print(describe_chapter(chapter))
            return 0
        with told_of_the_disk():
            return _dispatch(_parser().parse_args(given))
    except BrokenPipeError:  # the reader of our output has gone, as in `cde list | head`
        sys.stdout = None
        return 0
    except (
        ValueError,
        TypeError,
        ModuleNotFoundError,
        OSError,  # a disk that is full or closed: the message names the path, and what to do
    ) as error:
        print(f"cde {command}: {error}", file=sys.stderr)
        return 2
    except sqlite3.Error as error:
        print(
            f"cde {command}: the store of vectors in {cache_root() / 'embeddings'}: {error}. Wait "
            "for the processes that use it, or set CDE_CACHE to another folder",
            file=sys.stderr,
        )
        return 2
    except RuntimeError as error:
        print(f"cde {command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed again, it would end in a traceback
        print(
            "\ninterrupted: vectors, finished trainings, checkpoints of long ones, finished "
            "chapters and parts of an index are kept; the same command goes on from there",
            file=sys.stderr,
        )
        return 130


def _separated(arguments: Sequence[str]) -> list[str]:
    """`-p name=value` as `-p name value`."""
    parts: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        follows = parts[-1:] in (["-p"], ["--parameter"])
        parts += [name, value] if follows and equals and name.isidentifier() else [argument]
    return parts


def _chapter_in(arguments: Sequence[str]) -> str:
    """The chapter that `cde run … --help` asks about, wherever it stands; "" for none."""
    asked = [one for one in arguments if one not in ("-h", "--help")]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        return str(_parser().parse_args(asked).chapter)
    return ""


def _dispatch(options: argparse.Namespace) -> int:
    if options.command == "doctor":
        from cde.doctor import report

        return report()
    if options.command == "mteb":
        return mteb_commands.run(options)
    if options.command == "run":
        from cde.book.chapter_run import run

        return run(options)
    if options.command == "index":
        return index_commands.run(options)
    from cde.book import commands

    if options.command == "sources":
        return commands.sources()
    if options.command == "list":
        return commands.list_chapters()
    command = {"book": commands.book, "claims": commands.claims, "compare": commands.compare}
    return command[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
