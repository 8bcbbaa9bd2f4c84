"""One program recorded by modes and by torch's profiler: what one of them tells and the other does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import devwidget
from devwidget.records.trace import Trace

Facts = Counter[tuple[Any, ...]]
SEEN_BY_ONE = {"view", "clone", "detach_", "_local_scalar_dense"}
"""Of hooks, of complex gradients and of inference a mode alone sees these; of numbers that C++ reads the profiler."""
SCRIPTED = {"vits"}
"""Models whose backward has other operators where a mode looks on."""
CALLS = {"numpy": "cpu", "__array__": "cpu", "pad": "item"}
CALLS |= dict.fromkeys(("__float__", "__int__", "__index__", "__bool__"), "item")
"""A mode says what reads a copy or a number, the profiler that it was copied or read."""


def _operators(trace: Trace) -> Facts:
    found: Facts = Counter()
    for op in trace.ops:
        if not op.name.startswith("profiler::") and op.name not in SEEN_BY_ONE:
            # Where a mode holds a gradient, torch adds to it out of place.
            found[op.name.removesuffix("_") if op.phase == "backward" else op.name, op.module, op.phase] += op.count
    return found


def _moves(trace: Trace) -> Facts:
    found: Facts = Counter()
    for move in trace.moves:
        what = (move.bytes, move.shape, move.dtype, move.tensors)
        found[(move.source, move.target, *what, move.module, move.phase, move.cause)] += move.count
    return found


def _waits(trace: Trace) -> Facts:
    found: Facts = Counter()
    for wait in trace.waits:
        where = (wait.device, wait.module, wait.phase, wait.library, wait.in_step, wait.turns)
        found[(CALLS.get(wait.call, wait.call), *where)] += wait.count
    return found


def _modules(trace: Trace) -> Facts:
    return Counter((at, event.path, event.class_name, event.calls) for at, event in enumerate(trace.modules))


def _steps(trace: Trace) -> Facts:
    return Counter({("steps",): trace.steps})


FACTS: dict[str, Callable[[Trace], Facts]] = {
    "operators": _operators,
    "moves": _moves,
    "waits": _waits,
    "modules": _modules,
    "steps": _steps,
}


def _lines(trace: Trace) -> set[tuple[Any, ...]]:
    """Where each operator of a forward pass was asked for, of those of which that is known."""
    known = [op for op in trace.ops if op.site is not None and op.site.function and op.name not in SEEN_BY_ONE]
    return {(op.name, op.module, op.site.file, op.site.line) for op in known if op.site and op.phase == "forward"}


@dataclass
class Agreement:
    """What was compared.

    Attributes:
        same: how many facts of each kind both tell.
        differences: program, kind of fact, who tells more, the fact and how often.
    """

    same: Counter[str] = field(default_factory=Counter)
    differences: list[tuple[Any, ...]] = field(default_factory=list)

    def compare(self, name: str, mode: Trace, profiler: Trace) -> None:
        """Compare two recordings of a program; a line is the one that a mode tells, or unknown."""
        assert not [note for note in (*mode.not_checked, *profiler.not_checked) if note.startswith("recorder:")]
        for kind, facts_of in FACTS.items():
            one, other = facts_of(mode), facts_of(profiler)
            self.same[kind] += (one & other).total()
            for who, more in (("mode", one - other), ("profiler", other - one)):
                facts = [each for each in more.items() if not _is_known(name, kind, who, each[0], other)]
                self.differences += [(name, kind, who, *each) for each in facts]
        self.differences += [(name, "lines", "profiler", line, 1) for line in _lines(profiler) - _lines(mode)]

    def __str__(self) -> str:
        return "the same: " + ", ".join(f"{count:,} {kind}" for kind, count in self.same.items())


def _is_known(name: str, kind: str, who: str, fact: tuple[Any, ...], profiled: Facts) -> bool:
    """A checkpoint stops computing again within an operator, which has begun for the profiler."""
    if kind != "operators" or fact[-1] != "backward":
        return False
    return name in SCRIPTED or (who == "profiler" and (*fact[:-1], "forward") in profiled)


Prepared = tuple[Callable[[], object], Any]
"""What is recorded, and its model."""


def record_both(prepare: Callable[[], Prepared]) -> list[Trace]:
    """A program prepared and recorded twice."""
    traces = []
    for engine in ("mode", "profiler"):
        run, model = prepare()
        with devwidget.record(engine=engine) as recording:
            recording.attach(model)
            run()
        traces.append(recording.trace)
    return traces


def compare_all(programs: Iterable[tuple[str, Callable[[], Prepared]]]) -> Agreement:
    """What two recorders tell of many programs."""
    agreement = Agreement()
    for name, prepare in programs:
        agreement.compare(name, *record_both(prepare))
    return agreement
