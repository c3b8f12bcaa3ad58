"""A book of its own for tests of the runner: a copy of the packages with chapters of a second each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from cde_book.checkout import PACKAGES, python_path

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = """# %% [markdown]
# # The chapter {name}

# %%
from cde_book.parameters import Profile, Seed

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0

# %%
{body}

# %% [markdown]
# ## Verdict

# %%
from cde_book import claims
from cde_book import page
from cde.intervals import mean_interval

claims.measure("cde-fig6-cluster-size", mean_interval([1.0, 1.1, 1.2 + seed]), "toy", role="test")
page.answer(f"The answer of {name} is {{6 * 7 + seed}}.")
# after the measurement, which would be a rehearsal at smoke otherwise
page.settings(globals(), laptop={{}})
claims.verdicts()

# %% [markdown]
# ## Run it again

# %% tags=["remove-input"]
page.provenance("{name}")
"""
DRAWING = """import pandas as pd

from cde_book import plots

with plots.figure() as (drawing, axes):
    axes.plot([1, 2], [3, 4])
description = "One rising line from three to four, on plain axes."
plots.show(drawing, "A line.", pd.DataFrame({"y": [3, 4]}), alt=description)"""


class ToyBook:
    """The packages copied to `root`, with the chapters that `write` is given, run by the command."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for package in PACKAGES:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, root / package, ignore=ignored)
        files = "claims.yml exhibits.yml gates.yml references.bib differences.md limits.md"
        for name in files.split():
            shutil.copy(ROOT / "book" / name, root / "book" / name)
        for name in ("_static", "_ext"):
            shutil.copytree(ROOT / "book" / name, root / "book" / name)
        for name in ("_config.yml", "constraints.txt"):
            shutil.copy(ROOT / name, root / name)
        (root / "book" / "moved.yml").write_text("")
        (root / "book" / "intro.md").write_text("# A toy book\n\nTwo chapters.\n")

    def write(self, **bodies: str) -> None:
        lines = ["format: jb-book", "root: book/intro", "chapters:"]
        lines += [f"  - file: book/generated/{name}" for name in ("claims", "rules", "map")]
        lines.append("  - file: book/generated/reproducibility")
        for name, body in bodies.items():
            path = self.root / "notebooks" / "toys" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(CHAPTER.format(name=name, body=body))
            lines.append(f"  - file: book/executed/toys/{name}")
        (self.root / "_toc.yml").write_text("\n".join(lines) + "\n")

    def commit(self) -> None:
        (self.root / ".gitignore").write_text(
            "__pycache__\nbook/reruns\nbook/executed\nbook/_build\n"
        )
        person = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "-A"], [*person, "commit", "-qm", "toy"]):
            subprocess.run(["git", *words], cwd=self.root, check=True)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": python_path(self.root)}
        # a shell without job control starts what it puts in the background with Ctrl-C ignored, and
        # so do its children
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "cde_book.cli", *arguments],
                cwd=self.root,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)

    def cde(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def ran(self, finished: subprocess.CompletedProcess[str]) -> set[str]:
        return {
            line.split(":")[0] for line in finished.stdout.splitlines() if ": runs, since" in line
        }

    def page(self, name: str) -> str:
        return (
            self.root / "book" / "_build" / "html" / "book" / "executed" / "toys" / f"{name}.html"
        ).read_text()

    def record(self, name: str) -> dict:
        return json.loads(
            (self.root / "book" / "executed" / "raw" / "smoke" / f"{name}.json").read_text()
        )
