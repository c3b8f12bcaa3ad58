"""What a chapter's parameters may be: one declaration beside each, read before anything runs.

A parameter is `name: kind = default  # meaning` in the cell tagged `parameters`. Its kind is one of
the names below, or of Python's, alone or as `list[kind]`, and with `| None` where the profile's
value stands in. pydantic checks type and range.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from cde.validation import Number, Switch, Text, Whole, sentences, shown

#: the scale of every setting that is not given
Profile = Literal["smoke", "laptop", "gpu", "paper"]
#: the first of the seeds
Seed = Annotated[Whole, Field(ge=0, le=2**31 - 1)]
#: how many: one or more, and no more than any machine holds
Count = Annotated[Whole, Field(ge=1, le=10_000_000)]
#: how many of what is seen one after the other, so that only time limits it
Long = Annotated[Whole, Field(ge=1, le=1_000_000_000)]
#: how many, or none
CountOrZero = Annotated[Whole, Field(ge=0, le=10_000_000)]
#: how many, where one says nothing
Several = Annotated[Whole, Field(ge=2, le=10_000_000)]
#: tokens of a text; MiniLM has positions for 512
Tokens = Annotated[Whole, Field(ge=2, le=512)]
#: layers of a transformer
Layers = Annotated[Whole, Field(ge=1, le=48)]
#: part of a whole
Share = Annotated[Number, Field(gt=0, le=1)]
#: a number above 0
Positive = Annotated[Number, Field(gt=0)]
#: a step size of the optimiser
Rate = Annotated[Number, Field(gt=0, le=1)]

#: each kind, and what is accepted in words
_KINDS: dict[str, tuple[Any, str]] = {
    "Count": (Count, "whole number, 1 or more"),
    "CountOrZero": (CountOrZero, "whole number, 0 or more"),
    "Layers": (Layers, "whole number, 1 to 48"),
    "Literal": (Literal, ""),
    "Long": (Long, "whole number, 1 or more"),
    "Positive": (Positive, "number above 0"),
    "Profile": (Profile, "one of smoke, laptop, gpu, paper"),
    "Rate": (Rate, "number above 0, at most 1"),
    "Seed": (Seed, "whole number, 0 or more"),
    "Several": (Several, "whole number, 2 or more"),
    "Share": (Share, "number above 0, at most 1"),
    "Tokens": (Tokens, "whole number, 2 to 512"),
    "bool": (Switch, "true or false"),
    "float": (Number, "number"),
    "int": (Whole, "whole number"),
    "list": (list, ""),
    "str": (Text, "text"),
}
_NAMES = {name: kind for name, (kind, _) in _KINDS.items()}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a chapter."""

    name: str
    annotation: str
    default: Any
    meaning: str = ""

    @cached_property
    def _kind(self) -> TypeAdapter[Any]:
        try:
            return TypeAdapter(eval(self.annotation, {"__builtins__": {}}, _NAMES))
        except Exception as error:  # an expression may be anything
            raise ValueError(
                f"parameter {self.name} is declared as {shown(self.annotation)}, which is not a "
                f"kind ({error}): accepted are {', '.join(_KINDS)}, list[…] of one, and | None"
            ) from None

    def check(self, value: Any) -> Any:
        """The value as its kind has it: 1e3 is the whole number 1000."""
        if value is None and "None" in self.annotation:
            return None
        try:
            return self._kind.validate_python(value)
        except ValidationError as error:
            (said, *_) = sentences(error)  # of a union, the first kind's
            said = said[said.index("must be") :] if "must be" in said else ""
            what = said.partition(";")[0] or f"must be a {self.accepted}"
            raise ValueError(f"parameter {self.name} {what}; it is {shown(value)}") from None

    @property
    def accepted(self) -> str:
        """What is accepted, in words."""
        bare = self.annotation.replace(" | None", "")
        inner = bare.removeprefix("list[").removesuffix("]") if bare.startswith("list[") else bare
        words = _KINDS[inner][1] if inner in _KINDS else inner
        if inner.startswith("Literal["):
            words = "one of " + ", ".join(str(one) for one in ast.literal_eval(inner[7:]))
        return f"list of {words.replace('number', 'numbers')}" if inner != bare else words


def declared_parameters(source: str, where: str) -> dict[str, Parameter]:
    """The parameters of a cell, by name."""
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{where}: the parameters cell is not Python ({error})") from None
    lines, parameters = source.splitlines(), {}
    for statement in statements:
        if not (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.value
        ):
            raise ValueError(
                f"{where}: the parameters cell may hold only lines such as 'seed: Seed = 0', not "
                f"{shown(ast.unparse(statement))}"
            )
        try:
            default = ast.literal_eval(statement.value)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            raise ValueError(
                f"{where}: the default of parameter {statement.target.id} must be a "
                f"value, such as 3, 'text' or [1, 2]; it is {shown(ast.unparse(statement.value))}"
            ) from None
        name, annotation = statement.target.id, ast.unparse(statement.annotation)
        rest = lines[(statement.end_lineno or 0) - 1].encode()[statement.end_col_offset or 0 :]
        meaning = rest.decode().strip().lstrip("# ")
        parameters[name] = Parameter(name, annotation, default, meaning)
        parameters[name].check(default)
    return parameters


class _Values(yaml.SafeLoader):
    """YAML without what surprises: its version 1.1 reads 010 as 8, 1:30 as 90, 1e3 as text, and
    2026-01-01 as a date.
    """


def _read_number(_: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float:
    text = node.value.replace("_", "")
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


_NUMBER = re.compile(r"[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?$")
_Values.yaml_implicit_resolvers = {
    first: [one for one in resolvers if one[0].endswith((":bool", ":null"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Values.add_implicit_resolver("!number", _NUMBER, None)
_Values.add_constructor("!number", _read_number)


def parse_assignments(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Values of `-p name value` options, as YAML; 1e3 is a number, 010 is ten, 1:30 is text."""
    values = {}
    for name, text in pairs:
        try:
            # nothing at all is YAML for null; on a command line it is a text without letters
            values[name] = yaml.load(text, Loader=_Values) if text.strip() else text
        except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
            raise ValueError(
                f"the value {shown(text)} of parameter {name} cannot be read: {str(error)[:400]}"
            ) from error
    return values
