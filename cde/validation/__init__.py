"""Settings that are declared once, with type and range, and checked by pydantic when given.

pydantic says what is wrong in several lines and its own words; here a user reads one line that
names the setting, what is accepted and what was given. Unknown names are answered with the nearest
known one. `cde.validation.texts` looks at texts and ids, `cde.validation.vectors` at what encoders
give.

Cost: microseconds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Set
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Annotated, Any, TypeVar, dataclass_transform

import numpy as np
import pydantic
from pydantic import BeforeValidator, ConfigDict, ValidationError

__all__ = [
    "Number",
    "Switch",
    "Text",
    "Whole",
    "checked_number",
    "checked_switch",
    "checked_text",
    "checked_texts",
    "checked_whole",
    "declared",
    "explained",
    "sentences",
    "shown",
    "unknown",
]

Declared = TypeVar("Declared", bound=type)


def _whole(value: Any) -> Any:
    """A whole number of any library as Python's; 1e3 is one, True is none."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, bool) and float(value).is_integer():
        return int(float(value))
    raise ValueError("must be a whole number")


def _number(value: Any) -> Any:
    """A finite number of any library as Python's."""
    try:
        if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number beyond all others
        pass
    raise ValueError("must be a finite number")


def _text(value: Any) -> Any:
    """Text, and no bytes."""
    if isinstance(value, str):
        return value
    raise ValueError("must be text")


def _switch(value: Any) -> Any:
    """True or false, and not what Python takes for them: "false" is a text, and true."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ValueError("must be true or false")


#: a whole number: `3`, `np.int64(3)` or `3.0`, not `True` or `"3"`
Whole = Annotated[int, BeforeValidator(_whole)]
#: a finite number: `0.5`, `np.float32(0.5)` or `1`, not `nan`
Number = Annotated[float, BeforeValidator(_number)]
#: text, not bytes
Text = Annotated[str, BeforeValidator(_text)]
#: `True` or `False`, not `"false"` or 1
Switch = Annotated[bool, BeforeValidator(_switch)]


def shown(value: Any, most: int = 200) -> str:
    """What was given, for a message: of what is long, its start."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = f"a {type(value).__name__} too long to be shown"
    return text if len(text) <= most else f"{text[:most]}…"


def checked_texts(texts: Any, name: str = "texts") -> list[str]:
    """Texts as a list, whatever iterable they came in."""
    if isinstance(texts, str):
        raise TypeError(f"{name} must be a list of strings; one string was given: put it in a list")
    if not isinstance(texts, Iterable) or getattr(texts, "ndim", 1) == 0:
        raise TypeError(f"{name} must be a list of strings; it is {shown(texts)}")
    if isinstance(texts, Set | Mapping):
        raise TypeError(
            f"{name} must be a list of strings; a {type(texts).__name__} was given, whose order is "
            "not that of vectors"
        )
    items = list(texts)
    for position, text in enumerate(items):
        if not isinstance(text, str):
            raise TypeError(
                f"{name} must be strings; item {position} is of type {type(text).__name__}"
            )
    return items


def checked_number(value: Any, name: str) -> float:
    """A finite number of any library as Python's, where a class declares no fields for pydantic."""
    return float(_checked(_number, value, name))


def checked_switch(value: Any, name: str) -> bool:
    """True or false, where a class declares no fields for pydantic."""
    return bool(_checked(_switch, value, name))


def checked_text(value: Any, name: str) -> str:
    """Text, where a class declares no fields for pydantic."""
    return str(_checked(_text, value, name))


def _checked(check: Callable[[Any], Any], value: Any, name: str) -> Any:
    try:
        return check(value)
    except ValueError as error:
        raise ValueError(f"{name} {error}; it is {shown(value)}") from None


def checked_whole(value: Any, name: str, least: int | None = 1) -> int:
    """A whole number of any library as Python's, where a class declares no fields for pydantic."""
    number = int(_checked(_whole, value, name))
    if least is not None and number < least:
        raise ValueError(f"{name} must be {least} or more; it is {shown(value)}")
    return number


def unknown(names: Iterable[str], known: Iterable[str], what: str = "setting") -> str:
    """A sentence on names that nothing is known by, each with the nearest known one."""
    accepted = sorted(known)
    guesses = []
    for name in sorted(names):
        nearest = get_close_matches(name, accepted, 1)
        guesses.append(f"{name} ({nearest[0]}?)" if nearest else name)
    return f"there is no {what} {', '.join(guesses)}; known are {', '.join(accepted)}"


def explained(error: ValidationError) -> str:
    """What pydantic found, a sentence for each setting, in one line."""
    return "; ".join(sentences(error))


def sentences(error: ValidationError) -> list[str]:
    """What pydantic found, a sentence for each setting."""
    return [_sentence(one) for one in error.errors(include_url=False)]


def _sentence(problem: Any) -> str:
    name = ".".join(str(part) for part in problem["loc"][:1]) or "the value"
    context, given = problem.get("ctx", {}), problem.get("input")
    bounds = {
        "greater_than": "above {gt}",
        "greater_than_equal": "{ge} or more",
        "less_than": "below {lt}",
        "less_than_equal": "{le} or less",
    }
    kind = problem["type"]
    if kind in bounds:
        return f"{name} must be {bounds[kind].format(**context)}; it is {shown(given)}"
    if kind == "literal_error":
        accepted = context["expected"].replace(" or ", ", ").replace("'", "")
        return f"{name} must be one of {accepted}; it is {shown(given)}"
    if kind == "value_error" and not problem["loc"]:  # of several settings together
        return str(context["error"])
    if kind == "value_error":
        return f"{name} {context['error']}; it is {shown(given)}"
    return f"{name}: {problem['msg'][0].lower()}{problem['msg'][1:]}; it is {shown(given)}"


@dataclass_transform(frozen_default=True, kw_only_default=True)
def declared(cls: Declared) -> Declared:
    """Make a frozen dataclass of keyword settings whose annotations are checked.

    A setting is `name: Annotated[Whole, Field(ge=1)] = 5`. What concerns several settings is
    checked in a method under `pydantic.model_validator(mode="after")`.
    """
    made = pydantic.dataclasses.dataclass(
        frozen=True, kw_only=True, config=ConfigDict(arbitrary_types_allowed=True)
    )(cls)
    checked = made.__init__
    names = tuple(made.__dataclass_fields__)

    @functools.wraps(checked)
    def init(self: Any, **values: Any) -> None:
        if strange := set(values) - set(names):
            raise ValueError(unknown(strange, names))
        try:
            checked(self, **values)
        except ValidationError as error:
            raise ValueError(explained(error)) from None

    made.__init__ = init  # type: ignore[method-assign]
    return made  # type: ignore[return-value]
