"""What ran around an event of a Kineto trace: Python functions, modules and operators of its thread."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from devwidget.opening.stacks import Stack, read_stack

Event = dict[str, Any]
_SPANS = frozenset({"python_function", "cpu_op", "user_annotation"})
_FUNCTION = re.compile(r"(.*)\((\d+)\): (.*)")
_MODULE = "nn.Module: "


@dataclass(frozen=True, slots=True)
class Around:
    """Where an event was.

    Attributes:
        stack: line of the user and part of the step; the line is that of the `def` of the innermost function.
        module: names of the modules that ran, below the outermost one, joined by dots; None outside of modules.
        modules: the events of these modules, the outermost first.
    """

    stack: Stack
    module: str | None
    modules: tuple[Event, ...]


def around(spans: Iterable[Event], asked: Iterable[Event]) -> Iterator[tuple[Event, Around]]:
    """Each of the asked events of one thread, with what is open when it begins, in the order of time."""
    known: dict[tuple[int, ...], Around] = {}
    open_spans: list[Event] = []
    wanted = {id(event) for event in asked}
    both = {id(event): event for event in (*spans, *asked)}.values()
    for event in sorted(both, key=lambda each: (each["ts"], -each.get("dur", 0))):
        while open_spans and open_spans[-1]["ts"] + open_spans[-1]["dur"] <= event["ts"]:
            open_spans.pop()
        if event.get("cat") in _SPANS:
            open_spans.append(event)
        if id(event) in wanted:
            key = tuple(map(id, open_spans))
            if key not in known:
                known[key] = _around(open_spans)
            yield event, known[key]


def is_span(event: Event) -> bool:
    """Whether other events can be inside of it."""
    return event.get("cat") in _SPANS and event.get("ph") == "X"


def class_of(module: Event) -> str:
    """`Linear` of `nn.Module: Linear_0`."""
    return name_of(module).rpartition("_")[0]


def name_of(module: Event) -> str:
    """`Linear_0`: the profiler numbers the modules of a class."""
    return str(module["name"]).removeprefix(_MODULE)


def _around(spans: Sequence[Event]) -> Around:
    modules = tuple(span for span in spans if span["name"].startswith(_MODULE))
    path = ".".join(map(name_of, modules[1:])) if modules else None
    return Around(read_stack([frame for span in reversed(spans) for frame in _frames(span)]), path, modules)


def _frames(span: Event) -> Iterator[dict[str, Any]]:
    """The span as the frame of a stack: what tells nothing of the user or of the part of the step is left out."""
    name = span["name"]
    function = _FUNCTION.fullmatch(name) if span["cat"] == "python_function" else None
    if function and not _is_standard(function[1]):
        yield {"filename": function[1], "line": int(function[2]), "name": function[3]}
    elif name.startswith("autograd::engine"):
        yield {"filename": "??", "line": 0, "name": f"torch::{name}"}
    elif name.startswith("Optimizer.step#"):
        yield {"filename": "torch/optim/optimizer.py", "line": 0, "name": "step"}


def _is_standard(file: str) -> bool:
    """The profiler cuts the folders of `sys.path` off, also that of the standard library."""
    return re.split(r"[/\\]", file)[0].removesuffix(".py") in sys.stdlib_module_names
