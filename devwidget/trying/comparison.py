"""Whether a step with an edit did what the healed step did."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import torch

from devwidget.capture.tensors import tensors_in
from devwidget.records.finding import Edit, Finding
from devwidget.records.trace import Trace

_RANDOM = re.compile(
    "rand|normal|bernoulli|multinomial|poisson|uniform_|exponential_|cauchy_|geometric_|dropout|Generator|empty"
)


def results_of(output: Any) -> list[torch.Tensor]:
    """The tensors of an output without what they were computed from, which would stay in memory."""
    return [tensor.detach() for tensor in tensors_in(output)]


def is_random(edits: Sequence[Edit]) -> bool:
    """Whether edited lines draw random numbers: each device has a generator of its own, so that others come out."""
    return any(_RANDOM.search(edit.text) for edit in edits)


def cured_moves(trace: Trace) -> set[tuple[str, str]]:
    """Where a stray that is itself a part of the output was left by healing, and where an edit may have put it instead.

    What is written into on the cpu stays there when its call is healed, so that the other operands are moved.
    """
    pairs = {(operand.device, fault.target) for fault in trace.faults for operand in fault.operands if fault.target is not None}
    onto_cpu = {(target, device) for device, target in pairs if target.kind == "cpu"}
    return {(str(healed), str(edited)) for healed, edited in pairs | onto_cpu}


def are_equal(
    healed: Sequence[torch.Tensor], edited: Sequence[torch.Tensor], moves: Collection[tuple[str, str]], *, values: bool = True
) -> bool:
    """Whether two outputs hold equal tensors, or such of equal shape and dtype, on the same devices but for these moves."""
    return len(healed) == len(edited) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and (a.device == b.device or (str(a.device), str(b.device)) in moves)
        and (not values or _equal(a, b.to(a.device)))
        for a, b in zip(healed, edited, strict=True)
    )


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_sparse or a.layout != torch.strided or a.is_quantized or a.is_meta:
        return True  # its kind is compared, not what is in it
    close = a.is_floating_point() or a.is_complex()
    return torch.equal(a, b) or (close and torch.allclose(a, b, equal_nan=True))


def key_of(finding: Finding) -> tuple[Any, ...]:
    """What a finding has in common with itself in another run."""
    site = finding.fault or finding.birth
    return (finding.kind, site.file if site else "", site.line if site else 0)
