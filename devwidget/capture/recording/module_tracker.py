"""Where the program is: running modules of each thread, their paths, the phase of the step, the lines of the forward pass."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from types import CodeType, FrameType

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from devwidget.capture import torch_internals
from devwidget.capture.modules import ModuleSet, named_tensors, own_tensors, registered_entries, walk_modules
from devwidget.capture.object_fields import class_name
from devwidget.capture.recording.forward_nodes import ForwardNodes, NumberedNodes
from devwidget.capture.source_code.call_sites import RawSite, site_of, through
from devwidget.capture.source_code.stack import ENGINE, LIBRARY, STEP, USER, owners, user_frame
from devwidget.capture.tensors import is_parameter
from devwidget.records.trace import Cause, Phase


@dataclass(slots=True)
class ModuleCall:
    """One module call under way.

    Attributes:
        path: None for a module that nobody registered.
        site: the user's line.
        outer: path of the innermost registered module that this one runs in.
    """

    module: nn.Module
    path: str | None
    replica: int
    started: float
    number: int
    site: RawSite | None
    outer: str | None


class _NamedModule(weakref.ref[nn.Module]):
    """A module with its path, and its id, under which both are kept."""

    __slots__ = ("key", "path")
    key: int
    path: str


def _forget_module(tracker: weakref.ref[ModuleTracker], named: _NamedModule) -> None:
    # Weak: paths, references and their callback would be a cycle. Before 3.13 Python dies where it collects references to a
    # module in the moment in which that module dies.
    if (living := tracker()) is not None:
        living._paths.pop(named.key, None)


@dataclass(slots=True, eq=False)
class ThreadPlace:
    """Where one thread is: its running modules, the path of the innermost, and the user's line of a torch call under way.

    Attributes:
        waits: the device for which the host waited in that call, how often, and whether for copies alone; None if it did not.
        operator_site: the user's line of an operator under way that runs none of their code; None if there is none.
        nodes: that this thread has made.
        next_node: the number of the next node of autograd, when an operator was last seen: no other has been made since.
        last_operator: when the last operator has ended, or the thread was first seen; of `time.perf_counter`.
    """

    nodes: NumberedNodes
    stack: list[ModuleCall] = field(default_factory=list)
    path: str | None = None
    site: RawSite | None = None
    operator_site: RawSite | None = None
    next_node: int = -1
    cause: Cause = "explicit"
    replica: int = -1
    failed: str | None = None
    waits: tuple[torch.device, int, bool] | None = None
    last_operator: float = field(default_factory=time.perf_counter)


class _Threads(threading.local):
    """The place of each thread, in one object: what is read and written for each operator is found once."""

    def __init__(self, nodes: ForwardNodes) -> None:
        self.place = ThreadPlace(nodes.begin_thread())


class ModuleTracker:
    """Paths of the attached modules, and which of them run in each thread.

    Attributes:
        threads: the place of the thread that asks, for the paths on which a call costs too much; `here` for all others.
        has_closure: an optimizer steps that was given a closure, which runs the model.
        phases: parts of the step that have run.
    """

    def __init__(self) -> None:
        self.forward_nodes = ForwardNodes()
        self.threads = _Threads(self.forward_nodes)
        self.roots: list[weakref.ref[nn.Module]] = []
        self.model_name = ""
        self.forced: Phase | None = None
        self.phases: set[Phase] = set()
        self.has_closure = self._runs_closure = False
        self.made: MutableMapping[nn.Module, RawSite | None] = WeakIdKeyDictionary()
        self.strangers: MutableMapping[nn.Module, tuple[str | None, RawSite | None]] = WeakIdKeyDictionary()
        self._paths: dict[int, _NamedModule] = {}
        self._forget = functools.partial(_forget_module, weakref.ref(self))
        self.step = -1
        self._forwarded = False
        self._stepping: CodeType | None = None
        self.turn, self.callers, self._may_go_back, self._backwards = 0, set[CodeType](), False, 0
        self._outermost: Counter[int] = Counter()
        self._trainable = ModuleSet()
        self._module_call = module_call()

    def let_go(self) -> None:
        """Hold no reference to a module any more, also where a traceback holds this tracker."""
        for known in (self._paths, self._trainable, self.made, self.strangers, self.roots):
            known.clear()

    @property
    def here(self) -> ThreadPlace:
        """The place of this thread."""
        return self.threads.place

    # -- names

    def attach_model(self, model: nn.Module, name: str = "", prefix: str = "") -> None:
        """Name the modules of a root; the first path of a shared module counts."""
        self.roots.append(weakref.ref(model))
        self.model_name = self.model_name or name
        for path, module in walk_modules(model):
            self.name_module(module, f"{prefix}.{path}".strip(".") if prefix else path)

    def name_module(self, module: nn.Module, path: str) -> None:
        """Give one module a path, a replica that of its original."""
        # Each call of a DataParallel wrapper makes new replicas: dead ones must not pile up.
        named = _NamedModule(module, self._forget)
        named.key, named.path = id(module), path
        self._paths[named.key] = named  # when it is whole: another thread may read it

    def path_of(self, module: nn.Module) -> str | None:
        """Path of a module, None if it belongs to no root."""
        named = self._paths.get(id(module))
        if named is not None and named() is module:
            return named.path
        return None

    def list_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Every named module that still lives, the innermost running ones first."""
        seen: set[int] = set()
        running = [r.module for r in reversed(self.here.stack)]
        for module in [*running, *(m for named in list(self._paths.values()) if (m := named()) is not None)]:
            path = self.path_of(module)
            if path is not None and id(module) not in seen:
                seen.add(id(module))
                yield path, module

    def is_registered(self, tensor: torch.Tensor) -> bool:
        """True for a parameter or buffer of a named module."""
        return any(value is tensor for _, module in self.list_modules() for value in own_tensors(module).values())

    def is_shared(self, tensor: torch.Tensor) -> bool:
        """True for a parameter that two modules hold."""
        if not is_parameter(tensor):
            return False
        holders = 0
        for _, module in self.list_modules():
            holders += any(value is tensor for _, value in registered_entries(module, "_parameters"))
            if holders > 1:
                return True
        return False

    # -- the stack

    def enter_module(self, module: nn.Module, frame: FrameType | None, started: float, number: int) -> ModuleCall:
        """A module begins to run in this thread; `frame` is the one that called it."""
        here = self.threads.place
        stack = here.stack
        self.phases.add("forward")
        if not stack and here.replica < 0 and self.forced != "backward":  # a checkpoint runs its modules once more there
            self._begin_step(module, user_frame(frame), number)
        named = self._paths.get(id(module))
        path = named.path if named is not None and named() is module else self._late_path(module)
        running = ModuleCall(module, path, here.replica, started, number, self.find_site(frame), here.path)
        if path is None and (stack or self._forwarded):
            self.strangers[module] = (here.path, running.site)
        stack.append(running)
        if path is not None:
            here.path = path
        return running

    def _begin_step(self, module: nn.Module, caller: FrameType | None, number: int) -> None:
        """An outermost module runs. A criterion, or a teacher that the loss calls, belongs to the step that is under way."""
        code = caller.f_code if caller is not None else None
        has_parameters = self._has_parameters(module)
        in_loss = self._forwarded and (code is not self._stepping or not has_parameters)
        if not in_loss:
            self.step, self._stepping = number, code
        if has_parameters:
            self._take_turn(module, code)

    def _take_turn(self, module: nn.Module, code: CodeType | None) -> None:
        """A model runs; the transforms of a data set and criteria have no parameters."""
        self.turn += 1
        if self.has_closure and self.forced == "optimizer":
            self.forced, self._runs_closure = None, True
        self._outermost[id(module)] += 1
        if code is not None and not self._may_go_back:
            self.callers.add(code)
        self._may_go_back = True

    @property
    def steps(self) -> int:
        """How many steps the program took: how often it went back, or else how often it called the same module."""
        return self._backwards or max(self._outermost.values(), default=0)

    def _has_parameters(self, module: nn.Module) -> bool:
        """Whether it has, or once had: the search is not repeated at each step."""
        if module not in self._trainable and next(named_tensors(module, "_parameters"), None) is not None:
            self._trainable.add(module)
        return module in self._trainable

    def leave_module(self, module: nn.Module) -> ModuleCall | None:
        """A module has run; calls above it that never ended (an exception nobody told us of) go with it."""
        here = self.threads.place
        stack = here.stack
        for index in range(len(stack) - 1, -1, -1):
            running = stack[index]
            if running.module is module:
                del stack[index:]
                here.path = running.outer
                if not stack and not self._forwarded:
                    self._forwarded = torch.is_grad_enabled()
                return running
        return None

    def find_site(self, frame: FrameType | None) -> RawSite | None:
        """The user's line at or above a frame; of what autograd runs, the line of the forward pass.

        The walk ends at the running module, whose own line is known.
        """
        module_call, library = self._module_call, None
        while frame is not None:  # a generator would take twice as long, for each operator
            if frame.f_code is module_call and (stack := self.threads.place.stack):
                return through(stack[-1].site, library)
            owner = owners[frame.f_code.co_filename]
            if owner is USER:
                return through(site_of(frame), library)
            if owner is STEP:
                return through(None, library)
            if owner is ENGINE and (site := self.forward_nodes.find_site()) is not None:
                return site
            if owner is LIBRARY and library is None:
                library = frame
            frame = frame.f_back
        site = self.forward_nodes.find_site()  # autograd has threads of its own, too
        return site or through(None, library)

    def _late_path(self, module: nn.Module) -> str | None:
        """A module that was registered after `attach`, or the root of a recording that was never attached."""
        parent = self.here.stack[-1] if self.here.stack else None
        if parent is not None:
            for name, child in registered_entries(parent.module, "_modules"):
                if child is module and parent.path is not None:
                    self.name_module(module, f"{parent.path}.{name}".strip("."))
                    return self.path_of(module)
            return None
        if not self.roots:
            self.attach_model(module)
        elif self._implicit and any(registered_entries(part, "_parameters") for _, part in walk_modules(module)):
            self.attach_model(module, prefix=class_name(type(module)))
        return self.path_of(module)

    _implicit = True

    def close_roots(self) -> None:
        """The user has said what the model is: further outermost modules are losses and helpers."""
        self._implicit = False

    def is_outside(self, site: RawSite) -> bool:
        """True for a line of the loop that calls the model, between the calls: logging, not part of forward or loss."""
        return not self.here.stack and site.code is self._stepping

    @property
    def module(self) -> str | None:
        """Path of the innermost registered module running in this thread; None outside the model."""
        return self.here.path

    @property
    def failed(self) -> str | None:
        """Path of the innermost module that the exception under way left first, in this thread."""
        return self.here.failed

    @property
    def running(self) -> nn.Module | None:
        """The innermost module running in this thread, registered or not."""
        if self.here.stack:
            return self.here.stack[-1].module
        return None

    # -- the phase

    @property
    def phase(self) -> Phase:
        """What the step is doing now."""
        if self.forced is not None:
            return self.forced
        if self.here.stack:
            return "forward"
        if self._forwarded:
            return "loss"
        if self.step < 0:
            return "build"
        return "other"

    def end_step(self) -> None:
        """Gradients have been computed: what follows is no part of the loss."""
        self._forwarded = self._may_go_back = False
        if self._runs_closure:
            self.forced, self._runs_closure = "optimizer", False
        self.turn += 1
        self._backwards += 1

    def begin_optimizer(self, *, has_closure: bool) -> tuple[Phase | None, bool]:
        """An optimizer steps; what `end_optimizer` is to be given."""
        before = self.forced, self.has_closure
        self.phases.add("optimizer")
        self.forced, self.has_closure = "optimizer", has_closure
        return before

    def end_optimizer(self, before: tuple[Phase | None, bool]) -> None:
        """It has stepped."""
        self.forced, self.has_closure = before
        self._runs_closure = False

    @contextlib.contextmanager
    def set_phase(self, phase: Phase) -> Iterator[None]:
        """Say what the step is doing."""
        before, self.forced = self.forced, phase
        self.phases.add(phase)
        try:
            yield
        finally:
            self.forced = before

    @contextlib.contextmanager
    def set_cause(self, cause: Cause) -> Iterator[None]:
        """Say why data will cross devices in this thread."""
        before, self.here.cause = self.here.cause, cause
        try:
            yield
        finally:
            self.here.cause = before


@functools.cache
def module_call() -> CodeType | None:
    """The code in which torch runs a module's hooks and its `forward`; None where it has no function for that."""
    inner = (each for each in torch_internals.module_call.co_consts if isinstance(each, CodeType) and each.co_name == "inner")
    return next(inner, None)
