"""One training step on one batch: forward, loss, backward, optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from devwidget.capture.object_fields import field_of, find_class_attribute, is_a, parts_of
from devwidget.capture.step.batch import Arguments, describe_misfit
from devwidget.capture.tensors import is_module, is_tensor, walk_modules
from devwidget.records.trace import Phase


@dataclass(frozen=True, slots=True)
class Step:
    """The step to run, and the arguments of `trace` that define it. `backward=None` runs backward if there is a loss."""

    model: nn.Module
    inputs: Arguments
    loss_fn: Callable[..., Any] | None = None
    optimizer: torch.optim.Optimizer | None = None
    backward: bool | None = None
    allow: str | Iterable[str] = ()
    name: str = ""

    def list_modules(self) -> list[nn.Module]:
        """Return the modules of the model and of the loss."""
        roots = [each for each in (self.model, self.loss_fn) if is_module(each)]
        return list({id(module): module for root in roots for _, module in walk_modules(root)}.values())

    def list_phases(self, seen: dict[str, Any] | None = None) -> Iterator[tuple[Phase, Callable[[], None]]]:
        """Yield the parts of the step in order. Each reads results of the previous ones in `seen`: `out`, `loss`."""
        seen = {} if seen is None else seen

        def forward() -> None:
            if self.optimizer is not None:
                self.optimizer.zero_grad()
            seen["out"] = self.model(*self.inputs.args, **self.inputs.kwargs)

        def loss() -> None:
            seen["loss"] = self.compute_loss(seen["out"])

        yield "forward", forward
        yield "loss", loss
        if self.goes_back(seen.get("loss")):
            yield "backward", lambda: seen["loss"].backward()
            if self.optimizer is not None:
                yield "optimizer", self.step_optimizer

    def runs_in(self, phase: Phase) -> bool:
        """Return whether user code runs in a phase. The loss may be a field of the output."""
        return phase != "loss" or self.loss_fn is not None

    def compute_loss(self, out: Any) -> Any:
        """Return the loss of an output: the result of `loss_fn`, or the model's own."""
        if self.loss_fn is None:
            own = _own_loss(out)
            if is_tensor(own):
                return own
            return out
        if self.inputs.target is None and _takes_one(self.loss_fn):
            return self.loss_fn(out)
        return self.loss_fn(out, self.inputs.target)

    def goes_back(self, loss: Any) -> bool:
        """Return whether a backward follows."""
        if self.backward is not None:
            return self.backward
        scalar = is_tensor(loss) and loss.dim() == 0 and loss.requires_grad
        return self.loss_fn is not None or scalar

    def step_optimizer(self) -> None:
        """Run the optimizer's step, with a closure if it needs one."""
        if self.optimizer is not None:
            needs_closure = describe_misfit(self.optimizer.step)
            self.optimizer.step(*((self._run_again,) if needs_closure else ()))

    def _run_again(self) -> Any:
        """Run forward, loss and backward for an optimizer that evaluates the loss repeatedly, such as LBFGS."""
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        loss = self.compute_loss(self.model(*self.inputs.args, **self.inputs.kwargs))
        loss.backward()
        return loss


def _own_loss(out: Any) -> Any:
    """Return the loss of a HuggingFace model that got labels, or of a named tuple."""
    names = find_class_attribute(type(out), "_fields")
    if is_a(out, tuple) and type(names) is tuple:
        for name, value in zip(names, parts_of(out), strict=False):
            if type(name) is str and name == "loss":
                return value
    return field_of(out, "loss")


def _takes_one(function: Callable[..., Any]) -> bool:
    """Return True for a loss that cannot take a target."""
    return bool(describe_misfit(function, None, None))
