"""Record DataParallel's backward. Gradients are scattered to the replicas and reduced on the first GPU, below any mode on
NCCL.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.patching.registry import listen
from devwidget.capture.recording.event_log import bytes_of
from devwidget.capture.recording.parallel_calls import CALL, WrapperCall
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite
from devwidget.capture.tensors import tensors_in
from devwidget.capture.undo import Undo
from devwidget.records.trace import Cause, Phase

Crossing = tuple[torch.device, torch.device, Sequence[torch.Tensor]]
"""Source, target and the tensors copied together."""


def parallel_gradients(state: RecordingState, undo: Undo) -> None:
    """Log the transfers of gradients with their cause. In forward the wrapper's own steps are already watched."""
    steps: tuple[tuple[type | None, Cause], ...] = (
        (torch_internals.ReduceAddCoalesced, "reduce"),
        (torch_internals.Scatter, "scatter"),
        (torch_internals.Gather, "gather"),
    )
    for step, cause in steps:
        if step is not None:
            listen(state.is_here, step, "forward", functools.partial(_log_backward, state, cause), undo)


def _log_backward(state: RecordingState, cause: Cause, original: Any, ctx: Any, *args: Any) -> Any:
    if state.tracker.phase != "backward":
        return original(ctx, *args)
    started = time.perf_counter()
    with state.tracker.set_cause(cause):
        out = original(ctx, *args)
    seconds, crossings = time.perf_counter() - started, _list_crossings(cause, args, out)
    node: Any = torch_internals.current_autograd_node()
    call: WrapperCall | None = node.metadata.get(CALL) if node is not None else None
    if call is None:
        log_crossings(state, crossings, seconds, None, "backward", state.tracker.find_site(sys._getframe(1)), cause)
        return out
    log_crossings(state, crossings, seconds, call.path, "backward", call.site, cause)
    for source, target, tensors in crossings:
        if cause == "reduce" and source != target:
            call.note_reduced(source, sum(map(bytes_of, tensors)))
    return out


def _list_crossings(cause: Cause, args: Any, out: Any) -> list[Crossing]:
    if cause == "scatter":
        source = next(tensors_in(args)).device
        return [(source, part.device, (part,)) for part in tensors_in(out)]
    target, groups = next(tensors_in(out)).device, dict[torch.device, list[torch.Tensor]]()
    for part in tensors_in(args):
        groups.setdefault(part.device, []).append(part)
    return [(source, target, group) for source, group in groups.items()]


def log_crossings(
    state: RecordingState, crossings: Iterable[Crossing], seconds: float, module: str | None, phase: Phase,
    site: RawSite | None, cause: Cause,
) -> None:  # fmt: skip
    """Record the moves of a step. Its time is divided by bytes, because torch copies them in one call."""
    moved = [crossing for crossing in crossings if crossing[0] != crossing[1] and crossing[2]]
    sizes = [sum(map(bytes_of, tensors)) for _, _, tensors in moved]
    share = seconds / max(1, sum(sizes))
    for (source, target, tensors), size in zip(moved, sizes, strict=True):
        state.log.log_transfer(source, target, tensors, module, phase, site, cause, share * size)
