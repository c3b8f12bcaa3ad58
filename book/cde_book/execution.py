"""Execute a chapter, and tell whether its last execution is still good.

A chapter runs as jupytext → papermill, in a fresh kernel, from the root of the checkout. What it
used is recorded beside the executed notebook; the page is **stale** when any of this has changed:
its own text, its parameters, each module of the checkout that its kernel had imported, the lock,
its claims, and each collection and record it loaded or looked for.

An executed notebook appears whole or not at all. Its log is written after it, and holds its sha256:
a log of another execution, and a notebook or a log that is damaged, are as none.

Many chapters are executed two at a time where there are cores for it: each loads libraries for
seconds, on one core. Cost: the memory of one more chapter (2 GiB).
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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joblib import cpu_count

from cde.provenance import commit, libraries
from cde.storage import atomic_path, content_hash, digest_of, temporary_folder, unsigned, write_json
from cde_book.chapters import Chapter
from cde_book.checkout import PACKAGES, project_root
from cde_book.run_mode import PLAIN, RunMode

if TYPE_CHECKING:
    from nbformat import NotebookNode

#: a page's last cell
_FINISH, _TAGS = "import cde_book.page\n\ncde_book.page.finish()", ["remove-cell", "cde-finish"]
_KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
#: chapters from which on it pays to load the libraries once, and to fork
_MANY = 6
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass
class Execution:
    """What one execution of a chapter used, and how it ended."""

    chapter: str
    profile: str
    parameters: dict[str, Any] = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0
    commit: str = ""
    dirty: bool = False
    notebook: str = ""
    lock: str = ""
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
    memory: float = 0.0  # GiB that the kernel held at the most; 0 is unknown
    error: str = ""
    executed: str = ""  # sha256 of the executed notebook
    recorded: str = ""  # a hash of what the run was asked for, once all of it is made


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
    for module, digest in log.modules.items():
        changed[f"{module} changed"] = _file_hash(root / module) != digest
    for name, key in log.sources.items():
        changed[f"the collection {name} changed"] = _source_key(name) != key
    for name, digest in log.records.items():
        reason = f"the record {name}, or what is known of its proof, changed"
        changed[reason] = record_state(root / name) != digest
    return [reason for reason, so in changed.items() if so]


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


def execute(
    chapter: Chapter,
    parameters: Mapping[str, Any],
    output: Path,
    root: Path | None = None,
    mode: RunMode = PLAIN,
    fork: bool = False,
) -> tuple[NotebookNode, Execution]:
    """Execute a chapter, with a bar over its cells; the notebook is written once it has ended.

    With `fork`, its kernel is a fork of a process that has loaded the libraries.
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
            notebook = chapter.notebook()
            notebook.cells.append(nbformat.v4.new_code_cell(_FINISH, metadata={"tags": _TAGS}))
            notebook.metadata["kernelspec"] = _KERNEL
            nbformat.write(notebook, prepared)
            below = root in chapter.path.parents
            path = str(chapter.path.relative_to(root)) if below else chapter.name
            environment = replace(mode, chapter=path).environment()
            log.error = _run(prepared, temporary, given, root, environment, fork)
        notebook = nbformat.read(temporary, as_version=4)
        log.seconds = round(time.perf_counter() - begun, 1)
        _fill(log, notebook, modules, root)
    write_execution(log, output)
    return notebook, log


def write_execution(log: Execution, notebook: Path) -> None:
    """Write a log beside the notebook that it is of."""
    log.executed = digest_of(notebook)
    write_json(notebook.with_suffix(".json"), asdict(log))


#: threads of a chapter in miniature, alone or beside another: sums in another order could tip a
#: near tie, and a record's proof would fail
_IN_MINIATURE = "1"


def _run(
    prepared: Path,
    output: Path,
    parameters: Mapping[str, Any],
    root: Path,
    environment: Mapping[str, str],
    fork: bool,
) -> str:
    # papermill does not understand annotations such as "int | None" and takes them for unknown; we
    # have checked
    import papermill
    from nbclient.exceptions import DeadKernelError

    logging.getLogger("papermill").setLevel(logging.ERROR)
    own = _variables(parameters, environment)
    try:
        with _kernels.stoppable(), _kernels.another(prepared.parent, own, fork) as kernel:
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
                    "position": None if sys.stderr.isatty() else 0,
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


def _variables(parameters: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a kernel: the run's, then the reader's, then what is usual."""
    usual = {"TOKENIZERS_PARALLELISM": "true", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    if parameters.get("profile") == "smoke":
        usual["OMP_NUM_THREADS"] = _IN_MINIATURE
    return {**usual, **os.environ, **environment}


class _Kernels:
    """The kernels that run here; Ctrl-C goes to their cells, and kills what does not stop."""

    def __init__(self) -> None:
        self.groups: dict[int, bool] = {}  # a kernel's processes → whether its notebook has begun
        self.pressed = 0

    def check(self) -> None:
        if self.pressed:
            raise KeyboardInterrupt

    def send(self, number: int) -> None:
        """Send a signal to all that cells have started; a kernel that runs none yet is killed."""
        for group, has_begun in list(self.groups.items()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number if has_begun else signal.SIGKILL)

    @contextlib.contextmanager
    def stoppable(self) -> Iterator[None]:
        """Raise Ctrl-C once the kernels have ended; a thread leaves that to the main one."""
        before = signal.getsignal(signal.SIGINT)
        in_thread = threading.current_thread() is not threading.main_thread()
        if in_thread or before == signal.SIG_IGN:
            yield
            return
        patience = threading.Timer(5, self.send, [signal.SIGKILL])
        patience.daemon, self.pressed = True, 0

        # in the midst of nbclient's loop a KeyboardInterrupt can leave the kernel alive, or close
        # the sockets that it writes to
        def stop(*_: object) -> None:
            self.pressed += 1  # at once: the next press may interrupt this function
            logging.getLogger("papermill").setLevel(logging.CRITICAL)  # it would tell of dead ones
            self.send(signal.SIGINT if self.pressed == 1 else signal.SIGKILL)
            if self.pressed == 1:
                patience.start()

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            patience.cancel()
            signal.signal(signal.SIGINT, before)
        self.check()

    @contextlib.contextmanager
    def another(
        self, folder: Path, environment: Mapping[str, str], fork: bool
    ) -> Iterator[dict[str, Any]]:
        """Settings of nbclient with which it starts a kernel that can be stopped."""
        from jupyter_client.manager import AsyncKernelManager

        from cde_book.kernels import fork_its_kernel

        kernels, own = self, list[int]()

        class Kernel(AsyncKernelManager):
            async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
                self.connection_file = str(folder / "kernel.json")
                if fork:
                    fork_its_kernel(self)
                await super().start_kernel(**{**options, "env": dict(environment)})
                own.append(self.provisioner.pgid)  # type: ignore[union-attr]
                kernels.groups[own[0]] = False
                if kernels.pressed:
                    kernels.send(signal.SIGKILL)

        try:
            yield {
                "kernel_manager_class": Kernel,
                "on_notebook_start": lambda **_: self.groups.update({own[0]: True}),
            }
        except Exception:
            self.check()  # a cell that was interrupted has not failed
            raise
        finally:
            for group in own:
                self.groups.pop(group, None)
        self.check()


_kernels = _Kernels()


def _fill(log: Execution, notebook: NotebookNode, modules: Mapping[str, str], root: Path) -> None:
    """Complete a log with what the page's last cell has handed over."""
    from cde_book.page import MIME
    from cde_book.records import record_state

    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            report = output.get("data", {}).get(MIME)
            if report is None:
                continue
            for name in report.keys() - {"run", "modules", "asked", "records"}:
                setattr(log, name, report[name])
            log.modules = {module: modules.get(module, "missing") for module in report["modules"]}
            log.sources = {name: _source_key(name) for name in report["asked"]}
            log.records = {name: record_state(root / name) for name in report["records"]}


def tell_of_failure(chapter: str, error: str) -> None:
    """Say on stderr in which cell a chapter failed; nothing where it did not."""
    if error:
        print(f"\nchapter {chapter} failed in {error}\n", file=sys.stderr)


def usual_jobs(profile: str) -> int:
    """How many chapters at once, unless the user says otherwise; a GPU takes one."""
    return 1 if profile in ("gpu", "paper") else min(2, cpu_count())


def execute_all(
    due: Sequence[tuple[Chapter, str]], profile: str, jobs: int, mode: RunMode = PLAIN
) -> dict[str, str]:
    """Execute chapters; each says why when it starts, and a failed one in which cell."""
    # once, before there are threads: one may see what another is importing half made
    import jupytext  # noqa: F401
    import papermill  # noqa: F401

    from cde_book import kernels  # noqa: F401

    if jobs < 1:
        raise ValueError(f"jobs must be 1 or more; it is {jobs}")
    if not due:
        return {}
    jobs = min(jobs, len(due))
    # a process that has looked for CUDA hands it to no fork
    fork = len(due) >= _MANY and hasattr(os, "fork") and not Path("/dev/nvidiactl").exists()
    # each kernel's share; the process that is forked heeds what it starts with
    if profile == "smoke" or jobs > 1:
        share = _IN_MINIATURE if profile == "smoke" else str(max(1, cpu_count() // jobs))
        os.environ.setdefault("OMP_NUM_THREADS", share)

    def one(item: tuple[Chapter, str]) -> tuple[str, str]:
        _kernels.check()
        chapter, why = item
        # with its end in one piece: two chapters may begin at once
        print(f"{chapter.name}: runs, since {why}\n", end="", flush=True)
        place = raw_notebook(chapter, profile)
        error = execute(chapter, {"profile": profile}, place, mode=mode, fork=fork)[1].error
        tell_of_failure(chapter.name, error)
        return chapter.name, error

    if jobs > 1:
        due = [due[-1 - place // 2 if place % 2 else place // 2] for place in range(len(due))]
    # each run changes the folder of the process, to this one, and back to where it was
    with _kernels.stoppable(), contextlib.chdir(project_root()), ThreadPoolExecutor(jobs) as pool:
        return dict(pool.map(one, due))
