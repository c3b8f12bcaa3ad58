"""What is checked where it enters: settings, texts and ids, groups, and the vectors of encoders.

A user reads one line that names the setting, what is accepted and what was given.

Cost: one pass over the texts, groups or vectors; microseconds for settings.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import BeforeValidator, ConfigDict, ValidationError

Declared = TypeVar("Declared", bound=type)
Thing = TypeVar("Thing")
#: vectors of texts, `(n, dim)`
Vectors = NDArray[np.float32]
#: places of pairs, documents or clusters
Positions = NDArray[np.int64]


def _whole(value: Any) -> Any:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, bool) and float(value).is_integer():
        return int(float(value))
    raise ValueError("must be a whole number")


def _number(value: Any) -> Any:
    try:
        if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number beyond all others
        pass
    raise ValueError("must be a finite number")


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value
    raise ValueError("must be text")


def _switch(value: Any) -> Any:
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
    # of a data frame Python would take the names of columns; a set has no order of its own
    in_a_row = isinstance(texts, Iterable) and getattr(texts, "ndim", 1) == 1
    if not in_a_row or isinstance(texts, str | Set | Mapping):
        raise TypeError(f"{name} must be a list of strings; it is {shown(texts)}")
    items = list(texts)
    for position, text in enumerate(items):
        if not isinstance(text, str):
            kind = type(text).__name__
            raise TypeError(f"{name} must be strings; item {position} is of type {kind}")
    return items


def checked_instance(value: Any, kind: type[Thing], name: str) -> Thing:
    """What a function is given, where it must be of one class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}; it is {shown(value)}")
    return value


def checked_path(value: Any, name: str = "folder") -> Path:
    """A path, given as one or as text."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a path; it is {shown(value)}")
    return Path(value)


def _checked(check: Callable[[Any], Any], value: Any, name: str) -> Any:
    try:
        return check(value)
    except ValueError as error:
        raise ValueError(f"{name} {error}; it is {shown(value)}") from None


# a setting of a class that declares no fields for pydantic: its value as Python's, by name
checked_number: Callable[[Any, str], float] = functools.partial(_checked, _number)
checked_switch: Callable[[Any, str], bool] = functools.partial(_checked, _switch)
checked_text: Callable[[Any, str], str] = functools.partial(_checked, _text)


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
    for name in sorted(str(name)[:80] for name in names)[:10]:
        nearest = get_close_matches(name, accepted, 1)
        guesses.append(f"{name} ({nearest[0]}?)" if nearest else name)
    return f"there is no {what} {', '.join(guesses)}; known are {', '.join(accepted)}"


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
    if kind == "missing":
        return f"{name} must be given"
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
    """Make a frozen dataclass of keyword settings whose annotations are checked."""
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
            raise ValueError("; ".join(sentences(error))) from None

    made.__init__ = init  # type: ignore[method-assign]
    return made  # type: ignore[return-value]


def group_numbers(groups: Any, name: str, count: int | None = None) -> NDArray[np.int64]:
    """The number of each item's group, by the order of their names."""
    if isinstance(groups, str | bytes | Set | Mapping) or not isinstance(groups, Iterable):
        raise TypeError(f"{name} must be a list, one for each item; it is {shown(groups)}")
    # never a table, whatever the items
    values = groups if isinstance(groups, np.ndarray) else np.fromiter(groups, object)
    if values.ndim != 1:
        raise ValueError(f"{name} must be a row, one for each item; it has shape {values.shape}")
    if count not in (None, len(values)):
        raise ValueError(
            f"{name} must hold one for each of the {count} pairs; it has {len(values)}"
        )
    items, accepted = values.tolist(), str | int | float | np.integer | np.floating
    for position, value in enumerate(items):
        wrong = not isinstance(value, accepted) or value in (math.inf, -math.inf)
        if wrong or value != value:  # as what is not a number
            said = f"item {position} is {shown(value)}"
            raise ValueError(f"{name} must be strings or numbers; {said}")
    if len({isinstance(value, str) for value in items}) > 1:
        raise ValueError(f"{name} must be all strings or all numbers; both were given")
    # not as NumPy's own types, to which numbers above 2^53 may be equal
    order = {one: number for number, one in enumerate(sorted(set(items)))}
    return np.array([order[one] for one in items], dtype=np.int64)


_SURROGATE = re.compile("[\ud800-\udfff]")


def half_of_a_pair(text: str) -> int | None:
    """Where a text holds half of a surrogate pair, which no encoding has; None for a whole text."""
    found = None if text.isascii() else _SURROGATE.search(text)
    return None if found is None else found.start()


def encodable(texts: Any, name: str = "texts") -> list[str]:
    """Texts as a list, of which each can be written as UTF-8: what a tokenizer takes."""
    items = checked_texts(texts, name)
    for position, text in enumerate(items):
        if (place := half_of_a_pair(text)) is not None:
            half = f"half of a surrogate pair, {text[place]!r}, at character {place}: leave it out"
            raise ValueError(f"{name} must be whole text; item {position} has {half}")
    return items


def checked_ids(ids: Any, name: str = "ids") -> list[str]:
    """Ids as a list: texts that trec_eval can hold, which is written in C."""
    items = encodable(ids, name)
    for position, one in enumerate(items):
        if "\0" in one:
            said = f"item {position} is {shown(one)}"
            raise ValueError(f"{name} must not hold NUL, where trec_eval ends a name; {said}")
    return items


#: squares of a vector's length: products of shorter or longer ones leave single precision
_SHORTEST, _LONGEST = 1e-36, 1e36


def called(thing: object) -> str:
    """What an object is called in a message: what it says of itself, or its class."""
    said = repr(thing)
    return type(thing).__name__ if " object at 0x" in said or "\n" in said else said


def encoded(
    encoder: Any,
    texts: Sequence[str],
    what: Literal["queries", "documents"],
    dim: int | None = None,
) -> NDArray[Any]:
    """Vectors of queries or of documents by an encoder, checked."""
    encode = encoder.encode_queries if what == "queries" else encoder.encode_documents
    return checked_vectors(encode(texts), encoder, what, len(texts), dim)


def as_array(given: Any) -> NDArray[Any]:
    """What was given as an array, not copied where it is one already; of objects where none is."""
    if callable(getattr(given, "detach", None)):  # a tensor: of any device, with or without a graph
        given = given.detach().cpu()
        given = given.float() if str(given.dtype) == "torch.bfloat16" else given
    try:
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError):  # rows of several lengths; a sparse tensor
        return np.empty(0, object)


def array_of_numbers(given: Any, name: str) -> NDArray[Any]:
    """An array of real numbers."""
    array = as_array(given)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be an array of real numbers; they are {shown(given)}")
    if array.ndim == 2 and len(array) and array.shape[1] == 0:
        raise ValueError(f"{name} must have a dimension or more; they are {array.shape}")
    return array


def checked_vectors(
    given: Any, encoder: object, what: str, count: int, dim: int | None = None
) -> NDArray[Any]:
    """What an encoder gave, `(count, dim)`: a finite vector above zero for each text, or zeros for
    some if its `zeros_for_unknown` is true, as of an encoder of words.
    """
    vectors = as_array(given)
    numbers = vectors.dtype.kind in "fiu"
    fit = numbers and vectors.ndim == 2 and len(vectors) == count
    if not fit or (count and vectors.shape[1] == 0) or dim not in (None, vectors.shape[1]):
        gave = f"vectors of shape {vectors.shape}" if numbers else "no vectors"
        expected = f"({count}, {'dim' if dim is None else dim})"
        raise ValueError(f"{called(encoder)} gave {gave} for {count} {what}; expected {expected}")
    squares = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64, casting="unsafe")
    zeros = squares == 0
    unknown = getattr(encoder, "zeros_for_unknown", False) is True and not zeros.all()
    bad = {
        "numbers that are not finite": ~np.isfinite(squares),
        "only zeros": np.zeros_like(zeros) if unknown else zeros,
        "lengths that single precision cannot multiply": ~zeros
        & ((squares < _SHORTEST) | (squares > _LONGEST)),
    }
    for problem, rows in bad.items():
        if rows.any():
            raise ValueError(
                f"{called(encoder)} gave vectors that nothing can be ranked by: of {count} {what}, "
                f"{int(rows.sum())} have {problem}, the first in row {int(rows.argmax())}"
            )
    return vectors
