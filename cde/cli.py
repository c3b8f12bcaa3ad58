"""The command `cde`: index one's own text, and look at this machine.

cde index build | search | add | remove | status
cde sources
cde doctor

An installed package adds commands of its own as an entry point of the group `cde.commands`: a
module with `add_parsers(commands)`, which gives each of its parsers the default `do`, a function of
the options that returns the exit status. The book's are such (`cde_book.cli`). A function
`checks()` in it adds to `cde doctor`.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from types import ModuleType

from cde.corpus import commands as index_commands
from cde.hardware import prefer_short_waits
from cde.storage import cache_root, told_of_the_disk

__all__ = ["main"]

# the processes that the command starts inherit it
prefer_short_waits()


def _parser(more: Sequence[ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cde", description="Contextual document embeddings, and the book about them."
    )
    parser.add_argument("--version", action="version", version=f"cde {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in more:
        module.add_parsers(commands)
    index_commands.add_parser(commands)
    sources = commands.add_parser("sources", help="list the collections that can be loaded here")
    sources.set_defaults(do=_sources)
    doctor = commands.add_parser("doctor", help="check this machine: devices, data, disk, versions")
    doctor.set_defaults(do=lambda _: _doctor(more))
    return parser


def _version() -> str:
    try:
        return version("contextual-document-embeddings")
    except PackageNotFoundError:  # on the path, not installed
        return "not installed"


def _sources(_: argparse.Namespace) -> int:
    """Print the collections that can be loaded here."""
    from cde.data import list_sources

    for source in list_sources():
        print(f"{source.name:<36} {source.kind:<18} {source.location}")
    print(
        "also: folder:<path>, hub:<repo>[:<config>]; set CDE_DATA to a folder with beir/ and "
        "pairs/ for more"
    )
    return 0


def _doctor(more: Sequence[ModuleType]) -> int:
    from cde.doctor import report

    return report([module.checks for module in more if hasattr(module, "checks")])


def main(arguments: Sequence[str] | None = None, more: Sequence[ModuleType] = ()) -> int:
    """Run the command; return its exit status (0 well, 1 a check or a chapter failed, 2 bad
    input).
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = given[0] if given else ""
    modules = {module.__name__: module for module in more}
    try:
        for point in entry_points(group="cde.commands"):
            if point.value not in modules:
                modules[point.value] = point.load()
        with told_of_the_disk():
            options = _parser(list(modules.values())).parse_args(given)
            return int(options.do(options))
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


if __name__ == "__main__":
    sys.exit(main())
