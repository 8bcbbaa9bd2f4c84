"""One program recorded by modes and by torch's profiler: what they tell, and each difference with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import devwidget
from devwidget.records.device import DeviceId
from devwidget.records.trace import Trace


class OperatorFact(NamedTuple):
    name: str
    module: str | None
    phase: str
    inputs: tuple[DeviceId, ...]
    output: DeviceId | None


class WaitFact(NamedTuple):
    call: str
    device: DeviceId
    module: str | None
    phase: str
    library: bool
    in_step: bool
    turns: int


Facts = Counter[tuple[Any, ...]]
PACKAGES = "site-packages"
WAIT, READ, CARD = "a wait", "_local_scalar_dense", DeviceId("cuda", 0)


def _operators(trace: Trace) -> Facts:
    found: Facts = Counter()
    for op in trace.ops:
        if not op.name.startswith("profiler::"):  # spans that torch's optimizers name for profilers alone
            found[OperatorFact(op.name, op.module, op.phase, op.inputs, op.output)] += op.count
    return found


def _moves(trace: Trace) -> Facts:
    found: Facts = Counter()
    for move in trace.moves:
        ends, what = (move.source, move.target), (move.bytes, move.shape, move.dtype, move.tensors)
        found[(*ends, *what, move.module, move.phase, move.cause)] += move.count
    return found


def _waits(trace: Trace) -> Facts:
    found: Facts = Counter()
    for wait in trace.waits:
        found[WaitFact(*(getattr(wait, name) for name in WaitFact._fields))] += wait.count
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


def _is_first_left_out(mode: OperatorFact, profiler: OperatorFact) -> bool:
    return mode.output is None and mode._replace(output=profiler.output) == profiler and mode.name.endswith("_backward")


def _is_made_of_nothing(mode: OperatorFact, profiler: OperatorFact) -> bool:
    is_empty = not mode.inputs or mode.name in ("empty_like", "new_empty", "new_empty_strided")
    return is_empty and profiler.output is None and profiler._replace(output=mode.output) == mode


def _is_hooked(mode: OperatorFact, profiler: OperatorFact) -> bool:
    return mode.name == "view" and mode._replace(module=profiler.module) == profiler


def _is_number(mode: OperatorFact, profiler: OperatorFact) -> bool:
    return not mode.inputs and profiler.inputs == (DeviceId("cpu"),) and profiler._replace(inputs=()) == mode


def _is_read(mode: WaitFact, profiler: WaitFact) -> bool:
    return mode.call in ("numpy", "__array__") and mode._replace(call="cpu") == profiler


def _is_number_of_python(mode: WaitFact, profiler: WaitFact) -> bool:
    reads = "__float__", "__int__", "__index__", "__bool__", "pad"
    return mode.call in reads and mode._replace(call="item") == profiler


def _is_seed(mode: OperatorFact, profiler: OperatorFact) -> bool:
    return set(mode.inputs) - set(profiler.inputs) == {DeviceId("cpu")} and mode._replace(inputs=profiler.inputs) == profiler


def _is_added_apart(mode: OperatorFact, profiler: OperatorFact) -> bool:
    is_on_card = mode.output is not None and mode.output.kind == "cuda"
    return is_on_card and (mode.name, mode.phase) == ("add", "backward") and mode._replace(name="add_") == profiler


WAITS: dict[str, Callable[[WaitFact, WaitFact], bool]] = {
    "a mode says what reads a copy, the profiler the copy": _is_read,
    "`float(x)`, and a number among arguments, are no calls for the profiler, which tells the operator": _is_number_of_python,
}
REASONS: dict[str, Callable[[OperatorFact, OperatorFact], bool]] = {
    "a mode says where the first result is, which a formula may leave out; the profiler where any memory was taken": (
        _is_first_left_out
    ),
    "where it is what is empty, or is made of no tensor, the profiler is told only where a card is in use": _is_made_of_nothing,
    "two numbers of Python are tensors in C++": _is_number,
    "a full backward hook looks at what a module returns after a mode takes it for ended": _is_hooked,
    "a seed that the host keeps for attention cannot be told from a number of Python": _is_seed,
    "a mode that follows the memory of a card has seen the gradient's, so that torch adds to it out of place": _is_added_apart,
}
"""Why operators may differ, and what the mode and the profiler tell of such a one."""
STOPPED = "a checkpoint stops computing again within an operator, which has begun for the profiler"
ONE_SIDED: dict[str, tuple[str, Callable[[OperatorFact, Facts], bool]]] = {
    "a complex tensor is conjugated for an operator, which is inside of it for the profiler": (
        "mode",
        lambda fact, _: fact.name == "clone" and fact.phase == "backward",
    ),
    "for inference `detach_` is an operator of its own": ("mode", lambda fact, _: fact.name == "detach_"),
    "torch reads a list of tensors number by number, out of sight of a mode": (
        "profiler",
        lambda fact, _: fact.name == READ,
    ),
    STOPPED: ("profiler", lambda fact, facts: fact.phase == "backward" and fact._replace(phase="forward") in facts),
}
"""Why an operator may be told by one alone, which also tells these; and by which."""
SCRIPTED = {
    "vits": "a scripted function has a backward of its own where a mode looks on, and other operators where none does",
}
"""Models of whose backward only modules, moves and waits are compared on a card, where TorchScript fuses."""
APART = {
    "case_clean_functorch_vmap_per_sample_gradients": "in `vmap` the profiler sees operators of one sample, a mode of all",
}
"""Programs of which only modules, moves and waits are compared."""
NODES = "of what the engine does beside a node's own work one knows the line of a node, the other the line that asked"
ABOVE = "a library's wait by an operator of Python has the line that called the function for the profiler, which knows no other"


@dataclass
class Agreement:
    """What was compared.

    Attributes:
        same: how many facts of each kind both tell.
        known: how many differ for each reason.
        differences: program, kind of fact, who tells more, the fact and how often.
        lines: how many operators the profiler gives a line, and how many there are.
    """

    same: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    differences: list[tuple[Any, ...]] = field(default_factory=list)
    lines: Counter[str] = field(default_factory=Counter)

    def compare(self, name: str, mode: Trace, profiler: Trace) -> None:
        """Compare two recordings of a program."""
        assert not [note for note in (*mode.not_checked, *profiler.not_checked) if note.startswith("recorder:")]
        for kind, facts_of in FACTS.items():
            if kind == "operators" and name in APART:
                continue
            one, other = facts_of(mode), facts_of(profiler)
            self.same[kind] += (one & other).total()
            missing, added = one - other, other - one
            if kind == "operators" and name in SCRIPTED:
                for facts in (missing, added):
                    for fact in [fact for fact in facts if fact.phase == "backward" and fact.inputs[:1] == (CARD,)]:
                        self.known[SCRIPTED[name]] += facts.pop(fact)
            self._explain(missing, added, {"operators": REASONS, "waits": WAITS}.get(kind, {}))
            if kind == "operators":
                self._explain_alone(missing, one, "mode")
                excused = {fact.name for fact in self._explain_alone(added, other, "profiler")}
            self.differences += [(name, kind, "mode", *each) for each in missing.items()]
            self.differences += [(name, kind, "profiler", *each) for each in added.items()]
        if name not in APART:
            self._compare_lines(name, mode, profiler, excused)

    def _explain(self, missing: Facts, added: Facts, reasons: dict[str, Callable[[Any, Any], bool]]) -> None:
        for reason, is_so in reasons.items():
            for one, other in [(one, other) for one in missing for other in added if is_so(one, other)]:
                count = min(missing[one], added[other])
                self.known[reason] += count
                missing[one] -= count
                added[other] -= count
        for facts in (missing, added):
            for each in [each for each, count in facts.items() if not count]:
                del facts[each]

    def _explain_alone(self, alone: Facts, facts: Facts, who: str) -> list[Any]:
        found = []
        for reason, (teller, is_told) in ONE_SIDED.items():
            for fact in [fact for fact in alone if teller == who and is_told(fact, facts)]:
                self.known[reason] += alone.pop(fact)
                found.append(fact)
        return found

    def _compare_lines(self, name: str, mode: Trace, profiler: Trace, excused: set[str]) -> None:
        """A line is the one that a mode tells, or unknown."""
        told = set(_lines(mode))
        added = {("add_", *line[1:]) for line in told if (line[0], line[2]) == ("add", "backward")}  # `_is_added_apart`
        known = {line[:3] for line in told}
        of_user = {line[:3] for line in told if PACKAGES not in line[-1][0]}
        asked = {place for what, _, phase, place in told if (what, phase) == ("ones_like", "backward")}
        for op in profiler.ops:
            self.lines["with a line"] += op.count * (op.site is not None)
            self.lines["operators"] += op.count
        for line in set(_lines(profiler)) - told - added:
            places = {line[-1], *(other[-1] for other in told if other[:3] == line[:3])}
            # In a thread of the engine a mode finds no line of the user where a library's backward runs, or no node's.
            if line[2] == "backward" and (places & asked or line[0] in excused or line[:3] not in of_user):
                self.known[NODES] += 1
            elif line[0] == READ and line[0] in excused:
                pass
            elif line[0] == WAIT and line[:3] in known and PACKAGES in line[-1][0]:
                self.known[ABOVE] += 1
            else:
                self.differences.append((name, "lines", "profiler", line, 1))

    def __str__(self) -> str:
        told = ", ".join(f"{count:,} {kind}" for kind, count in self.same.items())
        known = "".join(f"\n{count:,} differ: {reason}" for reason, count in self.known.items() if count)
        return f"the same: {told}{known}\n{self.lines['with a line']:,} of {self.lines['operators']:,} operators have a line"


def _lines(trace: Trace) -> Iterator[tuple[Any, ...]]:
    """What each line does."""
    for op in trace.ops:
        if op.site is not None and op.site.function and not op.name.startswith("profiler::"):
            yield op.name, op.module, op.phase, (op.site.file, op.site.line)
    for kind, facts in {"a move": trace.moves, WAIT: trace.waits}.items():
        for each in facts:
            if each.site is not None:
                yield kind, each.module, each.phase, (each.site.file, each.site.line)


Prepared = tuple[Callable[[], object], Any]
"""What is recorded, and its model; None for a program that makes and drops its own."""


def record_both(prepare: Callable[[], Prepared]) -> list[Trace]:
    """A program prepared and recorded twice."""
    traces = []
    for engine in ("mode", "profiler"):
        run, model = prepare()
        with devwidget.record(engine=engine) as recording:
            if model is not None:
                recording.attach(model)
            run()
        traces.append(recording.trace if model is not None else without_modules(recording.trace))
    return traces


def without_modules(trace: Trace) -> Trace:
    """The profiler knows a module by its address alone, and no path of one that has died."""
    nowhere = {name: [replace(each, module=None) for each in getattr(trace, name)] for name in ("ops", "moves", "waits")}
    return replace(trace, modules=(), **nowhere)


def compare_all(programs: Iterable[tuple[str, Callable[[], Prepared]]]) -> Agreement:
    """What two recorders tell of many programs."""
    agreement = Agreement()
    for name, prepare in programs:
        agreement.compare(name, *record_both(prepare))
        agreement.same["programs"] += 1
    return agreement
