"""Where the program is: running modules of each thread, their paths, the phase of the step, the lines of the forward pass."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import class_name
from devwidget.capture.recording.forward_nodes import ForwardNodes, NumberedNodes
from devwidget.capture.source_code.call_sites import RawSite, site_of, through, to_site
from devwidget.capture.source_code.stack import ENGINE, LIBRARY, STEP, USER, owners, user_frame
from devwidget.capture.tensors import ModuleTable, is_parameter, named_tensors, own_tensors, registered_entries, walk_modules
from devwidget.records.site import Site
from devwidget.records.trace import Cause, Family, Fault, Phase


@dataclass(slots=True)
class ModuleCall:
    """One module call in progress.

    Attributes:
        path: None for an unregistered module.
        site: the user's line.
        outer: path of the innermost registered module around it.
    """

    module: nn.Module
    path: str | None
    replica: int
    started: float
    number: int
    site: RawSite | None
    outer: str | None


@dataclass(slots=True, eq=False)
class ThreadPlace:
    """Where one thread is: its running modules, the path of the innermost, and the user's line of the current torch call.

    Attributes:
        waits: the device that the host synced with in that call, how often, and whether only for copies; None if it did not.
        operator_site: the user's line of a running operator that runs no user code; None if there is none.
        nodes: autograd nodes of this thread.
        next_node: the number of the next autograd node at the last operator; none has been made since.
        last_operator: `time.perf_counter` at the end of the last operator, or when the thread was first seen.
        explain_fault: called with each fault of operands in a replica, and its frame.
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
    explain_fault: Callable[[FrameType, Fault], None] | None = None


class _Threads(threading.local):
    """The place of each thread in one object, so that what each operator reads and writes is looked up once."""

    def __init__(self, nodes: ForwardNodes) -> None:
        self.place = ThreadPlace(nodes.begin_thread())


class ModuleTracker:
    """Paths of the attached modules, and which of them run in each thread.

    Attributes:
        threads: the place of the calling thread, for code in which a call of `here` costs too much.
        has_closure: an optimizer steps with a closure, which runs the model.
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
        self.made = ModuleTable[RawSite | None]()
        self.strangers = ModuleTable[tuple[str | None, RawSite | None]]()
        self._paths = ModuleTable[str]()
        self.step = -1
        self._forwarded = False
        self._stepping: CodeType | None = None
        self.turn, self.callers, self._may_go_back, self._backwards = 0, set[CodeType](), False, 0
        self._outermost: Counter[int] = Counter()
        self._inferred, self._inference = 0, (0, 0)
        self._trainable = ModuleTable[bool]()
        self._module_call = module_call()

    def let_go(self) -> None:
        """Release all modules, even if a traceback keeps this tracker alive."""
        for known in (self._paths, self._trainable, self.made, self.strangers, self.roots):
            known.clear()

    @property
    def here(self) -> ThreadPlace:
        """Return the place of this thread."""
        return self.threads.place

    # -- names

    def attach_model(self, model: nn.Module, name: str = "", prefix: str = "") -> None:
        """Name the modules of a root. The first path of a shared module counts."""
        self.roots.append(weakref.ref(model))
        self.model_name = self.model_name or name
        for path, module in walk_modules(model):
            self.name_module(module, f"{prefix}.{path}".strip(".") if prefix else path)

    def name_module(self, module: nn.Module, path: str) -> None:
        """Give one module a path; a replica gets that of its original."""
        self._paths[module] = path

    def path_of(self, module: nn.Module) -> str | None:
        """Return the path of a module, None if it belongs to no root."""
        return self._paths.get(module)

    def list_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield every named module that is alive, the innermost running ones first."""
        running = [call.module for call in reversed(self.here.stack)]
        known = [module for module, _ in self._paths.items()]
        for module in {id(module): module for module in (*running, *known)}.values():
            path = self.path_of(module)
            if path is not None:
                yield path, module

    def list_parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield what the named modules register as parameters, with its path. One that is shared comes more than once."""
        for path, module in self.list_modules():
            yield from ((f"{path}.{name}".strip("."), each) for name, each in registered_entries(module, "_parameters"))

    def is_registered(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is a parameter or buffer of a named module."""
        return any(value is tensor for _, module in self.list_modules() for value in own_tensors(module).values())

    def is_shared(self, tensor: torch.Tensor) -> bool:
        """Return whether two modules hold a parameter."""
        return is_parameter(tensor) and sum(each is tensor for _, each in self.list_parameters()) > 1

    # -- the stack

    def enter_module(self, module: nn.Module, frame: FrameType | None, started: float, number: int) -> ModuleCall:
        """Note that a module begins to run in this thread; `frame` called it."""
        here = self.threads.place
        stack = here.stack
        self.phases.add("forward")
        if not stack and here.replica < 0 and self.forced != "backward":  # a checkpoint runs its modules once more there
            self._begin_step(module, user_frame(frame), number)
        path = self._paths.get(module)
        if path is None:
            path = self._late_path(module)
        running = ModuleCall(module, path, here.replica, started, number, self.find_site(frame), here.path)
        if path is None and (stack or self._forwarded):
            self.strangers[module] = (here.path, running.site)
        stack.append(running)
        if path is not None:
            here.path = path
        return running

    def _begin_step(self, module: nn.Module, caller: FrameType | None, number: int) -> None:
        """Begin a step with an outermost module. A criterion, or a teacher that the loss calls, belongs to the current step."""
        code = caller.f_code if caller is not None else None
        has_parameters = self._has_parameters(module)
        in_loss = self._forwarded and (code is not self._stepping or not has_parameters)
        if not in_loss:
            self.step, self._stepping = number, code
        if has_parameters:
            self._take_turn(module, code)

    def _take_turn(self, module: nn.Module, code: CodeType | None) -> None:
        """Count a turn of a model. Transforms of a data set and criteria have no parameters."""
        self.turn += 1
        if self.has_closure and self.forced == "optimizer":
            self.forced, self._runs_closure = None, True
        self._outermost[id(module)] += 1
        self._count_inference(module)
        if code is not None and not self._may_go_back:
            self.callers.add(code)
        self._may_go_back = True

    def _count_inference(self, module: nn.Module) -> None:
        """Count calls without gradients that follow each other: a single one, as of a teacher, belongs to a training step."""
        last, calls = self._inference
        if torch.is_grad_enabled():
            self._inference = 0, 0
            return
        calls = calls + 1 if last == id(module) else 1
        self._inference = id(module), calls
        if calls > 1:
            self._inferred += 2 if calls == 2 else 1

    @property
    def steps(self) -> int:
        """Return the number of steps: how often backward ran, and batches of inference; or how often a module was called."""
        if self._backwards:
            return self._backwards + self._inferred
        return max(self._outermost.values(), default=0)

    def _has_parameters(self, module: nn.Module) -> bool:
        """Return whether a module has, or once had, parameters, so that the search is not repeated at each step."""
        if not self._trainable.get(module) and next(named_tensors(module, "_parameters"), None) is not None:
            self._trainable[module] = True
        return bool(self._trainable.get(module))

    def leave_module(self, module: nn.Module) -> ModuleCall | None:
        """Note that a module has ended. Calls above it whose end was missed, because of an exception, end too."""
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
        """Return the user's line at or above a frame; for code run by autograd, the line of the forward pass.

        The search ends at the running module, whose own line is known.
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
        """Return the path of a module registered after `attach`, or of the root of a recording that was never attached."""
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
        """Treat further outermost modules as losses and helpers: the model is known."""
        self._implicit = False

    def is_outside(self, site: RawSite) -> bool:
        """Return whether a line belongs to the loop between model calls, such as logging, and not to forward or loss."""
        return not self.here.stack and site.code is self._stepping

    @property
    def module(self) -> str | None:
        """Return the path of the innermost registered module running in this thread; None outside the model."""
        return self.here.path

    @property
    def failed(self) -> str | None:
        """Return the path of the innermost module that the current exception left first, in this thread."""
        return self.here.failed

    @property
    def running(self) -> nn.Module | None:
        """Return the innermost module running in this thread, registered or not."""
        if self.here.stack:
            return self.here.stack[-1].module
        return None

    def describe_fault(self, what: Family, call: str, site: RawSite | Site | None, **fields: Any) -> Fault:
        """Describe a call that failed at `site`, in the running module and phase unless `fields` of `Fault` say otherwise."""
        known = {"module": self.module, "phase": self.phase, "error": "", "model_name": self.model_name, **fields}
        return Fault(number=0, what=what, call=call, site=site if isinstance(site, Site) else to_site(site), **known)

    # -- the phase

    @property
    def phase(self) -> Phase:
        """Return the current phase of the step."""
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
        """Note that gradients have been computed: what follows is not part of the loss."""
        self._forwarded = self._may_go_back = False
        if self._runs_closure:
            self.forced, self._runs_closure = "optimizer", False
        self.turn += 1
        self._backwards += 1

    def begin_optimizer(self, *, has_closure: bool) -> tuple[Phase | None, bool]:
        """Note that an optimizer steps; return the argument of `end_optimizer`."""
        before = self.forced, self.has_closure
        self.phases.add("optimizer")
        self.forced, self.has_closure = "optimizer", has_closure
        return before

    def end_optimizer(self, before: tuple[Phase | None, bool]) -> None:
        """Note that the optimizer has stepped."""
        self.forced, self.has_closure = before
        self._runs_closure = False

    @contextlib.contextmanager
    def set_phase(self, phase: Phase) -> Iterator[None]:
        """Set the phase of the step."""
        before, self.forced = self.forced, phase
        self.phases.add(phase)
        try:
            yield
        finally:
            self.forced = before

    @contextlib.contextmanager
    def set_cause(self, cause: Cause) -> Iterator[None]:
        """Set why data is copied between devices in this thread."""
        before, self.here.cause = self.here.cause, cause
        try:
            yield
        finally:
            self.here.cause = before


@functools.cache
def module_call() -> CodeType | None:
    """Return the code in which torch runs a module's hooks and its `forward`; None if torch has no function for that."""
    codes = (each for each in torch_internals.module_call.co_consts if isinstance(each, CodeType))
    return next((code for code in codes if code.co_name == "inner"), None)
