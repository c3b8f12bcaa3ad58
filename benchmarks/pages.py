"""The numbers of book/cost.md, book/scale.md and book/reliability.md, from the reports beside them.

python benchmarks/pages.py [cost|scale|reliability]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from measuring.reports import BOOK, CostReport, Ratio, read_cost_reports
from measuring.targets import best, judged, way
from scipy import stats

from cde.storage import atomic_path

Rows = Iterable[Mapping[str, Any]]
PAIRS = 235_000_000  #: of the paper's unsupervised phase (CDE §5)
SHARD = 2**20  #: pairs that are clustered together
FULL = 300  #: 100 iterations, the best of 3 starts: the default of `cluster_pairs`
H100 = 989e12  #: operations a second, as in `cde_studies.estimate`; an H200 has the same


def cell(value: Any) -> str:
    """A value as a cell of a table, a number that is not whole with three digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "< 0.01" if 0 < value < 0.01 else f"{float(f'{value:.3g}'):,.10g}"
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def table(rows: Rows) -> str:
    """A table of Markdown with a column for each name in the rows."""
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[name.replace("_", " ") for name in names], ["---"] * len(names)]
    lines += [[cell(row.get(name)) for name in names] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def about(report: Mapping[str, Any]) -> str:
    """When, at which commit and on what a report was made."""
    changed = "" if report["clean"] else " with changes that are in no commit"
    return f"{report['time'][:10]}, commit `{report['commit'][:8]}`{changed}, {report['device']}"


class Curve(NamedTuple):
    """A cost that grows as a power of a size."""

    exponent: float
    low: float
    high: float
    at: Callable[[float], Any]  #: a size → the cost and its 95 % interval, as an array

    def __str__(self) -> str:
        return f"{self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]"


def fit(sizes: Iterable[float], costs: Iterable[float]) -> Curve:
    """The power of the size that costs follow: least squares of the logarithms."""
    x, y = np.log(np.fromiter(sizes, float)), np.log(np.fromiter(costs, float))
    if len(set(x)) < 3:
        raise ValueError(f"a power is fitted to three sizes or more; there are {len(set(x))}")
    line, middle, spread = stats.linregress(x, y), x.mean(), ((x - x.mean()) ** 2).sum()
    noise = np.sqrt(((y - line.intercept - line.slope * x) ** 2).sum() / (len(x) - 2))
    reach = stats.t.ppf(0.975, len(x) - 2) * noise

    def at(size: float) -> Any:
        half = reach * np.sqrt(1 / len(x) + (np.log(size) - middle) ** 2 / spread)
        return np.exp(line.intercept + line.slope * np.log(size) + np.array([0, -half, half]))

    half = reach / np.sqrt(spread)
    return Curve(line.slope, line.slope - half, line.slope + half, at)


def beside(reports: list[CostReport], cells: Callable[[CostReport], Rows]) -> Rows:
    """Rows of `cells` that differ only in their last value, as one with a column for each class."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for report in reports:
        for one in cells(report):
            *names, last = one
            key = {name: one[name] for name in names}
            row = rows.setdefault(tuple(key.values()), key | {all.named: None for all in reports})
            row[report.named] = one[last]
    return rows.values()


def summary(report: CostReport) -> Rows:
    """Against each peer the best arm's ratio, from the least to the greatest of all cases."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for one in best(report):
        groups.setdefault((way(one), one.peer, one.meaning), []).append(one.ratio.median)
    for (does, peer, meaning), ratios in groups.items():
        ends = dict.fromkeys(f"{one:.2f}" for one in (min(ratios), max(ratios)))
        cost = f", {meaning}" if meaning == "times the cost" else ""
        yield {"what": does + cost, "against": peer, "measured": " to ".join(ends)}


def results(report: CostReport) -> Rows:
    """What was measured of each target, marked where it is reached, with the limit elsewhere."""
    for one in judged(report):
        reached, limit = one["result"].startswith("reached"), one.get("limit")
        mark = ("✓" if one["result"] == "reached" else "(✓)") if reached else "✗"
        most = f", limit {limit.median:.2f}" if limit and not reached else ""
        yield {name: one[name] for name in ("target", "case")} | {
            "measured": f"{one['measured']} {mark}{most}"
        }


def growth(reports: list[CostReport]) -> Rows:
    """The exponents of each series by class, and what its largest size took on the last class."""
    keys = dict.fromkeys((one.question, one.arm) for report in reports for one in report.sizes)
    for key in keys:
        row: dict[str, Any] = {"what": f"{key[0]}: {key[1]}"}
        for report in reports:
            sizes = [one for one in report.sizes if (one.question, one.arm) == key]
            fitted = [one for one in sizes if one.size >= one.fitted_from]
            medians = [statistics.median(one.seconds) for one in fitted]
            row[report.named] = fit([one.size for one in fitted], medians)
        last = max(sizes, key=lambda one: one.size)
        row |= {"expected": last.expected, "largest size": f"{last.size:,} {last.unit}"}
        yield row | {"seconds": statistics.median(last.seconds), "MiB": last.peak}


def comparisons(reports: list[CostReport], question: str) -> Rows:
    """Each comparison of a question, with its ratio on each class."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for report in reports:
        for one in (one for one in report.comparisons if one.question == question):
            key = {"case": one.case, "arm": one.arm, "against": one.peer, "ratio": one.meaning}
            row = rows.setdefault(tuple(key.values()), key | {all.named: None for all in reports})
            agrees = "" if one.agreement is None else f"{one.agrees} {one.agreement:.5g}"
            row |= {report.named: one.ratio, "MiB": one.peak, "peer's MiB": one.peer_peak}
            row["agreement"] = agrees
    return rows.values()


def shares(reports: list[CostReport]) -> Rows:
    """Where the seconds go, on each class that tells."""
    for report in reports:
        for one in report.shares:
            row = {"what": f"{one.question}, {one.case}", "class": report.named, "in": one.arm}
            yield row | {part: f"{share:.0%}" for part, share in one.shares.items()}


def machine(report: CostReport) -> dict[str, Any]:
    """Where and how a report was made."""
    row = {"class": report.named, "measured": about(dict(report)), "seconds": report.seconds}
    row |= {"load at the start": report.load[0], "at the end": report.load[1]}
    return row | {"set": ", ".join(f"`{name}={one}`" for name, one in report.variables.items())}


def cost() -> dict[str, str]:
    """The parts of book/cost.md."""
    reports = read_cost_reports()
    targets = [row for report in reports for row in judged(report)]
    reached = sum(row["result"] == "reached" for row in targets)
    questions = dict.fromkeys(one.question for report in reports for one in report.comparisons)
    return {
        "summary": table(beside(reports, summary)),
        "targets": f"{table(beside(reports, results))}\n\n"
        f"Of these {len(targets)}, {reached} are reached in every round.",
        "growth": table(growth(reports)),
        "shares": table(shares(reports)),
        "machines": table(map(machine, reports)),
        **{one: table(comparisons(reports, one)) for one in questions},
    }


def between(values: Any) -> str:
    """A value, and the least and the greatest that it may have."""
    middle, low, high = (cell(float(one)) for one in values)
    return f"{middle} [{low}, {high}]"


def trainings(runs: list[dict[str, Any]]) -> Rows:
    """What each training took beside its estimate."""
    for name in dict.fromkeys(run["run"] for run in runs):
        some, row = [run for run in runs if run["run"] == name], {"run": name}
        for what in ("seconds", "memory", "storage"):
            predicted, measured = f"predicted_{what}", what
            row[f"{what}, predicted"] = statistics.median(run[predicted] for run in some)
            row[f"{what}, measured"] = statistics.median(run[measured] for run in some)
            row[f"{what}, ratio"] = Ratio.of([run[measured] / run[predicted] for run in some])
        yield row


def plan(report: dict[str, Any]) -> Rows:
    """Each stage at the paper's size: on one thread of this machine, on 8 H100 and on one H200."""
    from cde_studies.estimate import estimate
    from cde_studies.recipes import recipe

    def hours(one: Any) -> dict[str, str]:
        return {"8 H100, hours": between(one / 8), "one H200, hours": between(one)}

    for stage in dict.fromkeys(row["stage"] for row in report["curves"]):
        some = [row for row in report["curves"] if row["stage"] == stage]
        curve = fit([row["pairs"] for row in some], [row["cost"] for row in some])
        row = {"stage": stage, "exponent": str(curve)}
        if stage == "storing vectors":
            yield row | {"at 235 million pairs": f"{between(curve.at(PAIRS) / 2**40)} TiB"}
            continue
        seconds = curve.at(PAIRS)
        if stage == "clustering":
            seconds = curve.at(SHARD) * PAIRS / SHARD * FULL / report["iterations"]
        row["at 235 million pairs"] = f"{between(seconds / 86400)} days of one thread"
        on_gpu = seconds * statistics.median(one["peak"] for one in some) / H100 / 3600
        yield row if stage == "tokenising" else row | hours(on_gpu)
    apart = Ratio.of([run["seconds"] / run["predicted_seconds"] for run in report["runs"]])
    base = recipe("paper", data="pairs/*").base
    for architecture in ("bi-encoder", "contextual"):
        config = replace(base, architecture=architecture, steps=PAIRS // base.batch_size)
        row = {"stage": f"one epoch, {architecture}", "exponent": "1, by the estimate"}
        yield row | hours(estimate(config).gpu_hours * np.array(apart))


def scale() -> dict[str, str]:
    """The parts of book/scale.md."""
    report = json.loads((BOOK / "scale" / "measured.json").read_text(encoding="utf-8"))
    parts = {"trainings": table(trainings(report["runs"])), "plan": table(plan(report))}
    return parts | {"machine": f"Measured {about(report)}."}


def attacks() -> Rows:
    """What each script of tests/reliability counted, a row for each report."""
    outcomes = {
        "kills": "{same:,} of {completions:,} later calls gave the same numbers; {processes_left} "
        "processes and {files_left} files were left",
        "two_hosts": "both hosts had the run of one process in {both_have_it} of {rows} cases",
        "shared_folder": "{wrong:,} of {vectors_read:,} vectors wrong, {vanished:,} files vanished",
        "bad_input": "{worked:,} worked, {refused:,} were refused, {defects:,} defects",
        "mutants": "{caught:,} caught",
        "same_digits": "{differ:,} differ",
    }
    tried = {
        "kills": "{kills:,} kills at random moments of {rows} stages",
        "two_hosts": "{rows} trainings on two hosts, one killed or cut off in most",
        "shared_folder": "{kills:,} kills of two machines that write into one folder",
        "bad_input": "{cases:,} made-up inputs of loaders and public functions",
        "mutants": "{rows:,} faults planted in the numerical core",
        "same_digits": "{numbers:,} numbers of chapters that were executed twice",
    }
    for name, outcome in outcomes.items():
        report = json.loads((BOOK / "reliability" / f"{name}.json").read_text(encoding="utf-8"))
        rows = pd.DataFrame(report["rows"])
        rows["caught"] = rows.get("outcome") == "caught"
        sums = rows.sum(numeric_only=True).astype(int).to_dict() | {"rows": len(rows)}
        row = {"what was tried": f"{tried[name].format(**sums)} (`{name}.py`)"}
        row["what came of it"] = outcome.format(**sums)
        changed = "" if report["clean"] else " and changes"
        yield row | {"counted": f"{report['time'][:10]}, `{report['commit'][:8]}`{changed}"}


def reliability() -> dict[str, str]:
    """The part of book/reliability.md."""
    return {"attacks": table(attacks())}


PARTS = {"cost": cost, "scale": scale, "reliability": reliability}


def filled(page: str, parts: Mapping[str, str]) -> str:
    """The page with each part between its `<!-- name -->` and the next `<!-- end -->`."""
    place = r"(?s)(<!-- (\w+) -->\n).*?(<!-- end -->)"
    return re.sub(place, lambda match: f"{match[1]}\n{parts[match[2]]}\n\n{match[3]}", page)


def write_page(name: str) -> None:
    """Write the numbers of a page anew."""
    path = BOOK / f"{name}.md"
    text = filled(path.read_text(encoding="utf-8"), PARTS[name]())
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("page", nargs="?", choices=PARTS)
    given = parser.parse_args().page
    for name in [given] if given else PARTS:
        write_page(name)
