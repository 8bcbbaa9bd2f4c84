"""Compare a step with an edit to the same step with everything on one device."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from devwidget.capture.tensors import gradient_of, named_tensors, own, tensors_in
from devwidget.capture.undo import Undo
from devwidget.records.device import DeviceId
from devwidget.records.finding import Edit, Finding
from devwidget.records.schema.message import Message, in_row
from devwidget.records.trace import Trace

_RANDOM = re.compile(
    "rand|normal|bernoulli|multinomial|poisson|uniform_|exponential_|cauchy_|geometric_|dropout|Generator|empty"
)


@dataclass(frozen=True, slots=True)
class Results:
    """Outputs, buffers and gradients of a step.

    Attributes:
        output: tensors of the model output, then the loss.
        buffers: buffers of the model by name.
        gradients: norm of each gradient by parameter name, in the dtype of the gradient.
        left: norms of all other tensors in objects that the step changed; None if unknown.
    """

    output: tuple[torch.Tensor, ...]
    buffers: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    left: tuple[torch.Tensor, ...] | None

    def leaves_as_much(self, other: Results) -> bool:
        """Return whether two steps with the same start are known to have left the same state, gradients excluded."""
        return self.left is not None and other.left is not None and are_equal(self.left, other.left, ())


@dataclass(frozen=True, slots=True)
class Run:
    """One step of a trial."""

    trace: Trace
    results: Results


def results_of(seen: Mapping[str, Any], model: nn.Module, changed: list[Any] | None) -> Results:
    """Return the results of a step, detached from their graphs. `changed` lists all objects that it changed."""
    output = {id(t): t.detach() for t in (*tensors_in(seen.get("out")), *tensors_in(seen.get("loss")))}
    buffers = {path: tensor.detach().clone() for path, tensor in named_tensors(model, "_buffers")}
    found = ((path, gradient_of(tensor)) for path, tensor in named_tensors(model, "_parameters"))
    gradients = {path: _measure_length(each) for path, each in found if each is not None}
    if changed is None:
        left = None
    else:
        left = tuple(map(_measure_length, tensors_in(changed)))
    return Results(tuple(output.values()), buffers, gradients, left)


def _measure_length(tensor: torch.Tensor) -> torch.Tensor:
    """Return the norm of a tensor. Copies of all tensors would need the memory of the model again."""
    plain = tensor.detach()
    if plain.layout != torch.strided:
        if plain.layout == torch.sparse_coo:
            plain = plain.coalesce().values()
        else:
            plain = plain.new_zeros(())
    if not (plain.is_floating_point() or plain.is_complex()):
        return plain.new_zeros(())
    length: torch.Tensor = torch.linalg.vector_norm(plain)
    return length


def modules_that_cut(modules: Iterable[nn.Module]) -> list[nn.DataParallel[Any]]:
    """Return the `DataParallel` modules that split a batch over several devices."""
    wrappers = [each for each in modules if isinstance(each, nn.DataParallel)]
    return [each for each in wrappers if len(each.device_ids) > 1]


@contextlib.contextmanager
def on_one_device(parallel: Iterable[nn.DataParallel[Any]]) -> Iterator[None]:
    """Let each `DataParallel` module use only its first device in the block."""
    with Undo() as undo:
        for each in parallel:
            undo.add_step(setattr, each, "device_ids", each.device_ids)
            each.device_ids = each.device_ids[:1]
        yield


@dataclass(frozen=True, slots=True)
class Reference:
    """The step on one device, which trials are compared with.

    Attributes:
        runs: one run; two if the first changed state that the compared trial may have changed differently.
        is_exact: the user's step must give the same values. False if a split batch makes a difference: random numbers are
            drawn, weights are updated, or statistics are taken per part.
        moves: pairs of devices that may replace each other.
    """

    runs: Sequence[Run]
    is_exact: bool
    moves: Collection[tuple[str, str]]

    def find_difference(self, tried: Sequence[Run], *, is_random: bool) -> str:
        """Return how the results of a trial differ; "" if they do not."""
        for mine, other in zip(self.runs, tried, strict=False):
            if words := find_displaced_call(mine.trace, other.trace, self.moves):
                return words
        # What an edit registers is trained from then on, so that later steps give other values than without it.
        trains_more = self.runs[0].results.gradients.keys() < tried[0].results.gradients.keys()
        for number, (mine, other) in enumerate(zip(self.runs, tried, strict=False)):
            values = self.is_exact and not is_random and not (number and trains_more)
            if words := self._find_difference(mine.results, other.results, values):
                if not number:
                    return words
                return Message("in the second step {difference}", difference=words)
        return ""

    def tells_values(self, tried: Sequence[Run]) -> bool:
        """Return whether the values were compared, or are equal anyway."""
        return self.is_exact or not replace(self, is_exact=True).find_difference(tried, is_random=False)

    def _find_difference(self, mine: Results, other: Results, values: bool) -> str:
        if len(mine.output) != len(other.output):
            return Message("it returns {count} tensors instead of {right}", count=len(other.output), right=len(mine.output))
        for a, b in zip(mine.output, other.output, strict=True):
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                return Message("it returns {result} instead of {right}", result=_kind_of(b), right=_kind_of(a))
            if not _may_stand(a, b, self.moves):
                return Message("its output is on {device} instead of {right}", device=str(b.device), right=str(a.device))
        if values and not are_equal(mine.output, other.output, self.moves):
            return Message("its output differs from the output on one device")
        if values and (buffer := _find_unequal(mine.buffers, other.buffers)):
            return Message("`{name}` has different values than on one device", name=buffer)
        lost = min(mine.gradients.keys() - other.gradients.keys(), default="")
        if lost:
            return Message("`{name}` gets no gradient", name=lost)
        if values and (gradient := _find_unequal(mine.gradients, other.gradients)):
            return Message("the gradient of `{name}` differs from its gradient on one device", name=gradient)
        return ""


def _find_unequal(mine: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> str:
    """Return the first name under which both have different tensors; "" for none."""
    for name in sorted(mine.keys() & other.keys()):
        if not are_equal([mine[name]], [other[name].to(mine[name].device)], ()):
            return name
    return ""


def _kind_of(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def find_displaced_call(reference: Trace, tried: Trace, moves: Collection[tuple[str, str]]) -> str:
    """Return a message on the module that computes on another device than in the step on one device; "" for none.

    Args:
        reference: the step on one device.
        tried: a step with an edit. What the reference computes on the first GPU, a replica computes on its own GPU.
        moves: pairs of devices that may replace each other outside of replicas, in both directions: an edit may move either
            side of a fault.
    """
    homes = {replica.number: replica.device for replica in tried.replicas}
    expected = {event.path: set(event.outputs) for event in reference.modules}
    for event in tried.modules:
        if event.path not in expected:
            continue
        right = expected[event.path]
        if event.replica in homes:
            right = {homes[event.replica] if device == homes[0] else device for device in right}
        wrong = [device for device in event.outputs if device not in right]
        if event.replica not in homes:
            wrong = [device for device in wrong if not _is_allowed(device, right, moves)]
        if wrong:
            return Message(
                "`{module}` computes on {device} instead of {right}",
                module=event.path or event.class_name,
                device=wrong[0],
                right=in_row(sorted(map(str, right))),
            )
    return ""


def _is_allowed(device: DeviceId, right: Iterable[DeviceId], moves: Collection[tuple[str, str]]) -> bool:
    pairs = [(str(each), str(device)) for each in right]
    return any((a, b) in moves or (b, a) in moves for a, b in pairs)


def make_reference(
    runs: Sequence[Run], modules: Iterable[nn.Module], is_cut: bool, moves: Collection[tuple[str, str]]
) -> Reference:
    """Build the reference from repaired steps on one device.

    Args:
        runs: one or two runs; two if the batch is split.
        modules: modules of the model and its loss.
        is_cut: the user's step splits its batch over several devices.
        moves: see `cured_moves`.
    """
    is_steady = are_equal(runs[0].results.output, runs[-1].results.output, ())
    takes_statistics = any(each.training and own(each).get("track_running_stats") is not None for each in modules)
    return Reference(runs, not is_cut or (is_steady and not takes_statistics), moves)


def is_random(edits: Sequence[Edit]) -> bool:
    """Return whether edited lines draw random numbers. Each device has its own generator, so the values differ."""
    return any(_RANDOM.search(edit.text) for edit in edits)


def cured_moves(trace: Trace) -> set[tuple[str, str]]:
    """Return pairs of devices: where the repair left a misplaced tensor of the output, and where an edit may have put it.

    A tensor that is written in place on the cpu stays there when its call is repaired; the other operands are moved.
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


def are_equal(healed: Sequence[torch.Tensor], edited: Sequence[torch.Tensor], moves: Collection[tuple[str, str]]) -> bool:
    """Return whether two outputs have equal shapes, dtypes, devices and values. `moves` lists devices that may differ."""
    if len(healed) != len(edited):
        return False
    for a, b in zip(healed, edited, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype or not _may_stand(a, b, moves) or not _are_close(a, b.to(a.device)):
            return False
    return True


def _may_stand(right: torch.Tensor, other: torch.Tensor, moves: Collection[tuple[str, str]]) -> bool:
    """Return whether a tensor may be on its device."""
    return right.device == other.device or (str(right.device), str(other.device)) in moves


def _are_close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_sparse or a.layout != torch.strided or a.is_quantized or a.is_meta:
        return True  # its kind is compared, not what is in it
    if torch.equal(a, b) or not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    share = torch.finfo(a.dtype).eps ** 0.5  # sums of another order differ by less, whatever the dtype
    return torch.allclose(a, b, rtol=share, atol=share, equal_nan=True)


def key_of(finding: Finding) -> tuple[Any, ...]:
    """Return what identifies a finding in another run: kind and line."""
    site = finding.fault or finding.birth
    if site is None:
        return finding.kind, "", 0
    return finding.kind, site.file, site.line
