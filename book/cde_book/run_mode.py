"""What a chapter is run for, and how its kernel hears of it.

A run serves its reader; it may also make records, give records their proof, or use none at all.
The command says so in a `RunMode`, which is an argument from there on. A kernel is another process:
the mode crosses to it as JSON in one variable of its environment, which `RunMode.environment`
writes and `this_run` reads. Where nobody has set it, nothing but the page is asked for.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import cache

__all__ = ["EVERY", "PLAIN", "RunMode", "this_run"]

#: in place of a record's name: all that the chapter has
EVERY = "all"


@dataclass(frozen=True)
class RunMode:
    """What is asked of a run beside its parameters.

    Attributes:
        chapter: the notebook's path below the checkout; "" where no command of ours runs it.
        record: the record to make, as `PROFILE/NAME`; `EVERY` for each of the chapter, "" for none.
        add: whether the rows of further seeds join that record.
        prove: the records that get their proof from this run, a miniature.
        fresh: whether no record is used; then `laptop` is shortened.
        precision: what this run computes in, whatever `$CDE_PRECISION` says; "" for what it says.
    """

    chapter: str = ""
    record: str = ""
    add: bool = False
    prove: tuple[str, ...] = ()
    fresh: bool = False
    precision: str = ""

    def makes(self, record: str) -> bool:
        """Whether this record, `PROFILE/NAME`, is to be made."""
        return self.record in (EVERY, record)

    def makes_only_another(self, record: str) -> bool:
        """Whether one record is to be made, and this is not it."""
        return self.record not in ("", EVERY, record)

    def environment(self) -> dict[str, str]:
        """The variables with which a kernel starts, so that it knows of this."""
        own = {"CDE_PRECISION": self.precision} if self.precision else {}
        return {"CDE_RUN": json.dumps(asdict(self)), **own}


#: a run for its reader alone
PLAIN = RunMode()


@cache
def this_run() -> RunMode:
    """What is asked of the run that this process is the kernel of."""
    said = json.loads(os.environ.get("CDE_RUN", "{}"))
    return RunMode(**{**said, "prove": tuple(said.get("prove", ()))})
