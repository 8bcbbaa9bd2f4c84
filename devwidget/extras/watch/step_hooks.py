"""Hooks on a model and its optimizer that report the part of a step; they change nothing."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import is_from_handler
from devwidget.capture.object_fields import dict_of
from devwidget.capture.source_code.stack import locals_of
from devwidget.capture.stack_sampler import StackSampler
from devwidget.capture.tensors import read_attribute, tensors_in
from devwidget.capture.undo import Undo
from devwidget.extras.watch.records.run import PARTS

if TYPE_CHECKING:
    from devwidget.extras.watch.watch import Watch


class Hook:
    """A hook of devwidget that copies of the module do not keep and compiled code does not contain."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        """Report the call, except to a compiler that traces the module."""
        if not torch.compiler.is_compiling():
            self._call(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__  # a built-in that does nothing: a saved module does not need devwidget

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


def _guarded(see: Callable[..., None]) -> Callable[..., None]:
    """Keep errors of devwidget out of the user's program."""

    @functools.wraps(see)
    def see_safely(self: StepHooks, *args: Any) -> None:
        if self.is_over:  # a graph that the program keeps has its hook
            return
        try:
            see(self, *args)
        except Exception as trouble:
            if is_from_handler(trouble):
                raise
            self._told.note_trouble(trouble)

    return see_safely


class StepHooks:
    """Track the part of a step with hooks on the model, its graph and its optimizer.

    A step ends after the optimizer's step, or after the forward pass without an optimizer. Until a model trains, each pass
    without gradients is a step of inference; later ones are an evaluation. Model and optimizer are referenced weakly.

    Attributes:
        is_over: Whether the hooks are disabled.
        sampler: Receives the part of the step of its samples; None while nothing was slow.
        may_infer: Whether a pass without gradients is a step; False once the model trains.
    """

    sampler: StackSampler | None = None
    may_infer = True

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None, told: Watch) -> None:
        self._model, self._told = weakref.ref(model), told
        self._optimizer = weakref.ref(optimizer) if optimizer is not None else None
        self.is_over = True
        self._nanoseconds = dict.fromkeys(PARTS, 0)
        self._evaluations, self._last = 0, 0
        self._is_evaluation = self._has_trained = self._has_passed = self._goes_back = self._optimizes = False
        self._inner_steps = 0
        self._infers = False
        self._of_graph: Any = None

    def put_in(self, undo: Undo, *, on_model: bool = True) -> None:
        """Install the hooks until the returned context ends; none on the model if a trainer reports its passes."""
        undo.add_step(self._end)
        self.is_over, self._has_passed, self._last = False, False, time.perf_counter_ns()
        model = self._model()
        if on_model and model is not None:
            undo.add_step(model.register_forward_pre_hook(Hook(self.begin_pass), with_kwargs=True).remove)
            undo.add_step(model.register_forward_hook(Hook(self.end_pass)).remove)
        optimizer = self._optimizer() if self._optimizer is not None else None
        if optimizer is not None:
            undo.add_step(optimizer.register_step_pre_hook(Hook(self._before_step)).remove)
            undo.add_step(optimizer.register_step_post_hook(Hook(self._after_step)).remove)

    def _end(self) -> None:
        self.is_over = True
        if self._of_graph is not None:
            self._of_graph.remove()
        self._of_graph = None

    def _mark(self, part: str) -> None:
        """Assign the time since the last mark to this part of the step."""
        now = time.perf_counter_ns()
        self._nanoseconds[part] += now - self._last
        self._last = now
        if self.sampler is not None:
            self.sampler.take_part(part)

    def _go_on(self) -> None:
        """Leave out the time since the last mark, which devwidget used."""
        self._last = time.perf_counter_ns()
        if self.sampler is not None:
            self.sampler.take_part("")

    # -- hooks, in the order in which a step meets them

    @_guarded
    def begin_pass(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a call of the model."""
        if dict_of(module).get("_is_replica"):  # in a thread of DataParallel, whose own call is the pass
            return
        trains, computes_gradients = bool(dict_of(module).get("training")), torch.is_grad_enabled()
        self._has_trained = self._has_trained or trains
        if self.may_infer and computes_gradients:
            self.may_infer = False
            self._told.begin_training()
        self._infers = self.may_infer
        self._is_evaluation = not self._infers and (not computes_gradients or (self._has_trained and not trains))
        # A closure may run the model several times, and between them its optimizer thinks.
        thinks = self._optimizes and self._has_passed
        if self._is_evaluation:
            self._mark("evaluation")
        elif thinks:
            self._mark("optimizer")
        else:
            self._mark("data")
        self._evaluations += self._is_evaluation
        self._told.begin_pass(args, kwargs, is_evaluation=self._is_evaluation)
        self._go_on()

    @_guarded
    def end_pass(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Note the output of a call."""
        if dict_of(module).get("_is_replica"):
            return
        self._mark("evaluation" if self._is_evaluation else "forward")
        if self._is_evaluation:
            return
        self._has_passed = True
        nodes = (read_attribute(tensor, "grad_fn") for tensor in tensors_in(output))
        node = next((node for node in nodes if node is not None), None)
        if node is not None:  # of the graph and not of the tensor, which the program may save
            self._of_graph = node.register_prehook(Hook(self._before_backward))
        if self._optimizer is None or self._infers:
            self._end_step()

    @_guarded
    def _before_backward(self, *gradients: Any) -> None:
        self._mark("loss")
        self._goes_back = True
        if torch_internals.queue_callback is not None:
            torch_internals.queue_callback(Hook(self._after_backward))

    @_guarded
    def _after_backward(self) -> None:
        self._mark("backward")
        self._goes_back = False

    @_guarded
    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._optimizes and _is_inner_step(optimizer, sys._getframe(1)):
            self._inner_steps += 1
            return
        self._inner_steps = 0
        if self._goes_back:
            self._mark("backward")
        elif self._has_passed:
            self._mark("other")
        else:
            self._mark("data")
        self._goes_back, self._optimizes = False, True

    @_guarded
    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._inner_steps:
            self._inner_steps -= 1
            return
        self._mark("optimizer")
        self._optimizes = False
        self._end_step()

    def _end_step(self) -> None:
        times = {part: passed // 1000 for part, passed in self._nanoseconds.items()}
        self._nanoseconds, evaluations, self._evaluations = dict.fromkeys(PARTS, 0), self._evaluations, 0
        self._has_passed = False
        try:
            self._told.end_step(times | {"evaluations": evaluations})
        finally:
            self._go_on()


def _is_inner_step(optimizer: torch.optim.Optimizer, frame: FrameType | None) -> bool:
    """Return whether an optimizer steps inside its own step: torch wraps `step` of each class, and one may call its base.

    Earlier reports do not decide it, because a step that raises does not report its end.
    """
    steps = 0
    while frame is not None and steps < 2:
        if frame.f_code.co_filename == _OPTIMIZERS and frame.f_code.co_name == "wrapper":
            steps += locals_of(frame).get("self") is optimizer
        frame = frame.f_back
    return steps > 1


_OPTIMIZERS = sys.modules["torch.optim.optimizer"].__file__
