"""Record DataParallel's backward. Gradients are scattered to the replicas and reduced on the first GPU, below any mode on
NCCL.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
Groups = Callable[[Any, Any], Iterator[Crossing]]
"""Maps the arguments and the result of a step to source, target and the tensors copied together."""


def parallel_gradients(state: RecordingState, undo: Undo) -> None:
    """Log the transfers of gradients with their cause. In forward the wrapper's own steps are already watched."""
    steps: tuple[tuple[type | None, Cause, Groups], ...] = (
        (torch_internals.ReduceAddCoalesced, "reduce", _reduced_groups),
        (torch_internals.Scatter, "scatter", _scattered_groups),
        (torch_internals.Gather, "gather", _gathered_groups),
    )
    for step, cause, groups in steps:
        if step is not None:
            listen(state.is_here, step, "forward", functools.partial(_log_backward, state, cause, groups), undo)


def _log_backward(state: RecordingState, cause: Cause, groups: Groups, original: Any, ctx: Any, *args: Any) -> Any:
    if state.tracker.phase != "backward":
        return original(ctx, *args)
    started = time.perf_counter()
    with state.tracker.set_cause(cause):
        out = original(ctx, *args)
    seconds, crossings = time.perf_counter() - started, list(groups(args, out))
    node: Any = torch_internals.current_autograd_node()
    call: WrapperCall | None = node.metadata.get(CALL) if node is not None else None
    if call is None:
        log_crossings(state, crossings, seconds, None, "backward", state.tracker.find_site(sys._getframe(1)), cause)
        return out
    log_crossings(state, crossings, seconds, call.path, "backward", call.site, cause)
    for source, target, tensors in crossings if cause == "reduce" else ():
        if source != target:
            call.note_reduced(source, sum(map(bytes_of, tensors)))
    return out


def log_crossings(
    state: RecordingState, crossings: Iterable[Crossing], seconds: float, module: str | None, phase: Phase,
    site: RawSite | None, cause: Cause,
) -> None:  # fmt: skip
    """Record the moves of a step. Its time is divided by bytes, because torch copies them in one call."""
    moved = [(s, t, tensors, sum(map(bytes_of, tensors))) for s, t, tensors in crossings if s != t and tensors]
    share = seconds / max(1, sum(size for *_, size in moved))
    for source, target, tensors, size in moved:
        state.log.log_transfer(source, target, tensors, module, phase, site, cause, share * size)


def _reduced_groups(args: Any, out: Any) -> Iterator[Crossing]:
    """Split `(destination, number of parameters, *gradients)` into one group per replica."""
    _, count, *gradients = args
    target = next(tensors_in(out)).device
    for start in range(0, len(gradients), count):
        group = gradients[start : start + count]
        yield group[0].device, target, group


def _scattered_groups(args: Any, out: Any) -> Iterator[Crossing]:
    source = next(tensors_in(args)).device
    for part in tensors_in(out):
        yield source, part.device, (part,)


def _gathered_groups(args: Any, out: Any) -> Iterator[Crossing]:
    for part in tensors_in(args):
        yield part.device, out.device, (part,)
