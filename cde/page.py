"""What a chapter's notebook calls: its settings, its answer, and what it hands to the runner.

A page works the same in JupyterLab, by hand, and under `cde run`: nothing here needs the runner.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from cde import claims, plots
from cde.hardware import describe
from cde.intervals import run_interval
from cde.provenance import account

__all__ = [
    "PROFILES",
    "answer",
    "claims_under_test",
    "finish",
    "imported_modules",
    "mean_and_interval",
    "mean_and_spread",
    "settings",
]

PROFILES = ("smoke", "laptop", "gpu", "paper")
MIME = "application/vnd.cde.page+json"


class Settings(SimpleNamespace):
    """A chapter's settings, as attributes; `profile` and `role` are always among them."""

    profile: str
    role: Literal["test", "rehearsal"]

    def _repr_html_(self) -> str:
        import pandas as pd

        rows = {name: str(value) for name, value in vars(self).items() if name != "role"}
        return plots.table(pd.DataFrame({"value": rows})).markup


def settings(profile: str, profiles: Mapping[str, Mapping[str, Any]], **overrides: Any) -> Settings:
    """The settings of a profile, with whatever parameters were given in their place.

    Args:
        profile: one of `PROFILES`.
        profiles: for each profile, the value of each setting; under "fresh", those of the profile `laptop` in a build
            without records (`make book FRESH=1`): less training, for a whole book that is made anew in one sitting.
        overrides: parameters of the page; None leaves the profile's value.

    Returns:
        An object with one attribute per setting, `profile`, and `role`: what measurements count as,
        "rehearsal" at the profile `smoke` and "test" elsewhere.

    Raises:
        ValueError: an unknown profile, or a parameter that is no setting of this chapter.

    Example:
        >>> settings("smoke", {"smoke": {"size": 10}}, size=None).size
        10
    """
    known = [name for name in profiles if name != "fresh"]
    if profile not in known:
        raise ValueError(f"profile must be one of {', '.join(known)}; it is {profile!r}")
    shortened = profile == "laptop" and "fresh" in profiles and os.environ.get("CDE_FRESH") == "1"
    values = dict(profiles["fresh" if shortened else profile])
    for name, value in overrides.items():
        if name not in values:
            raise ValueError(f"{name!r} is no setting of this chapter; it has {', '.join(values)}")
        if value is not None:
            values[name] = value
    if profile == "smoke":  # its numbers are compared between machines
        os.environ.setdefault("CDE_PRECISION", "float32")
    return Settings(**values, profile=profile, role="rehearsal" if profile == "smoke" else "test")


def mean_and_spread(values: ArrayLike, digits: int = 2) -> str:
    """Numbers of training runs as text: mean ± standard deviation; a single one alone; none as nothing.

    Example:
        >>> mean_and_spread([1.0, 2.0, 3.0]), mean_and_spread([1.0])
        ('2.00 ± 1.00', '1.00')
    """
    found = np.asarray(values, dtype=np.float64).ravel()
    if len(found) < 2:
        return f"{found[0]:.{digits}f}" if len(found) else ""
    return f"{found.mean():.{digits}f} ± {found.std(ddof=1):.{digits}f}"


def mean_and_interval(values: ArrayLike, digits: int | None = None) -> str:
    """Numbers of training runs as text: mean and Student's interval; of a single one that it is one.

    Values that are no numbers (not measured) are left out.

    Args:
        values: of each run.
        digits: behind the point, for columns of numbers that are compared; by default three significant ones.

    Example:
        >>> mean_and_interval([1.0, 2.0, 3.0]), mean_and_interval([1.0]), mean_and_interval([0.1, 0.2], digits=2)
        ('2 [-0.484, 4.48]', '1 (one run)', '0.15 [-0.49, 0.79]')
    """
    found = np.asarray(values, dtype=np.float64).ravel()
    found = found[~np.isnan(found)]

    def shown(value: float) -> str:
        # + 0.0, since a small negative number would be shown as -0.00
        return f"{value:.3g}" if digits is None else f"{round(value, digits) + 0.0:.{digits}f}"

    if len(found) < 2:
        return f"{shown(found[0])} (one run)" if len(found) else "not measured"
    over = run_interval(found)
    return f"{shown(over.estimate)} [{shown(over.low)}, {shown(over.high)}]"


def claims_under_test(chapter: str) -> Any:
    """A table of the ledger's claims that a chapter measures, with the paper's value and the rule."""
    import pandas as pd

    found = [claim for claim in claims.ledger().values() if claim.chapter == chapter]
    rows = [
        {"claim": claim.wording, "where": claim.place, "the paper's value": claim.paper_value, "decided by": claim.test}
        for claim in found
    ]
    return plots.table(pd.DataFrame(rows))


def answer(text: str) -> None:
    """Set the one-paragraph answer that the rendered page shows below its title.

    Args:
        text: Markdown; its numbers are formatted from what the page has computed.
    """
    from IPython.display import Markdown, display

    account.answer = " ".join(text.split())
    display(Markdown(account.answer))  # type: ignore[no-untyped-call]


def imported_modules() -> list[str]:
    """The modules of `cde` that this process has imported, as paths below the package.

    The package's own `__init__.py` is left out: it lists names, and a new one changes no page.
    """
    package = Path(__file__).resolve().parent
    files = {getattr(module, "__file__", None) for name, module in sys.modules.items() if name.split(".")[0] == "cde"}
    found = {str(Path(file).resolve().relative_to(package)) for file in files if file}
    return sorted(found - {"__init__.py"})


class _Report:
    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {MIME: self.content, "text/plain": ""}


def finish() -> _Report:
    """Hand over to the runner what the page has used and found; the runner adds this as a last cell."""
    return _Report(
        {
            "answer": account.answer,
            "measurements": json.loads(claims.to_json(account.measured)),
            "modules": imported_modules(),
            "data": dict(account.loaded),
            "asked": sorted(account.asked),
            "records": sorted(account.read),
            "proofs": dict(account.proofs),
            "device": describe(),
            "python": platform.python_version(),
            "platform": platform.platform(),
        }
    )
