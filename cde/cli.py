"""The command `cde`: index one's own text, and look at this machine.

cde index build | sync | search | add | remove | list | status | convert
cde sources
cde doctor

An installed package adds commands of its own as an entry point of the group `cde.commands`: a
module with `add_parsers(commands)`, which gives each of its parsers the default `do`, a function of
the options that returns the exit status. The book's are such (`cde_book.cli`). A function
`checks()` in it adds to `cde doctor`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import signal
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from io import TextIOWrapper
from types import ModuleType

from cde.corpus import commands as index_commands
from cde.hardware import prefer_short_waits
from cde.storage import cache_folder, cache_root, lock_reach, told_of_the_disk

__all__ = ["main"]

Check = tuple[str, bool, str]  # what is checked, whether it is well, what was found
#: what a class of machine is fast at; `benchmarks/precision.py` measures it
_CLASSES = {
    "cuda": "a GPU: bfloat16 is faster than float32, and int8 is for CPUs",
    "bfloat16": "a CPU of class bfloat16 (AMX or AMD's AVX512-BF16): faster than float32, and int8 "
    "as fast",
    "avx512": "a CPU of class avx512: bfloat16 is slow, and int8 embeds faster than float32",
    "avx2": "a CPU of class avx2: bfloat16 is slow, and int8 embeds faster than float32",
    "other": "another CPU: whether bfloat16 and int8 are faster than float32 was not measured",
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


def _checks() -> Iterator[Check]:
    import torch

    from cde.data.sources import list_sources
    from cde.hardware import chosen_precision, cpu_class
    from cde.surrogate import minilm_folder

    yield "Python", True, f"{platform.python_version()} on {platform.platform()}"
    gpu = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else "no GPU: everything runs on the CPU"
    )
    yield "device", True, f"{gpu}; {torch.get_num_threads()} threads"
    kind, chosen = cpu_class(), os.environ.get("CDE_PRECISION", "auto")
    own = f" (CDE_PRECISION={chosen})" if chosen != "auto" else ""
    yield "precision", True, f"{_CLASSES[kind]}; auto is {chosen_precision('auto')}{own}"
    flash = importlib.util.find_spec("flash_attn") is not None
    yield (
        "flash-attn",
        True,
        "installed" if flash else "not installed; torch's own attention is used",
    )
    try:
        yield "MiniLM", True, f"{minilm_folder()} (sha256 checked)"
    except (ModuleNotFoundError, ValueError) as error:
        yield "MiniLM", False, str(error)
    folder = cache_folder()
    free = shutil.disk_usage(folder).free / 2**30
    yield "cache", free > 2, f"{folder}, {free:.0f} GiB free"
    if told := _LOCKS.get(reach := lock_reach(folder)):
        yield "locks", reach != "own", told
    try:
        count = sum(source.name.startswith(("beir/", "pairs/")) for source in list_sources())
        data = os.environ.get("CDE_DATA")
        yield "CDE_DATA", True, f"{data}: {count} collections" if data else "not set: pydocs only"
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
    """Run the command; return its exit status (0 well, 1 a check or a chapter failed, 2 bad
    input).
    """
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
