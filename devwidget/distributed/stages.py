"""Which stages of a pipeline this process runs, from torch's own objects in the variables of its main thread."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from devwidget.capture.object_fields import dict_of, is_scalar, module_name, mro_of, parts_of, stored
from devwidget.distributed.model_search import variables

_LIBRARY = "torch.distributed.pipelining"
_MOST_VALUES = 5000


def find_stages(frames: Iterable[FrameType]) -> tuple[int, ...]:
    """Their numbers; () where torch's pipelines are not in use, or no variable holds a stage."""
    if _LIBRARY not in sys.modules:
        return ()
    found: set[int] = set()
    for number, value in enumerate(variables(frames)):
        if number == _MOST_VALUES:
            break
        found.update(
            _number(stage) for each in (value, *_fields(value)) for stage in (each, *_members(each)) if _is_stage(stage)
        )
    return tuple(sorted(found))


def _is_stage(value: object) -> bool:
    of_library = any(module_name(kind).startswith(_LIBRARY) for kind in mro_of(type(value)))
    return of_library and type(dict_of(value).get("stage_index")) is int


def _number(stage: object) -> int:
    return int(dict_of(stage)["stage_index"])


def _fields(value: object) -> Iterator[Any]:
    """Of a schedule, which has its stages, and of an object of the user's, such as a trainer."""
    fields = None if is_scalar(value) else dict_of(value)
    yield from (field for _, field in (stored(fields) if type(fields) is dict else ()))


def _members(value: object) -> Iterator[Any]:
    yield from parts_of(value) if type(value) in (list, tuple) else ()
