"""Execute a chapter, and tell whether its last execution is still good.

A chapter runs as jupytext → papermill, in a fresh kernel, from the root of the checkout. What it
used is recorded beside the executed notebook: its own text, its parameters, each module of the
checkout that its kernel had imported, the lock, and each collection and record it loaded or looked
for. A page is **stale** when any of these has changed; nothing else makes it so. (jupyter-cache
would not notice an edited module; papermill would only warn of an unknown parameter.)

An executed notebook appears whole or not at all: after an interruption the next call goes on with
the chapters that are not done. Its log is written after it, and holds its sha256: a log of another
execution, and a notebook or a log that is damaged, are as none.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cde.provenance import commit, libraries
from cde.storage import atomic_path, content_hash, digest_of, temporary_folder, unsigned, write_json
from cde_book.chapters import Chapter
from cde_book.checkout import PACKAGES, project_root
from cde_book.run_mode import PLAIN, RunMode

if TYPE_CHECKING:
    from nbformat import NotebookNode

__all__ = [
    "Execution",
    "execute",
    "load_execution",
    "parsed_execution",
    "raw_notebook",
    "stale_reasons",
    "write_execution",
]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass
class Execution:
    """What one execution of a chapter used, and how it ended."""

    chapter: str
    profile: str
    parameters: dict[str, Any]
    started: str
    seconds: float
    commit: str
    dirty: bool
    notebook: str
    lock: str
    claims: str = ""
    without_records: bool = False
    modules: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    records: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    device: str = ""
    python: str = ""
    platform: str = ""
    answer: str = ""
    measurements: list[dict[str, Any]] = field(default_factory=list)
    proofs: dict[str, str] = field(default_factory=dict)
    memory: float = 0.0  # GiB that the kernel held at the most; 0 is unknown
    error: str = ""
    executed: str = ""  # sha256 of the executed notebook
    recorded: str = ""  # the record that the run was asked to make


def raw_notebook(chapter: Chapter, profile: str, root: Path | None = None) -> Path:
    """Where the executed notebook of a chapter is kept; its log is beside it, as JSON."""
    return (
        (root or project_root()) / "book" / "executed" / "raw" / profile / f"{chapter.name}.ipynb"
    )


def load_execution(chapter: Chapter, profile: str, root: Path | None = None) -> Execution | None:
    """The log of the last execution, or None."""
    notebook = raw_notebook(chapter, profile, root)
    try:
        log = parsed_execution(notebook.with_suffix(".json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, TypeError):
        return None  # none yet, a damaged one, or one of an older form: the chapter runs again
    if log.executed and not (notebook.is_file() and digest_of(notebook) == log.executed):
        return None  # a kill came between the two, or the notebook is damaged
    return log


def parsed_execution(text: str) -> Execution:
    """A log from its JSON."""
    return Execution(**unsigned(json.loads(text), since="executed"))


def _file_hash(path: Path) -> str:
    return content_hash([path.read_bytes()]) if path.exists() else "missing"


def stale_reasons(chapter: Chapter, profile: str, root: Path | None = None) -> list[str]:
    """Why a chapter has to run again; empty if its page is fresh."""
    from cde_book.records import record_state

    root = root or project_root()
    log, notebook = load_execution(chapter, profile, root), raw_notebook(chapter, profile, root)
    if log is None and notebook.exists():
        return [f"{notebook} and its log are not of one execution, damaged or of another version"]
    if log is None or not notebook.exists():
        return ["it has not run at this profile"]
    if log.error:
        return ["its last run failed"]
    changed = {
        "it was made without records": log.without_records,
        "its notebook changed": log.notebook != content_hash([chapter.source]),
        "the lock changed": log.lock != _file_hash(root / "constraints.txt"),
        "its claims in the ledger changed": log.claims != _claims_hash(chapter, root),
    }
    reasons = [reason for reason, so in changed.items() if so]
    for module, digest in log.modules.items():
        if _file_hash(root / module) != digest:
            reasons.append(f"{module} changed")
    for name, key in log.sources.items():
        if _source_key(name) != key:
            reasons.append(f"the collection {name} changed")
    for name, digest in log.records.items():
        if record_state(root / name) != digest:
            reasons.append(f"the record {name}, or what is known of its proof, changed")
    return reasons


def _claims_hash(chapter: Chapter, root: Path) -> str:
    """A hash of the ledger's entries for a chapter, and of the gates: its verdicts come of them."""
    from cde_book.ledger import read_ledger

    path, bounds = root / "book" / "claims.yml", root / "book" / "gates.yml"
    entries = read_ledger(path).values() if path.exists() else ()
    parts = [json.dumps(asdict(entry)) for entry in entries if entry.chapter == chapter.name]
    return content_hash(parts + ([bounds.read_text(encoding="utf-8")] if bounds.exists() else []))


def _source_key(name: str) -> str:
    from cde.data.sources import source_key

    try:
        return source_key(name)
    except (FileNotFoundError, ModuleNotFoundError):
        return "missing"


def _prepare(chapter: Chapter) -> NotebookNode:
    import nbformat

    notebook = chapter.notebook()
    last = nbformat.v4.new_code_cell("import cde_book.page\n\ncde_book.page.finish()")
    last.metadata["tags"] = ["remove-cell", "cde-finish"]
    notebook.cells.append(last)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata["kernelspec"] = kernel
    return notebook


def execute(
    chapter: Chapter,
    parameters: Mapping[str, Any],
    output: Path,
    root: Path | None = None,
    mode: RunMode = PLAIN,
    bar: int = 0,
    fork: bool = False,
) -> tuple[NotebookNode, Execution]:
    """Execute a chapter, with a bar over its cells; the notebook is written to `output` once it has
    ended.

    The mode says what the run is for beside its reader. With `fork`, its kernel is a fork of a
    process that has loaded the libraries: where many chapters follow each other, each begins at
    once.
    """
    import nbformat

    root = root or project_root()
    given = chapter.check_parameters(parameters)
    head, dirty = commit(root)
    log = Execution(
        chapter=chapter.name,
        profile=str(given.get("profile", chapter.parameters["profile"].default)),
        parameters=given,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=0,
        commit=head,
        dirty=dirty,
        notebook=content_hash([chapter.source]),
        lock=_file_hash(root / "constraints.txt"),
        claims=_claims_hash(chapter, root),
        without_records=mode.fresh,
        libraries=libraries(),
    )
    # hashed now, not afterwards: an edit during the run makes the page stale, as it should
    modules = {
        str(path.relative_to(root)): _file_hash(path)
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in (".py", ".j2", ".mplstyle")
    }
    begun = time.perf_counter()
    with atomic_path(output) as temporary:
        with temporary_folder() as folder:
            prepared = folder / f"{chapter.name}.ipynb"
            nbformat.write(_prepare(chapter), prepared)
            below = root in chapter.path.parents
            path = str(chapter.path.relative_to(root)) if below else chapter.name
            environment = replace(mode, chapter=path).environment()
            log.error = _run(prepared, temporary, given, root, environment, bar, fork)
        notebook = nbformat.read(temporary, as_version=4)
        log.seconds = round(time.perf_counter() - begun, 1)
        _fill(log, notebook, modules, root)
    write_execution(log, output)
    return notebook, log


def write_execution(log: Execution, notebook: Path) -> None:
    """Write a log beside the notebook that it is of."""
    log.executed = digest_of(notebook)
    write_json(notebook.with_suffix(".json"), asdict(log))


def _run(
    prepared: Path,
    output: Path,
    parameters: Mapping[str, Any],
    root: Path,
    environment: Mapping[str, str],
    bar: int,
    fork: bool,
) -> str:
    # papermill does not understand annotations such as "int | None" and takes them for unknown; we
    # have checked
    import papermill
    from nbclient.exceptions import DeadKernelError

    logging.getLogger("papermill").setLevel(logging.ERROR)
    quiet = {"TOKENIZERS_PARALLELISM": "true", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    try:
        with _stoppable(prepared.parent, {**quiet, **os.environ, **environment}, fork) as kernel:
            papermill.execute_notebook(
                str(prepared),
                str(output),
                parameters=dict(parameters),
                kernel_name="python3",
                cwd=str(root),
                progress_bar={
                    "desc": prepared.stem,
                    "unit": "cell",
                    "mininterval": 0.2 if sys.stderr.isatty() else 10,
                    "position": bar if sys.stderr.isatty() else 0,
                },
                log_output=False,
                start_timeout=120,
                extra_arguments=["--IPKernelApp.log_level=ERROR"],
                **kernel,
            )
    except papermill.PapermillExecutionError as error:
        trace = _ANSI.sub("", "\n".join(error.traceback))
        return f"cell {error.exec_count}: {error.ename}: {error.evalue}\n{trace}"
    except DeadKernelError as error:  # killed from outside, most often for want of memory
        return f"no cell in particular: the kernel died ({error}); was there memory enough?"
    return ""


@contextlib.contextmanager
def _stoppable(
    folder: Path, environment: Mapping[str, str], fork: bool
) -> Iterator[dict[str, Any]]:
    """Settings of nbclient with which Ctrl-C ends the kernel first, and then the run.

    The kernel has this environment; what it takes to reach it is kept in the folder.

    A KeyboardInterrupt in the midst of nbclient's loop can leave the kernel alive, or close the
    sockets that it writes to. So Ctrl-C goes to the kernel's cell, which ends with what it was
    doing. A kernel that runs no cell yet, one that takes five seconds to stop, and one for which
    Ctrl-C is pressed again are killed: what is kept is kept in whole files.
    """
    from jupyter_client.manager import AsyncKernelManager

    from cde_book.kernels import fork_its_kernel

    groups: list[int] = []  # of processes: the kernel and what it has started
    running: list[bool] = []
    pressed = 0

    def send(number: int) -> None:
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)

    class Kernel(AsyncKernelManager):
        async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
            self.connection_file = str(folder / "kernel.json")
            if fork:
                fork_its_kernel(self)
            await super().start_kernel(**{**options, "env": dict(environment)})
            groups.append(self.provisioner.pgid)  # type: ignore[union-attr]
            if pressed:
                send(signal.SIGKILL)

    patience = threading.Timer(5, send, [signal.SIGKILL])
    patience.daemon = True

    def stop(*_: object) -> None:
        nonlocal pressed
        pressed += 1  # at once: the next press may interrupt this function
        logging.getLogger("papermill").setLevel(logging.CRITICAL)  # it would tell of dead kernels
        if running and pressed == 1:
            send(signal.SIGINT)
            patience.start()
        else:
            send(signal.SIGKILL)

    before = signal.getsignal(signal.SIGINT)
    listens = threading.current_thread() is threading.main_thread() and before != signal.SIG_IGN
    if listens:
        signal.signal(signal.SIGINT, stop)
    try:
        yield {
            "kernel_manager_class": Kernel,
            "on_notebook_start": lambda **_: running.append(True),
        }
    except Exception:
        if not pressed:
            raise
    finally:
        patience.cancel()
        if listens:
            signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _fill(log: Execution, notebook: NotebookNode, modules: Mapping[str, str], root: Path) -> None:
    """Complete a log with what the page's last cell has handed over."""
    from cde_book.page import MIME
    from cde_book.records import record_state

    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            report = output.get("data", {}).get(MIME)
            if report is None:
                continue
            for name in report.keys() - {"modules", "asked", "records"}:
                setattr(log, name, report[name])
            log.modules = {module: modules.get(module, "missing") for module in report["modules"]}
            log.sources = {name: _source_key(name) for name in report["asked"]}
            log.records = {name: record_state(root / name) for name in report["records"]}
