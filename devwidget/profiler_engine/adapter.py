"""What differs from torch to torch in what its profiler notes: checked before it starts, told alike to all who read it.

Since 2.8 it notes which overload of an operator ran; before, what went in tells.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from devwidget.capture import torch_internals

_NAMES_OVERLOADS = hasattr(torch_internals.find_optional("ProfilerEvent"), "overload_name")


def list_missing() -> Iterator[str]:
    """What this torch lacks of that."""
    yield from torch_internals.list_absent(torch_internals.NEEDED["recording by torch's profiler"])
    paths = (f"{record}.{name}" for record, names in torch_internals.PROFILER_FIELDS.items() for name in names.split())
    yield from torch_internals.list_absent({path: path for path in paths})


def make_options() -> Any:
    """The profiler's options: with overloads where it can note them."""
    return torch_internals.ProfilerOptions(**({"capture_overload_names": True} if _NAMES_OVERLOADS else {}))


def overload_of(event: Any) -> str:
    """The name of the overload, "" for the one that has none and for what is no operator."""
    if _NAMES_OVERLOADS:
        name: str = event.overload_name
        return name
    return find_overload(event)


def find_overload(event: Any) -> str:
    """The first overload that takes what went in; "" if none does."""
    return _find_overload(event.name, tuple(map(_kind_of, event.extra_fields.inputs)))


def has_kernel(name: str, overload: str, key: str) -> bool:
    """Whether an operator has a kernel for a dispatch key; what is no operator, which the profiler names too, has none."""
    try:
        return bool(torch_internals.has_kernel(f"{name}.{overload}" if overload else name, key))
    except RuntimeError:
        return False


def _kind_of(value: Any) -> str:
    """What torch has noted; nothing is what it notes of lists of numbers and of texts, too."""
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else "bool"
    return "list" if isinstance(value, list) else "number" if isinstance(value, int | float | complex) else "tensor"


@functools.cache
def _find_overload(name: str, kinds: tuple[str, ...]) -> str:
    schemas = [each for each in torch_internals.schemas_of(name) if len(each.arguments) == len(kinds)]
    return next((each.overload_name for each in schemas if all(map(_is_taken, each.arguments, kinds))), "")


_TAKEN = {
    "tensor": re.compile(r"Tensor|Optional\[Tensor\]"),
    "list": re.compile(r".*List\[.*Tensor.*"),
    "bool": re.compile(r"bool|Optional\[bool\]|number|Optional\[number\]"),
    "number": re.compile(r"(Optional\[)?(int|float|number|Scalar|complex|Union\[.*)\]*"),
    "nothing": re.compile(r"(?!(Tensor|int|float|bool|number|Scalar|complex|List\[Tensor\])$).*"),
}
"""What torch has noted -> the types of arguments that it may be."""


def _is_taken(argument: Any, kind: str) -> bool:
    """Whether an argument takes a value of this kind."""
    return _TAKEN[kind].fullmatch(str(argument.type)) is not None
