"""Traces of `torch.profiler` (Kineto) as a trace: moves between devices, waits, operators on GPUs, modules.

Modules, lines and parts of the step are there if the profiler ran with `with_stack=True`.
Source of the format: `export_chrome_trace`, and the loggers of Kineto (`output_json.cpp`, `CuptiActivity.cpp`).
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from devwidget.records.device import DeviceId
from devwidget.records.loading.json_io import reread
from devwidget.records.loading.stacks import Stack, read_stack
from devwidget.records.loading.typed_reader import Unexpected
from devwidget.records.loading.untrusted_files import refuse_damaged
from devwidget.records.schema.message import Message
from devwidget.records.trace import ModuleEvent, Move, OpEvent, Trace, Wait

INFERRED = Message(
    "{kind}: {reason}",
    kind=Message("modules and parts of the step"),
    reason=Message("inferred from the stacks of the profiler; each line is the start of its function"),
)
_NO_STACKS = Message(
    "{kind}: {reason}", kind=Message("modules and lines"), reason=Message("the profiler ran without with_stack=True")
)
_CPU = DeviceId("cpu", None)
_WAITING = {"aten::_local_scalar_dense": "item", "aten::nonzero": "nonzero", "aten::masked_select": "masked_select"}
_DTYPES = {"float": "float32", "double": "float64", "long int": "int64", "int": "int32", "c10::Half": "float16"}
_DTYPES |= {"c10::BFloat16": "bfloat16", "bool": "bool", "unsigned char": "uint8"}
Event = dict[str, Any]
_TEXT, _NUMBER = frozenset((str,)), frozenset((int, float))
_KINDS = {"ts": _NUMBER, "dur": _NUMBER, "name": _TEXT, "cat": _TEXT, "ph": _TEXT}
_NUMBERS = frozenset("External id|device|inDevice|fromDevice|toDevice|bytes".split("|"))
_LARGEST = 1 << 63


def read_content(name: str, content: Any, size: int) -> Trace | None:
    """Read what the profiler wrote; None for the file of another tool."""
    if not isinstance(content, dict) or "traceEvents" not in content:
        return None
    with refuse_damaged(lambda error: Message("not a trace of torch.profiler: {error}", error=error)) as place:
        events = list(map(_check_event, place.iterate_list("traceEvents", content["traceEvents"])))
        place.move_to("")
        named = [event for event in events if event.keys() >= {"ts", "name"}]
        return reread(_KinetoReader(named).build_trace())


def _check_event(event: Event) -> Event:
    """Return the event if all that is read of it is of the right kind."""
    for name, kinds in _KINDS.items():
        if name in event and type(event[name]) not in kinds:
            raise Unexpected(Message("a text") if kinds is _TEXT else Message("a number"), event[name], path=name)
    for name in ("ts", "dur"):
        if not -_LARGEST < event.get(name, 0) < _LARGEST:
            raise Unexpected(Message("a number below 2**63"), event[name], path=name)
    args = event.get("args") or {}
    for name in _NUMBERS & args.keys():
        if not -_LARGEST < int(args[name]) < _LARGEST:
            raise Unexpected(Message("a number below 2**63"), args[name], path=f"args.{name}")
    return event


class _KinetoReader:
    """The events of one file, with the GPU events of each operator that launched some."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._start = min((event["ts"] for event in events), default=0)
        self._end = max((event["ts"] + event.get("dur", 0) for event in events), default=0)
        self._launched: dict[int, list[Event]] = defaultdict(list)
        self._modules: list[Event] = []
        spans, asked = [], []
        for event in events:
            if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                self._launched[_external_id(event)].append(event)
            if event.get("cat") in _SPANS and event.get("ph") == "X":
                spans.append(event)
        for event in spans:
            if event["name"].startswith(_MODULE):
                self._modules.append(event)
            elif event["cat"] == "cpu_op" and _external_id(event) in self._launched:
                asked.append(event)
        self._placed = [*_locate_events(spans, [*asked, *self._modules])]

    def build_trace(self) -> Trace:
        launching = [placed for placed in self._placed if placed[0]["cat"] == "cpu_op"]
        return Trace(
            moves=_fold_equal(self._list_moves(launching)),
            waits=_fold_equal(self._list_waits(launching)),
            ops=_fold_equal(self._list_operators(launching)),
            modules=tuple(self._fold_modules(launching)),
            not_checked=(INFERRED,) if self._modules else (INFERRED, _NO_STACKS),
            seconds=max(0.0, (self._end - self._start) / 1e6),
        )

    def _list_moves(self, launching: Iterable[Located]) -> Iterator[_Row]:
        for operator, where, number in launching:
            shape, dtype = _read_shape(operator)
            for copy, source, target in self._find_copies(operator):
                size, stack = int(copy["args"].get("bytes", 0)), where.stack
                move = Move(source, target, size, shape, dtype, where.module, stack.phase, stack.site, "explicit")
                yield move, {"number": number}, {"seconds": copy.get("dur", 0) / 1e6}

    def _list_waits(self, launching: Iterable[Located]) -> Iterator[_Row]:
        """Yield the operators that give the host a value of a GPU."""
        for operator, where, _ in launching:
            call, stack = _WAITING.get(operator["name"]), where.stack
            for _, source, target in self._find_copies(operator):
                if call is not None and target == _CPU:
                    yield Wait(call, source, where.module, stack.phase, stack.site, False), {}, {}
                    break

    def _list_operators(self, launching: Iterable[Located]) -> Iterator[_Row]:
        for operator, where, number in launching:
            device, stack = self._find_device(operator), where.stack
            name = operator["name"].removeprefix("aten::")
            op = OpEvent(name, where.module, stack.phase, stack.site, (device,), device)
            yield op, {"number": number}, {"started": self._seconds_since_start(operator)}

    def _fold_modules(self, launching: Iterable[Located]) -> Iterator[ModuleEvent]:
        """Fold the calls of one path; what runs in a module is on the devices of the operators inside."""
        devices: dict[str, dict[DeviceId, None]] = defaultdict(dict)
        for operator, where, _ in launching:
            names = list(map(numbered_name, where.modules[1:]))
            for depth in range(len(where.modules)):
                devices[".".join(names[:depth])][self._find_device(operator)] = None
        calls: dict[str, list[Located]] = defaultdict(list)
        for placed in self._placed:
            event, where, _ = placed
            if where.modules and event is where.modules[-1]:
                calls[where.module or ""].append(placed)
        for path, same in calls.items():
            event, _, number = same[0]
            used = tuple(devices[path])
            taken = sum(each["dur"] for each, *_ in same) / 1e6
            kind, started = numbered_name(event).rpartition("_")[0], self._seconds_since_start(event)
            yield ModuleEvent(path, kind, used, used, len(same), taken, number=number, started=started)

    def _find_device(self, operator: Event) -> DeviceId:
        return _find_gpu(self._launched[_external_id(operator)][0])

    def _find_copies(self, operator: Event) -> Iterator[tuple[Event, DeviceId, DeviceId]]:
        for event in self._launched[_external_id(operator)]:
            if event["cat"] == "gpu_memcpy" and (ends := _find_ends(event)) is not None:
                yield event, *ends

    def _seconds_since_start(self, event: Event) -> float:
        return float(event["ts"] - self._start) / 1e6


_Row = tuple[Any, dict[str, Any], dict[str, Any]]
"""A row of a trace, the facts of the first of equal rows, and those that the last one has."""


def _fold_equal(rows: Iterable[_Row]) -> tuple[Any, ...]:
    folded: dict[Any, tuple[dict[str, Any], dict[str, Any], int]] = {}
    for row, of_first, of_last in rows:
        first, _, count = folded.get(row, (of_first, of_last, 0))
        folded[row] = first, of_last, count + 1
    return tuple(replace(row, **first, **last, count=count) for row, (first, last, count) in folded.items())


def _locate_events(spans: Sequence[Event], asked: Sequence[Event]) -> Iterator[Located]:
    """Yield the asked events with what is around each, and its number in the order of time."""
    threads: dict[Any, tuple[list[Event], list[Event]]] = defaultdict(lambda: ([], []))
    for which, events in enumerate((spans, asked)):
        for event in events:
            threads[event["pid"], event["tid"]][which].append(event)
    found: list[tuple[Event, Enclosing]] = []
    for of_thread in threads.values():
        if of_thread[1]:
            found += find_enclosing(*of_thread)
    found.sort(key=lambda pair: pair[0]["ts"])
    for number, (event, where) in enumerate(found, 1):
        yield event, where, number


def _find_ends(copy: Event) -> tuple[DeviceId, DeviceId] | None:
    """Return where a copy comes from and goes to; None for one that stays on its device."""
    args, name = copy["args"], copy["name"]
    if "fromDevice" in args:
        source, target = DeviceId("cuda", int(args["fromDevice"])), DeviceId("cuda", int(args["toDevice"]))
        if source != target:
            return (source, target)
        return None
    device = _find_gpu(copy)
    if "HtoD" in name:
        return (_CPU, device)
    if "DtoH" in name:
        return (device, _CPU)
    return None


def _read_shape(operator: Event) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of what an operator copies, if the profiler recorded shapes."""
    args = operator.get("args", {})
    shapes, types = args.get("Input Dims") or [()], args.get("Input type") or [""]
    shape = tuple(int(length) for length in shapes[0] if isinstance(length, int))
    return shape, _DTYPES.get(str(types[0]), str(types[0]))


def _find_gpu(event: Event) -> DeviceId:
    return DeviceId("cuda", max(0, int(event["args"].get("device", event["args"].get("inDevice", 0)))))


def _external_id(event: Event) -> int:
    return int(event.get("args", {}).get("External id", -1))


_SPANS = frozenset({"python_function", "cpu_op", "user_annotation"})
_FUNCTION = re.compile(r"(.*)\((\d+)\): (.*)")
_MODULE = "nn.Module: "


@dataclass(frozen=True, slots=True)
class Enclosing:
    """Where an event was: the line is the `def` of the user's innermost function; `modules` are the events of the modules that
    ran, the outermost first, and `module` the names below it, joined by dots, None outside of modules."""

    stack: Stack
    module: str | None
    modules: tuple[Event, ...]


Located = tuple[Event, Enclosing, int]
"""An event, where it was, and its number in the order of time."""


def find_enclosing(spans: Iterable[Event], asked: Iterable[Event]) -> Iterator[tuple[Event, Enclosing]]:
    """Yield the asked events of one thread with what is open when each begins, in the order of time."""
    known: dict[tuple[int, ...], Enclosing] = {}
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
                known[key] = _describe_enclosing(open_spans)
            yield event, known[key]


def numbered_name(module: Event) -> str:
    """Return `Linear_0` of `nn.Module: Linear_0`: the profiler numbers the modules of a class."""
    return str(module["name"]).removeprefix(_MODULE)


def _describe_enclosing(spans: Sequence[Event]) -> Enclosing:
    modules = tuple(span for span in spans if span["name"].startswith(_MODULE))
    path = None
    if modules:
        path = ".".join(map(numbered_name, modules[1:]))
    frames = list(itertools.chain.from_iterable(map(_span_frames, reversed(spans))))
    return Enclosing(read_stack(frames), path, modules)


def _span_frames(span: Event) -> Iterator[dict[str, Any]]:
    """Return the span as the frame of a stack; nothing of what tells neither of the user nor of the step."""
    name = span["name"]
    function = _FUNCTION.fullmatch(name) if span["cat"] == "python_function" else None
    # The profiler cuts the folders of `sys.path` off: a file of Python itself begins with the name of its module.
    if function and re.split(r"[/\\]", function[1])[0].removesuffix(".py") not in sys.stdlib_module_names:
        yield {"filename": function[1], "line": int(function[2]), "name": function[3]}
    elif name.startswith("autograd::engine"):
        yield {"filename": "??", "line": 0, "name": f"torch::{name}"}
    elif name.startswith("Optimizer.step#"):
        yield {"filename": "torch/optim/optimizer.py", "line": 0, "name": "step"}
