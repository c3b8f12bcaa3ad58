"""What a chapter is run for, and how its kernel hears of it.

A run serves its reader; it may also make records, give records their proof, or use none at all.
To its kernel, which is another process, the mode crosses as JSON in a variable of the environment.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache

#: in place of a record's name: all that the chapter has
EVERY = "all"


@dataclass(frozen=True)
class RunMode:
    """What is asked of a run beside its parameters."""

    chapter: str = ""  # the notebook's path below the checkout; "": no command of ours runs it
    record: str = ""  # the record to make, as PROFILE/NAME or PROFILE/*; EVERY: each of the chapter
    add: bool = False  # whether the rows of further seeds join that record
    prove: tuple[str, ...] = ()  # the records that get their proof from this run, a miniature
    fresh: bool = False  # whether no record is used; then `laptop` is shortened
    precision: str = ""  # what this run computes in; "": what $CDE_PRECISION says

    def makes(self, record: str) -> bool:
        """Whether this record, `PROFILE/NAME`, is to be made."""
        return self.record == EVERY or fnmatchcase(record, self.record)

    def makes_only_another(self, record: str) -> bool:
        """Whether one record is to be made, and this is not it."""
        return self.record != "" and not self.makes(record)

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
