"""The loops that people write around a step: they differ in what is still referenced when the next part runs."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from devwidget.capture.patching.registry import Patch
from devwidget.capture.restore.settings import autocast_depth
from devwidget.capture.step.batch import Arguments, Inputs
from devwidget.capture.step.step import Step
from devwidget.capture.tensors import replace_tensors
from devwidget.capture.validation import refuse_counts, refuse_flags
from devwidget.extras.plan.records.plan import PlannedLoop
from devwidget.extras.plan.watcher import Watcher, virtual_gpu
from devwidget.records.errors import DevwidgetError, nearest
from devwidget.records.schema.message import Message
from devwidget.records.trace import Phase

STEP, PLAIN, TRAINER = "step", "plain", "trainer"
"""An output that dies with the function that makes the step, that lives into the next forward, or that dies before backward."""
LOOPS = (STEP, PLAIN, TRAINER)
ZEROS = ("none", "zero")
CHECKPOINTING = (False, True, "reentrant")
# The third batch whose gradients are added up begins with what the second began with.
MOST_ACCUMULATED = 2
# As transformers' Trainer clips by default.
MAX_NORM = 1.0
_HALVES = torch.float16, torch.bfloat16


class MeanStep(Step):
    """A step whose loss of several replicas is one number, as users of DataParallel write `.mean()`."""

    def compute_loss(self, out: Any) -> Any:
        """As of any step, and the mean of what replicas give."""
        loss = Step.compute_loss(self, out)
        several = self.loss_fn is None and isinstance(loss, torch.Tensor) and loss is not out and loss.dim() == 1
        return loss.mean() if several else loss


@dataclass(frozen=True, slots=True)
class Loop:
    """What is around the step.

    Attributes:
        kind: one of `LOOPS`, or a function of model, batch and optimizer, see `devwidget.plan`.
        accumulate: batches whose gradients are added up for one step of the optimizer.
        autocast: what forward and loss compute in; None for what the tensors have.
        grad_scaler: the loss is scaled, and the optimizer stepped, by torch's `GradScaler`.
        zero_grad: one of `ZEROS`; "" for what the optimizer does by itself.
    """

    kind: str | Callable[..., Any] = STEP
    accumulate: int = 1
    autocast: torch.dtype | None = None
    grad_scaler: bool = False
    zero_grad: str = ""

    @property
    def is_own(self) -> bool:
        """Whether it is a function of the user's."""
        return not isinstance(self.kind, str)

    def to_record(self, checkpointing: bool | str) -> PlannedLoop:
        """Return what a plan says of it."""
        if isinstance(self.kind, str):
            name = self.kind
        else:
            name = getattr(self.kind, "__name__", type(self.kind).__name__)
        dtype = str(self.autocast or "").removeprefix("torch.")
        words = {False: "", True: "checkpointing", "reentrant": "reentrant checkpointing"}[checkpointing]
        return PlannedLoop(name, self.is_own, self.accumulate, dtype, self.grad_scaler, self.zero_grad, words)


def parse_loop(
    loop: object, *, accumulate: object, autocast: object, grad_scaler: object, zero_grad: object, has_optimizer: bool
) -> Loop:
    """Return the loop that was asked for, autocast around the call included.

    Raises:
        DevwidgetError: if one of these is none, or they do not go together.
    """
    if loop is None:
        loop = STEP
    if not callable(loop) and loop not in LOOPS:
        what = Message("`loop` cannot be {loop}{hint}", loop=repr(loop), hint=nearest(str(loop), LOOPS))
        raise DevwidgetError(what, instead=Message("one of {known}, or a function", known=", ".join(map(repr, LOOPS))))
    refuse_counts(accumulate=accumulate)
    refuse_flags(grad_scaler=grad_scaler)
    if zero_grad is not None and zero_grad not in ZEROS:
        what = Message("`zero_grad` cannot be {zero_grad}", zero_grad=repr(zero_grad))
        raise DevwidgetError(what, instead='zero_grad="none", zero_grad="zero"')
    found = Loop(loop, accumulate, _parse_autocast(autocast), bool(grad_scaler), zero_grad or "")  # type: ignore[arg-type]
    if not has_optimizer and (grad_scaler or zero_grad):
        name = "grad_scaler" if grad_scaler else "zero_grad"
        raise DevwidgetError(
            Message("`{name}` is for a step with an optimizer", name=name), instead="optimizer=torch.optim.AdamW"
        )
    if found.is_own and found != Loop(found.kind):
        raise DevwidgetError(
            Message(
                "your own loop contains these already: `accumulate`, `autocast`, `grad_scaler` and `zero_grad` do not apply"
            ),
            instead=Message("write it in the loop, or take one of {known}", known=", ".join(map(repr, LOOPS))),
        )
    return found


def _parse_autocast(autocast: object) -> torch.dtype | None:
    kind = virtual_gpu(0).type
    if autocast is None:
        return _read_autocast_around(kind)
    if autocast is False:
        return None
    # On a machine without a GPU torch switches the context off as it is made, and keeps its dtype.
    dtype = autocast.fast_dtype if isinstance(autocast, torch.autocast) and autocast.device == kind else autocast
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        what = Message("`autocast` is a `{kind}`", kind=type(autocast).__name__)
        raise DevwidgetError(what, instead=Message('a dtype, or torch.autocast("{kind}", torch.bfloat16)', kind=kind))
    return dtype


def _read_autocast_around(kind: str) -> torch.dtype | None:
    """Return the dtype of autocast that is active around the call; refuse one that torch has switched off, or of the CPU."""
    if torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    if autocast_depth():
        raise DevwidgetError(
            Message("autocast is active around the plan, but not for the planned GPUs"),
            why=Message('without a GPU, torch switches `torch.autocast("{kind}")` off', kind=kind),
            instead=Message("autocast=torch.bfloat16, or autocast=False for none"),
        )
    return None


@dataclass
class RunningLoop:
    """A loop over the copy, step by step.

    Attributes:
        loop: what it does.
        step: model, inputs, loss and optimizer.
        seen: what the loop still holds, `out` and `loss`.
    """

    loop: Loop
    step: MeanStep
    seen: dict[str, Any] = field(default_factory=dict)
    _scaler: Any = None
    _precision: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __post_init__(self) -> None:
        if self.loop.grad_scaler:
            self._scaler = torch.amp.GradScaler(virtual_gpu(0).type)

    def list_phases(self) -> Iterator[tuple[Phase, Callable[[], None]]]:
        """List the parts of one step, in order."""
        if self.loop.kind != PLAIN:
            self.seen.clear()
        if self.step.optimizer is not None:
            self._let_gradients_go()
        for _ in range(min(self.loop.accumulate, MOST_ACCUMULATED)):
            yield "forward", self._run_forward
            yield "loss", self._run_loss
            if not self.step.goes_back(self.seen.get("loss")):
                return
            yield "backward", self._run_backward
        if self.step.optimizer is not None:
            yield "optimizer", self._run_optimizer

    def close(self) -> None:
        """Leave autocast, also after a part has failed, and free everything."""
        self._precision.close()
        self.seen.clear()

    def _let_gradients_go(self) -> None:
        """At the start of a step it is as at the end of the one before, for nothing runs in between."""
        asked = {}
        if self.loop.zero_grad:
            asked["set_to_none"] = self.loop.zero_grad == "none"
        self.step.optimizer.zero_grad(**asked)  # type: ignore[union-attr]

    def _run_forward(self) -> None:
        if self.loop.autocast is not None:
            # Until the loss is there, as torch advises: what is cast is kept as long.
            self._precision.enter_context(torch.autocast(virtual_gpu(0).type, self.loop.autocast))
        out = self.step.model(*self.step.inputs.args, **self.step.inputs.kwargs)
        self.seen["out"] = self._widen_output(out)

    def _widen_output(self, out: Any) -> Any:
        """Under Trainer accelerate casts what a model returns to float32. Source: `ConvertOutputsToFp32`."""
        if self.loop.kind != TRAINER or self.loop.autocast is None:
            return out
        return replace_tensors(out, lambda tensor: tensor.float() if tensor.dtype in _HALVES else tensor)

    def _run_loss(self) -> None:
        self.seen["loss"] = self.step.compute_loss(self.seen["out"])
        self._precision.close()
        if self.loop.kind == TRAINER:
            del self.seen["out"]

    def _run_backward(self) -> None:
        loss = self.seen["loss"]
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()

    def _run_optimizer(self) -> None:
        if self._scaler is not None and self.loop.kind == TRAINER:
            self._scaler.unscale_(self.step.optimizer)
        if self.loop.kind == TRAINER:
            nn.utils.clip_grad_norm_(self.step.model.parameters(), MAX_NORM)
        if self._scaler is None:
            self.step.step_optimizer()
        else:
            self._scaler.step(self.step.optimizer)
            self._scaler.update()


_AFTER_FORWARD: tuple[Phase, ...] = ("loss", "backward", "optimizer")


class _OwnLoop(RunningLoop):
    """A loop of the user's: a generator that yields after each step, or a function that runs one; its parts are watched."""

    def __init__(self, loop: Loop, step: MeanStep, watcher: Watcher) -> None:
        super().__init__(loop, step)
        self._watcher = watcher
        self._going: Iterator[object] | None = None

    def list_phases(self) -> Iterator[tuple[Phase, Callable[[], None]]]:
        """One step is one part, which tells the watcher what runs."""
        yield "forward", self._run_step
        yield from ((phase, lambda: None) for phase in _AFTER_FORWARD if phase in self._watcher.entered)

    def _run_step(self) -> None:
        with self._watching_phases():
            if self._going is not None:
                self._advance(self._going)
                return
            made = self.loop.kind(self.step.model, join_batch(self.step.inputs), self.step.optimizer)  # type: ignore[operator]
            if inspect.isgenerator(made):
                self._going = made
                self._advance(made)

    def _advance(self, going: Iterator[object]) -> None:
        try:
            next(going)
        except StopIteration:
            raise DevwidgetError(
                Message("the loop has ended before its second step"), instead=Message("yield after each step, in `while True:`")
            ) from None

    def close(self) -> None:
        if inspect.isgenerator(self._going):
            self._going.close()
        super().close()

    @contextlib.contextmanager
    def _watching_phases(self) -> Iterator[None]:
        model, optimizer = self.step.model, self.step.optimizer
        handles = [
            model.register_forward_pre_hook(lambda *_: self._watcher.enter_phase("forward")),
            model.register_forward_hook(lambda *_: self._watcher.enter_phase("loss")),
        ]
        if optimizer is not None:
            handles.append(optimizer.register_step_pre_hook(lambda *_: self._watcher.enter_phase("optimizer")))
        try:
            with Patch(torch.autograd, "backward", self._wrap_backward):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _wrap_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._watcher.enter_phase("backward")
            return original(*args, **kwargs)

        return backward


def join_batch(inputs: Arguments) -> Any:
    """Return the batch as it was given: a tensor, a tuple, a dict, or `Inputs`."""
    if not inputs.args:
        return dict(inputs.kwargs)
    if inputs.kwargs:
        return Inputs(*inputs.args, **inputs.kwargs)
    if len(inputs.args) == 1:
        return inputs.args[0]
    return inputs.args


def start_loop(loop: Loop, step: MeanStep, watcher: Watcher) -> RunningLoop:
    """Make a loop ready to run."""
    if loop.is_own:
        return _OwnLoop(loop, step, watcher)
    return RunningLoop(loop, step)
