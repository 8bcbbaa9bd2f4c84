"""Whether a step with an edit did what the same step does with everything on one device."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import named_tensors
from devwidget.capture.tensors import gradient_of, tensors_in
from devwidget.capture.undo import Undo
from devwidget.records.device import DeviceId
from devwidget.records.finding import Edit, Finding
from devwidget.records.schema.message import Message, in_row
from devwidget.records.trace import ModuleEvent, Trace

_RANDOM = re.compile(
    "rand|normal|bernoulli|multinomial|poisson|uniform_|exponential_|cauchy_|geometric_|dropout|Generator|empty"
)


@dataclass(frozen=True, slots=True)
class Results:
    """What a step has left.

    Attributes:
        output: tensors of the output of the model, then the loss.
        buffers: by name.
        gradients: the length of that of each parameter that has one, by name; in the dtype of the gradient.
    """

    output: tuple[torch.Tensor, ...]
    buffers: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Run:
    """A step of a trial."""

    trace: Trace
    results: Results


def results_of(seen: Mapping[str, Any], model: nn.Module) -> Results:
    """What a step has left, without what it was computed from, which would stay in memory."""
    output = {id(t): t.detach() for t in (*tensors_in(seen.get("out")), *tensors_in(seen.get("loss")))}
    buffers = {path: tensor.detach().clone() for path, tensor in named_tensors(model, "_buffers")}
    gradients = {}
    for path, tensor in named_tensors(model, "_parameters"):
        gradient = gradient_of(tensor)
        if gradient is not None:
            gradients[path] = _measure_length(gradient)
    return Results(tuple(output.values()), buffers, gradients)


def _measure_length(gradient: torch.Tensor) -> torch.Tensor:
    """One number for each: a copy of all would take the memory of the model once more."""
    plain = gradient.detach()
    if plain.layout == torch.sparse_coo:
        plain = plain.coalesce().values()
    length: torch.Tensor = torch.linalg.vector_norm(plain)
    return length


def modules_that_cut(modules: Iterable[nn.Module]) -> list[nn.DataParallel[Any]]:
    """Those that cut a batch for several devices."""
    return [each for each in modules if isinstance(each, nn.DataParallel) and len(each.device_ids) > 1]


@contextlib.contextmanager
def on_one_device(parallel: Iterable[nn.DataParallel[Any]]) -> Iterator[None]:
    """Let each use its first device alone. Healing brings the rest of a step together."""
    with Undo() as undo:
        for each in parallel:
            undo.add_step(setattr, each, "device_ids", each.device_ids)
            each.device_ids = each.device_ids[:1]
        yield


@dataclass(frozen=True, slots=True)
class Reference:
    """The step with everything on one device.

    Attributes:
        run: it.
        is_cut: a `DataParallel` cuts the batch in the user's step, whose values may be others then.
        moves: where tensors may be instead.
    """

    run: Run
    is_cut: bool
    moves: Collection[tuple[str, str]]

    def find_difference(self, tried: Run, *, values: bool) -> str:
        """How the results of a trial differ from these; "" where they do not.

        Args:
            tried: the step with an edit.
            values: whether they have to be equal, beside their shapes and devices.
        """
        displaced = find_displaced_call(self.run.trace, tried.trace, self.moves)
        if displaced:
            return displaced
        mine, other = self.run.results, tried.results
        if len(mine.output) != len(other.output):
            return Message(
                "it returns {count} tensors, and {right} on one device", count=len(other.output), right=len(mine.output)
            )
        for a, b in zip(mine.output, other.output, strict=True):
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                return Message("it gives {result}, and {right} on one device", result=_kind_of(b), right=_kind_of(a))
            if not is_alike(a, b, self.moves, values=values):
                return Message("it gives other values than on one device")
        lost = min(mine.gradients.keys() - other.gradients.keys(), default="")
        if lost:
            return Message("`{name}` gets no gradient", name=lost)
        if values:
            return _find_other_values(mine, other)
        return ""


def _find_other_values(mine: Results, other: Results) -> str:
    buffer = _find_unequal(mine.buffers, other.buffers)
    if buffer:
        return Message("`{name}` holds other values than on one device", name=buffer)
    gradient = _find_unequal(mine.gradients, other.gradients)
    if gradient:
        return Message("the gradient of `{name}` is another than on one device", name=gradient)
    return ""


def _find_unequal(mine: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> str:
    """The first name under which both have a tensor, and not the same; "" for none."""
    for name in sorted(mine.keys() & other.keys()):
        if mine[name].shape != other[name].shape or not _are_close(mine[name], other[name].to(mine[name].device)):
            return name
    return ""


def _kind_of(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def find_displaced_call(reference: Trace, tried: Trace, moves: Collection[tuple[str, str]]) -> str:
    """The module that computes on another device than in the step on one device; "" for none.

    Args:
        reference: the step on one device.
        tried: a step with an edit. What the reference computes on the first GPU a replica has to compute on its own.
        moves: where a call outside of replicas may be instead, in either direction: an edit may move either side of a fault.
    """
    homes = {replica.number: replica.device for replica in tried.replicas}
    expected = {event.path: set(event.outputs) for event in reference.modules}
    for event in tried.modules:
        right = expected.get(event.path)
        if right is None:
            continue
        if event.replica in homes:
            right = {homes[event.replica] if device == homes[0] else device for device in right}
            allowed: Collection[tuple[str, str]] = ()
        else:
            allowed = moves
        for device in event.outputs:
            if device not in right and not _is_allowed(device, right, allowed):
                return _describe_displaced(event, device, right)
    return ""


def _describe_displaced(event: ModuleEvent, device: DeviceId, right: Iterable[DeviceId]) -> str:
    return Message(
        "`{module}` computes on {device}, and has to on {right}",
        module=event.path or event.class_name,
        device=device,
        right=in_row(sorted(map(str, right))),
    )


def _is_allowed(device: DeviceId, right: Iterable[DeviceId], moves: Collection[tuple[str, str]]) -> bool:
    pairs = [(str(each), str(device)) for each in right]
    return any((a, b) in moves or (b, a) in moves for a, b in pairs)


def is_random(edits: Sequence[Edit]) -> bool:
    """Whether edited lines draw random numbers: each device has a generator of its own, so that others come out."""
    return any(_RANDOM.search(edit.text) for edit in edits)


def cured_moves(trace: Trace) -> set[tuple[str, str]]:
    """Where a stray that is itself a part of the output was left by healing, and where an edit may have put it instead.

    What is written into on the cpu stays there when its call is healed, so that the other operands are moved.
    """
    moves = set()
    for fault in trace.faults:
        target = fault.target
        if target is None:
            continue
        for operand in fault.operands:
            moves.add((str(operand.device), str(target)))
            if target.kind == "cpu":
                moves.add((str(target), str(operand.device)))
    return moves


def is_alike(healed: torch.Tensor, edited: torch.Tensor, moves: Collection[tuple[str, str]], *, values: bool) -> bool:
    """Whether two outputs are on the same device but for these moves, and hold the same values if these count."""
    is_placed = healed.device == edited.device or (str(healed.device), str(edited.device)) in moves
    return is_placed and (not values or _are_close(healed, edited.to(healed.device)))


def _are_close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_sparse or a.layout != torch.strided or a.is_quantized or a.is_meta:
        return True  # its kind is compared, not what is in it
    if torch.equal(a, b) or not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    share = torch.finfo(a.dtype).eps ** 0.5  # sums of another order differ by less, whatever the dtype
    return torch.allclose(a, b, rtol=share, atol=share, equal_nan=True)


def key_of(finding: Finding) -> tuple[Any, ...]:
    """What a finding has in common with itself in another run."""
    site = finding.fault or finding.birth
    if site is None:
        return finding.kind, "", 0
    return finding.kind, site.file, site.line
