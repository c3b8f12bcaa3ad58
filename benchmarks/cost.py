"""What it costs: every question in a process of its own, all with as many threads, one report.

Questions are the modules of `benchmarks/questions`. Each compares an arm with a named peer, or with
what the machine allows, in rounds that take turns, and measures peak memory in processes of their
own. The report goes to `book/cost/<class>.json`, one for each class of processor, and its numbers
to the page book/cost.md (`pages.py`). `--imitate` makes a report of a lesser class, by environment
variables, and the report says so. With `--only` or `--quick` a report is written where `--out`
says, and nowhere else.

Cost: about a quarter of an hour on two cores; 1.6 GB in the folder for temporary files meanwhile.

    python benchmarks/cost.py [--threads 2] [--rounds 5] [--imitate avx2] [--out FILE.json]
        [--only embedding training] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring.machine import IMITATIONS, environment
from measuring.reports import BOOK, Bound, Comparison, CostReport, Size

QUESTIONS = ("embedding", "context", "training", "shares", "clustering", "growth", "memory")
PARTS = ("comparisons", "sizes", "bounds", "shares")
HERE = Path(__file__).resolve().parent


def processors() -> int:
    """As many as this process may use processors; Linux tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ask(question: str, options: argparse.Namespace) -> None:
    """In a process of its own: measure one question, and write what was found."""
    import torch
    from measuring.comparing import measured
    from measuring.machine import cpu_class, imitated, variables

    from cde import hardware

    torch.set_num_threads(options.threads)
    found: dict[str, Any] = {part: [] for part in PARTS}
    for part, rows in measured(question, options.quick, options.rounds):
        found[part] += rows
        for row in rows:
            show(part, row)
    found |= {"device": hardware.describe(), "cpu_class": cpu_class(), "variables": variables()}
    found["imitated"] = imitated()
    Path(options.out).write_text(json.dumps(found), encoding="utf-8")


def show(part: str, row: dict[str, Any]) -> None:
    if part == "comparisons":
        one = Comparison(**row)
        numbers = f"{one.ratio.median:.2f} ({one.ratio.least:.2f} to {one.ratio.greatest:.2f})"
        agreement = "" if one.agreement is None else f"; {one.agrees} {one.agreement:.4g}"
        print(
            f"{one.question}, {one.case}: {one.arm} against {one.peer}: {numbers} {one.meaning}"
            f"{agreement}{one.note and f' ({one.note})'}",
            flush=True,
        )
    elif part == "sizes":
        size = Size(**row)
        peak = "" if size.peak is None else f", {size.peak:,.0f} MiB"
        print(f"{size.arm}, {size.size:,} {size.unit}: {min(size.seconds):.3g} s{peak}", flush=True)
    elif part == "shares":
        spent = ", ".join(f"{name} {share:.0%}" for name, share in row["shares"].items())
        print(f"{row['question']}, {row['case']}, {row['arm']}: {spent}", flush=True)
    else:
        bound = Bound(**row)
        print(f"{bound.question}, {bound.size:,}: {bound.used:.2f} of {bound.allowed:g} GB")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Every question, one after the other."""
    variables = environment(options.threads, options.imitate)
    paths = [str(HERE), str(HERE.parent), variables.get("PYTHONPATH", "")]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    found: dict[str, Any] = {part: [] for part in PARTS}
    with tempfile.TemporaryDirectory() as folder:
        for question in options.only:
            begun, answer = time.perf_counter(), Path(folder) / f"{question}.json"
            command = [sys.executable, __file__, "--ask", question, "--out", str(answer)]
            command += ["--threads", str(options.threads), "--rounds", str(options.rounds)]
            subprocess.run(
                [*command, *(["--quick"] if options.quick else [])], env=variables, check=True
            )
            answered = json.loads(answer.read_text(encoding="utf-8"))
            for part in PARTS:
                found[part] += answered.pop(part)
            found |= answered
            print(f"{question}: {time.perf_counter() - begun:.0f} s", flush=True)
    return found


def report(options: argparse.Namespace) -> None:
    from pages import write_page

    from cde.provenance import commit, libraries, now
    from cde.storage import atomic_path

    head, dirty = commit(apart_from="book/cost*")
    begun, load = time.perf_counter(), os.getloadavg()[0]
    found = run(options)
    whole = CostReport(
        time=now(),
        commit=head,
        clean=not dirty,
        threads=options.threads,
        load=(load, os.getloadavg()[0]),
        libraries=libraries(),
        seconds=time.perf_counter() - begun,
        **found,
    )
    out = options.out
    if out is None and not options.quick and options.only == list(QUESTIONS):
        out = BOOK / "cost" / f"{whole.cpu_class}.json"
    if out is None:
        print("no report is written: of some questions, or a miniature, only with --out")
        return
    with atomic_path(Path(out)) as temporary:
        temporary.write_text(whole.model_dump_json(indent=1) + "\n", encoding="utf-8")
    print(f"{whole.seconds:.0f} s in all; the report is {out}")
    if Path(out).resolve().parent == BOOK / "cost":
        write_page("cost")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--threads", type=int, default=processors())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--imitate", choices=IMITATIONS, help="a lesser class of processor")
    parser.add_argument("--out", help="the report's file; by default book/cost/<class>.json")
    parser.add_argument("--quick", action="store_true", help="a miniature, in less than a minute")
    parser.add_argument("--ask", choices=QUESTIONS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    if options.ask:
        ask(options.ask, options)
    else:
        report(options)


if __name__ == "__main__":
    main()
