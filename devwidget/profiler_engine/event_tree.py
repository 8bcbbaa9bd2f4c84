"""What the profiler recorded, walked in the order of time: operators below autograd, calls of modules, allocations."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.patching.operator_key import ALIASES
from devwidget.profiler_engine.adapter import has_kernel, overload_of
from devwidget.profiler_engine.places import OUTSIDE, EventPlace, Function, ModulePaths, SiteReader
from devwidget.records.site import LibraryLine, Phase, Site

_NODE = "autograd::engine::evaluate_function"
_GRADIENT_CALL = ": grad"
_BACKWARD_CALLS = (": backward", _GRADIENT_CALL, ": _engine_run_backward")
_BACKWARD_FILES = ("torch/autograd/__init__.py", "torch/autograd/graph.py")
_STEP, _OPTIMIZER_FILE = ": wrapper", "torch/optim/optimizer.py"
"""torch wraps the `step` of each optimizer to name it for profilers; the name itself is no span."""
_THREAD_BEGINS, _THREAD_FILE = ": start", "threading.py"
_MODULE = "nn.Module: "
_COMPOSITE, _SAME_FOR_ALL = "CompositeImplicitAutograd", "CompositeExplicitAutograd"
_BACKENDS = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta", "mps": "MPS", "xpu": "XPU"}
"""Device -> torch's name of the kernels for it."""
_ABOVE_MODES = frozenset({*ALIASES, "detach_"})
"""Operators that autograd does alone; they compute nothing, and no mode sees them."""
_READ = "_local_scalar_dense"
_MADE_BY = frozenset({_READ, "_to_copy"})
"""`torch.tensor` takes memory, reads what it is given, may copy it to a device, and shows the result alone (`lift_fresh`)."""

_Line = tuple[Site | None, LibraryLine | None]
"""Of the user, and of the innermost library that it has called."""
_SCOPES = torch_internals.RecordScope
_Function = Literal["module", "users", "library", "backward", "optimizer", "torch"]
_OF_PYTHON = frozenset({"users", "library", "torch"})
_BUILT_INS = "<built-in "
"""How the names of functions in C begin."""
_OPERATOR, _FUNCTION, _BUILT_IN, _ALLOCATION = (
    *(torch_internals.OperatorFields, torch_internals.CallFields),
    *(torch_internals.BuiltInFields, torch_internals.AllocationFields),
)
_CALL, _NODE_RUNS = _SCOPES.FUNCTION, _SCOPES.BACKWARD_FUNCTION


class Operator(NamedTuple):
    """An operator as a dispatch mode would see it: below autograd, and not inside another one.

    Attributes:
        tensors: what went in, lists opened.
        place: with its phase.
        number: its place in the order of time.
        taken: the device on which it took memory, the host only where it took none elsewhere; None where it did not, or nobody
            asked.
    """

    event: Any
    name: str
    tensors: tuple[Any, ...]
    place: EventPlace
    number: int
    taken: torch.device | None = None


class ProfiledModuleCall(NamedTuple):
    """One call of a module; `stopped` is the number of the last event in it."""

    event: Any
    place: EventPlace
    number: int
    stopped: int
    is_registered: bool


class ProfiledAllocation(NamedTuple):
    """Bytes that came or went."""

    event: Any
    place: EventPlace
    number: int


class Turn(NamedTuple):
    """The program called a model, or went back: with its number, and the user's function that did."""

    number: int
    is_backward: bool
    function: Function | None


class EventWalk:
    """One walk through all threads.

    Args:
        roots: the outermost events.
        model: the root of the paths; None if nobody said.
        named: modules that the program has a name for.
        has_memory: allocations were recorded, which lie deep in the tree.

    Attributes:
        operators: in the order of time, as the other lists.
        has_threads: the program has started threads, of which nothing is recorded.
    """

    def __init__(
        self, roots: Iterable[Any], model: nn.Module | None, named: Iterable[nn.Module] = (), *, has_memory: bool = False
    ) -> None:
        self.has_memory = has_memory
        self.operators: list[Operator] = []
        self.modules: list[ProfiledModuleCall] = []
        self.allocations: list[ProfiledAllocation] = []
        self.turns: list[Turn] = []
        self.has_threads = False
        self._paths, self._sites = ModulePaths(model, named), SiteReader()
        self._functions: dict[str, _Function] = {}
        self._lines: dict[int, dict[int, _Line]] = {}
        self._late: list[Any] = []
        self._number = 0
        self._forwarded, self._has_run, self._seen_grad, self._has_parameters = False, False, False, False
        self._runs_closure = False
        self._backwards, self._forwards = 0, Counter[int]()
        for root in sorted(_of_the_program(roots), key=lambda each: each.start_time_ns):
            self._walk_tree(root)
        for each in self._late:  # of a backward that no Python called
            self._walk_tree(each)

    @property
    def steps(self) -> int:
        """How often the program went back, or else called the same model."""
        return self._backwards or max(self._forwards.values(), default=0)

    def _walk_tree(self, root: Any) -> None:
        # A stack of our own: the tree is as deep as the program's calls, and Python's would overflow.
        waiting: list[tuple[Any, EventPlace] | None] = [(root, OUTSIDE)]
        ends: list[tuple[Any, EventPlace, EventPlace, int]] = []
        while waiting:
            entry = waiting.pop()
            if entry is None:
                self._end_span(*ends.pop())
                continue
            event, place = entry
            self._number += 1
            children = event.children
            below = self._enter_event(event, place, children)
            if below is None:
                continue
            if below.calls != place.calls or (below.phase == "backward" and place.phase != "backward"):
                ends.append((event, place, below, self._number))
                waiting.append(None)
            waiting.extend([(child, below) for child in reversed(children)])

    def _enter_event(self, event: Any, place: EventPlace, children: list[Any]) -> EventPlace | None:
        """Note an event, and return the place of what is in it; None where nothing in it counts."""
        try:
            name: str = event.name
        except UnicodeDecodeError:  # torch points into the name of code, which has died meanwhile
            name = ""
        known = self._functions.get(name)
        is_built_in = name.startswith(_BUILT_INS)
        if is_built_in and place.phase == "backward":
            self._join_engine(event, children)  # first: all but the first call of the engine seem empty
        if not children and (is_built_in or known in _OF_PYTHON):
            return None
        if place.is_in_torch and (is_built_in or known == "torch"):
            return place
        if known == "users":
            # What an operator of Python runs in the user's function has a line of that function, and it is not known which.
            return EventPlace(place.module, place.phase, None, None, place.calls)
        fields = event.extra_fields  # costs more than all the rest that is asked of an event
        kind = type(fields)
        if kind is _OPERATOR:
            return self._enter_operator(event, name, fields, place, children)
        if kind is _FUNCTION:
            return self._enter_function(event, name, fields, place, children)
        if kind is _BUILT_IN and children:
            return self._sites.enter_call(event, fields.caller, place)
        if kind is _ALLOCATION:
            self.allocations.append(ProfiledAllocation(event, self._with_phase(place), self._number))
        return None

    def _join_engine(self, event: Any, children: list[Any]) -> None:
        """Have what a thread of the engine runs where its time is: torch hangs all of it into the first backward."""
        end, below = event.end_time_ns, [*self._late, *children]
        children[:] = sorted((each for each in below if each.start_time_ns <= end), key=lambda each: each.start_time_ns)
        self._late = [each for each in below if each.start_time_ns > end]

    def _enter_function(self, event: Any, name: str, fields: Any, place: EventPlace, children: list[Any]) -> EventPlace | None:
        known = self._functions.get(name)
        if known is None:
            known = self._functions[name] = self._know_function(name, fields.callsite.file_name) if name else "users"
        if known == "module":
            return self._enter_module(event, fields, place)
        if not children:
            return None
        if known == "users":
            return EventPlace(place.module, place.phase, None, None, place.calls)
        if known == "backward" or known == "optimizer":
            self._runs_closure = self._runs_closure and known == "backward"
            place = EventPlace(place.module, known, place.site, place.library, place.calls, place.call)
        return self._sites.enter_call(event, fields.caller, place, is_torchs=known != "library")

    def _know_function(self, name: str, file: str) -> _Function:
        if name.startswith(_MODULE):
            return "module"
        self.has_threads = self.has_threads or (name.endswith(_THREAD_BEGINS) and file.endswith(_THREAD_FILE))
        if self._sites.is_users(file):
            return "users"
        if name.endswith(_BACKWARD_CALLS) and file.endswith(_BACKWARD_FILES):
            return "backward"
        if name.endswith(_STEP) and file.endswith(_OPTIMIZER_FILE):
            return "optimizer"
        return "library" if self._sites.is_library(file) else "torch"

    def _enter_module(self, event: Any, fields: Any, place: EventPlace) -> EventPlace:
        _, _, site, library, *_ = self._sites.enter_call(event, fields.caller, place)
        path = self._paths.find_path(fields.module.self_ptr, is_outermost=not place.calls)
        self._has_parameters = self._has_parameters or bool(fields.module.parameters)
        self._runs_closure = self._runs_closure or place.phase == "optimizer"
        return EventPlace(place.module if path is None else path, place.phase, site, library, place.calls + 1, None, True)

    def _enter_operator(self, event: Any, name: str, fields: Any, place: EventPlace, children: list[Any]) -> EventPlace | None:
        namespace, is_operator, short = name.partition("::")
        if namespace != "aten":  # those have one scope, and it costs to ask
            scope = fields.scope
            if scope == _NODE_RUNS or name.startswith(_NODE):
                site, library = self._find_forward_line(fields.sequence_number, place)
                return EventPlace(place.module, "backward", site, library, place.calls)
            if scope != _CALL:
                return place
        self._note_line(event, fields.sequence_number, place)  # a gradient written by hand has its name, and a node too
        if not is_operator or namespace == "profiler" or is_composite(event) or _is_passed_on(event, children):
            return place
        here, taken = self._with_phase(place), None
        has_autograd = fields.sequence_number >= 0 and not _runs_alike(name, overload_of(event))
        if self.has_memory or has_autograd:
            for child in children:
                for each in iterate_below(child):
                    below = self._enter_below(each, here, has_autograd)
                    if taken is None or taken.type == "cpu":  # in `x * 2` and for a seed a number is made on the host first
                        taken = below or taken
        self._add_operator(event, fields, short if namespace == "aten" else name, here, taken)
        return None

    def _enter_below(self, event: Any, place: EventPlace, has_autograd: bool) -> torch.device | None:
        """What runs in an operator: memory that it takes, whose device is returned, and what autograd copies for itself. Within
        one that autograd has no formula for, others pass through autograd and are no copies of it."""
        fields = event.extra_fields
        if type(fields) is _ALLOCATION:
            self._number += 1
            self.allocations.append(ProfiledAllocation(event, place, self._number))
            return fields.device if fields.alloc_size > 0 else None
        if not has_autograd or type(fields) is not _OPERATOR:
            return None
        if fields.sequence_number >= 0 and "::" in event.name and not is_composite(event):
            self._add_operator(event, fields, event.name.removeprefix("aten::"), place, None)
        return None

    def _add_operator(self, event: Any, fields: Any, name: str, place: EventPlace, taken: torch.device | None) -> None:
        if name in _ABOVE_MODES:
            return
        if name == "lift_fresh":
            self._forget_making(event)
        self._number += 1
        tensors = tuple(find_tensors(fields.inputs))  # torch makes them anew whenever it is asked
        self.operators.append(Operator(event, name, tensors, place, self._number, taken))

    def _forget_making(self, shown: Any) -> None:
        """Forget how the tensor came about that an operator shows, but for what was read from a device."""
        for back, made in enumerate(reversed(self.operators), 1):
            if made.name == "empty" and made.event.parent is shown.parent:
                self.operators[-back:] = [each for each in self.operators[-back:] if each.name == _READ]
            if made.name not in _MADE_BY:
                return

    def _note_line(self, event: Any, number: int, place: EventPlace) -> None:
        if number < 0:  # autograd is off
            return
        if place.calls and not self._seen_grad:  # autocast casts weights with autograd, whatever the program says
            self._seen_grad = type(event.parent.extra_fields) is not _OPERATOR
        if place.phase != "backward":
            # The node takes the number that comes next, and the last operator that saw it has made the node.
            self._lines.setdefault(event.start_tid, {})[number] = place.site, place.library

    def _find_forward_line(self, number: int, asked: EventPlace) -> _Line:
        """The line that made a node; that which asked for backward where no node has the number, as for the leaves."""
        found = {lines[number] for lines in self._lines.values() if number in lines}
        if not found:
            return asked.site, asked.library
        return found.pop() if len(found) == 1 else (None, None)  # threads that count alike leave a doubt

    def _with_phase(self, place: EventPlace) -> EventPlace:
        if place.phase is not None and not (place.phase == "optimizer" and self._runs_closure):
            return place
        return EventPlace(
            place.module, self._phase_now(place), place.site, place.library, place.calls, place.call, place.is_in_torch
        )

    def _phase_now(self, place: EventPlace) -> Phase:
        if place.calls:
            return "forward"
        if self._forwarded:
            return "loss"
        return "other" if self._has_run else "build"

    def _end_span(self, event: Any, around: EventPlace, within: EventPlace, number: int) -> None:
        if within.calls != around.calls:
            registered = self._paths.has_path(event.extra_fields.module.self_ptr)
            self.modules.append(ProfiledModuleCall(event, within, number, self._number, registered))
            if not around.calls and around.phase != "backward":
                # Without gradients a call is a step of its own; with some the loss follows, and its module is no step.
                self._has_run, self._forwarded = True, self._forwarded or self._seen_grad
                if self._has_parameters:
                    self._forwards[event.extra_fields.module.self_ptr] += 1
                    self._take_turn(event, number, is_backward=False)
                self._seen_grad = self._has_parameters = False
        elif not event.name.endswith(_GRADIENT_CALL):  # which gives gradients, and ends no step
            self._backwards += 1
            self._forwarded = self._runs_closure = False
            self._take_turn(event, number, is_backward=True)

    def _take_turn(self, event: Any, number: int, *, is_backward: bool) -> None:
        self.turns.append(Turn(number, is_backward, self._sites.find_function(event)))


def _is_passed_on(event: Any, children: list[Any]) -> bool:
    """Whether an operator comes down in it once more, as from autocast, which casts what went in."""
    name = event.name
    return any(child.name == name and overload_of(child) == overload_of(event) for child in children)


def _of_the_program(roots: Iterable[Any]) -> Iterator[Any]:
    """The roots of the threads that are recorded. Of all others that ran already torch notes the calls of Python alone."""
    by_thread: dict[int, list[Any]] = {}
    for root in roots:
        by_thread.setdefault(root.start_tid, []).append(root)
    for of_thread in by_thread.values():
        if any(True for root in of_thread for _ in iterate_operators(root)):
            yield from of_thread


@functools.cache
def _runs_alike(name: str, overload: str) -> bool:
    """Whether what an operator calls is seen by the profiler as if the program had called it, which no mode takes it for."""
    return has_kernel(name, overload, _SAME_FOR_ALL)


def is_composite(event: Any) -> bool:
    """Whether an operator is made of others, which a dispatch mode sees in its place."""
    kernels = _kernels_of_composite(event.name, overload_of(event))
    if not kernels:
        return kernels is not None
    first = next(find_tensors(event.extra_fields.inputs), None)
    return first is not None and first.device.type not in kernels


@functools.cache
def _kernels_of_composite(name: str, overload: str) -> frozenset[str] | None:
    """The devices for which an operator has kernels of its own though it is made of others; None for one that is not."""
    if not has_kernel(name, overload, _COMPOSITE):
        return None
    return frozenset(device for device, key in _BACKENDS.items() if has_kernel(name, overload, key))


def find_tensors(inputs: Iterable[Any]) -> Iterator[Any]:
    """The tensors among the inputs of an operator, lists opened."""
    for value in inputs:
        if isinstance(value, list):
            yield from (each for each in value if hasattr(each, "device"))
        elif hasattr(value, "device"):
            yield value


def iterate_below(event: Any) -> Iterator[Any]:
    """An event and all in it, the outer first."""
    waiting = [event]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(reversed(each.children))


def iterate_operators(event: Any) -> Iterator[Any]:
    """What is known of an operator and of those in it."""
    return (fields for each in iterate_below(event) if type(fields := each.extra_fields) is _OPERATOR)
