"""Watch nn.DataParallel while it runs: measure its four steps and its backward, and watch each replica in its own thread."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.data_parallel.constructions import first_misplaced, report_misplaced
from devwidget.capture.data_parallel.faults import (
    CallFaults,
    FailedReplica,
    ScatterOffsets,
    arguments_by_name,
    by_name,
    copy_attributes,
    named_arguments,
    report_lost_writes,
    tensors_of_object,
    without_parameters,
)
from devwidget.capture.data_parallel.originals import runs_original
from devwidget.capture.object_fields import class_name, is_among
from devwidget.capture.patching.registry import Patch, listen
from devwidget.capture.recording.event_log import bytes_of, device_id
from devwidget.capture.recording.parallel_calls import CALL, GATHERED, NUMBER, WrapperCall
from devwidget.capture.recording.recorded_threads import watched_by_task
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, innermost_site, raw_site, to_site
from devwidget.capture.source_code.stack import stack
from devwidget.capture.tensors import TENSOR_GROUPS, named_tensors, node_of, own_tensors, tensors_in, walk_modules
from devwidget.capture.undo import Undo
from devwidget.records.errors import error_text, message
from devwidget.records.trace import Cause, Fault, Phase

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
    moved = []
    for crossing in crossings:
        source, target, tensors = crossing
        if source != target and tensors:
            moved.append(crossing)
    sizes = [sum(map(bytes_of, tensors)) for _, _, tensors in moved]
    share = seconds / max(1, sum(sizes))
    for (source, target, tensors), size in zip(moved, sizes, strict=True):
        state.log.log_transfer(source, target, tensors, module, phase, site, cause, share * size)


class Worker:
    """Called by torch's `parallel_apply` in place of a replica."""

    def __init__(self, faults: CallFaults, call: WrapperCall, number: int, replica: nn.Module | Worker) -> None:
        self._faults, self._call, self._number, self._run = faults, call, number, replica
        self._replica: nn.Module = replica._replica if isinstance(replica, Worker) else replica  # of a recording around
        self._caller = threading.get_ident()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the replica. Its faults are recorded and raised."""
        state, run = self._faults.state, self._call.replica_run(self._number)
        here, own_thread = state.tracker.here, threading.get_ident() != self._caller
        started, outer, here.replica = time.perf_counter(), (here.replica, here.nodes, here.explain_fault), self._number
        here.explain_fault = self._explain_fault
        here.nodes = state.tracker.forward_nodes.begin_thread(self._call)
        run.started, run.thread, run.failed = started - state.started, threading.current_thread().name, True
        before, fault_count = copy_attributes(self._replica), len(state.log.faults)
        try:
            with state.watching() if own_thread else contextlib.nullcontext():
                out = self._run_forward(args, kwargs)
            run.failed = False
        finally:
            self._explain_objects(state.log.faults[fault_count:])
            here.replica, here.nodes, here.explain_fault = outer
            run.seconds = time.perf_counter() - started
        report_lost_writes(state, before)
        return out

    def _run_forward(self, args: Any, kwargs: Any) -> Any:
        state = self._faults.state
        try:
            return self._run(*args, **kwargs)
        except StopIteration as error:
            if not without_parameters(state, self._replica, error):
                raise
            return self._run(*args, **kwargs)
        except Exception as error:
            if "device" not in message(error).lower():
                site = innermost_site(error)
                self._faults.blame_split(FailedReplica(self._number, state.tracker.failed, site, error_text(error)))
            raise

    def _explain_fault(self, frame: FrameType, fault: Fault) -> None:
        """Explain a misplaced tensor that the replica met in the original module."""
        own, frames = Worker.__call__.__code__, list[FrameType]()
        for _, each in stack(frame):
            if each.f_code is own:
                break
            frames.append(each)
        if runs_original(frames, self._faults.wrapper.module):
            codes = [each.f_code for each in frames]
            self._faults.blame_stored(fault, lambda code, _: is_among(code, codes))

    def _explain_objects(self, found: Sequence[Fault]) -> None:
        """Explain a misplaced tensor inside an object: every replica got the same object."""
        faults = self._faults
        if not found:
            return
        for name, value in named_arguments(faults.wrapper.module, *faults.inputs):
            whole = {(device_id(tensor.device), tuple(tensor.shape)) for _, tensor in tensors_of_object(value)}
            mine = []
            for fault in found:
                if any((operand.device, operand.shape) in whole for operand in fault.operands if operand.stray):
                    mine.append(fault)
            if mine:
                samples = max(next(iter(shape), 0) for _, shape in whole)
                explains = tuple(fault.number for fault in mine)
                faults.report_uncut(mine[0].module, mine[0].site, mine[0].error, name, value, samples, explains)


def watch_wrappers(state: RecordingState, undo: Undo) -> None:
    """Watch each call of a DataParallel module. The instance is restored afterwards."""
    listen(state.is_here, nn.DataParallel, "forward", functools.partial(_run_watched, state), undo)


def _run_watched(
    state: RecordingState, original: Callable[..., Any], wrapper: nn.DataParallel[Any], *args: Any, **kwargs: Any
) -> Any:
    if not wrapper.device_ids:
        return original(wrapper, *args, **kwargs)
    with Undo() as undo:
        misplaced = first_misplaced(wrapper)
        if misplaced is not None:
            report_misplaced(wrapper, misplaced, (args, kwargs), state, sys._getframe(1))
            if state.heal:  # run the wrapped module alone, where it is
                undo.enter_context(Patch(wrapper, "device_ids", value=[]))
        else:
            watched = WrapperWatch(wrapper, state, sys._getframe(1))
            for name in ("scatter", "replicate", "parallel_apply", "gather"):
                listen(state.is_here, wrapper, name, getattr(watched, name), undo)
            undo.add_step(watched.end_call)
        return original(wrapper, *args, **kwargs)


class WrapperWatch:
    """Measures the four steps of one DataParallel call.

    Args:
        frame: frame of the call.
    """

    def __init__(self, wrapper: nn.DataParallel[Any], state: RecordingState, frame: FrameType) -> None:
        self._wrapper, self._state = wrapper, state
        self._faults = CallFaults(state, wrapper, ((), {}), frame)
        self._started = time.perf_counter()
        path, kind = state.tracker.path_of(wrapper) or "", wrapper.src_device_obj.type
        self._prefix = f"{path}.module".strip(".")
        self.call = WrapperCall(
            number=state.log.number(),
            path=path,
            class_name=class_name(type(wrapper.module)),
            devices=tuple(torch.device(kind, index) for index in wrapper.device_ids),
            output_device=torch.device(kind, wrapper.output_device),
            dim=wrapper.dim,
            site=raw_site(frame),
            started=self._started - state.started,
        )
        state.parallel.add_call(self.call)

    def end_call(self) -> None:
        """Finish after the call has returned or raised."""
        self.call.seconds = time.perf_counter() - self._started
        for run, device in zip(self.call.runs, self.call.devices, strict=False):
            peak: Any = getattr(torch.get_device_module(device), "max_memory_allocated", None)  # the cpu keeps none
            if peak is not None:
                run.peak_bytes = int(peak(device))

    @contextlib.contextmanager
    def _measure_step(self, name: str, cause: Cause = "explicit") -> Iterator[None]:
        started = time.perf_counter()
        try:
            with self._state.tracker.set_cause(cause):
                yield
        finally:
            self.call.steps[name] = time.perf_counter() - started

    def scatter(self, original: Callable[..., Any], inputs: Any, kwargs: Any, *where: Any) -> Any:
        """Split the batch and count what each device got."""
        with self._measure_step("scatter", "scatter"):
            parts = original(inputs, kwargs, *where)
        self._faults.inputs = inputs, kwargs or {}
        module, cut, crossings = self._wrapper.module, ScatterOffsets(self._wrapper.dim), list[Crossing]()
        whole = arguments_by_name(module, *self._faults.inputs)
        for number, (part, part_kwargs) in enumerate(itertools.zip_longest(*parts, fillvalue=())):
            chunks = arguments_by_name(module, part, part_kwargs or {})
            run, pieces = self.call.replica_run(number), []
            for name, chunk in chunks.items():
                source = whole.get(name, chunk).device
                pieces.append(cut.add_piece(name, chunk, source))
                crossings.append((source, chunk.device, [chunk]))
            run.inputs, run.samples = tuple(pieces), next(map(cut.measure_length, chunks.values()), 0)
            self._mark_nodes(CALL, self.call, chunks.values())
        self._log_step("scatter", "scatter", crossings)
        self._faults.check_split(whole, cut.count_lost(whole), to_site(self.call.site))
        return parts

    def replicate(self, original: Callable[..., Any], module: nn.Module, device_ids: Any) -> Any:
        """Copy the model and give each replica's modules the paths of the originals."""
        with self._measure_step("replicate", "replicate"):
            replicas = original(module, device_ids)
        parameters, buffers = ([tensor for _, tensor in named_tensors(module, group)] for group in TENSOR_GROUPS)
        crossings = list[Crossing]()
        for number, replica in enumerate(replicas):
            for path, part in walk_modules(replica):
                self._state.tracker.name_module(part, f"{self._prefix}.{path}".strip("."))
                self._mark_nodes(CALL, self.call, own_tensors(part).values())
            run, target = self.call.replica_run(number), self.call.devices[number]
            if target != self.call.devices[0]:
                run.buffer_bytes = sum(map(bytes_of, buffers))
                run.parameter_bytes = sum(map(bytes_of, parameters)) + run.buffer_bytes
                crossings += [(self.call.devices[0], target, group) for group in (parameters, buffers)]
        self._log_step("replicate", "replicate", crossings)
        return replicas

    def parallel_apply(self, original: Callable[..., Any], replicas: Any, *given: Any) -> Any:
        """Run the replicas, each watched in its own thread."""
        workers = [Worker(self._faults, self.call, number, replica) for number, replica in enumerate(replicas)]
        try:
            with self._measure_step("forward"), watched_by_task():
                return original(workers, *given)
        except AssertionError as error:  # the parts of the inputs are not as many as the replicas
            if not any(run.thread for run in self.call.runs):
                path = self._state.tracker.path_of(self._wrapper.module)
                self._faults.blame_split(FailedReplica(0, path, to_site(self.call.site), error_text(error)))
            raise

    def gather(self, original: Callable[..., Any], outputs: Any, *where: Any) -> Any:
        """Collect the outputs and count the bytes copied to the output device."""
        parts = self._given_back(outputs)
        self._faults.check_outputs(outputs)
        with self._measure_step("gather", "gather"):
            joined = original(outputs, *where)
        whole = list(tensors_in(joined))
        if whole:
            point = self.call.gathered_on = whole[0].device
            self._log_step("gather", "gather", [(part.device, point, [part]) for part in parts])
        self._mark_nodes(CALL, self.call, whole)
        self._mark_nodes(GATHERED, True, whole)
        for vector, part in zip(whole, tensors_in(outputs[0]), strict=False):
            if len(outputs) > 1 and not part.dim():  # as losses are
                self.call.gives_numbers = type(self._wrapper.module)
                self._mark_nodes(NUMBER, True, [vector])
        return joined

    def _given_back(self, outputs: Any) -> list[torch.Tensor]:
        """Count what each replica returns, before it is known whether it fits on the output device."""
        cut, parts = ScatterOffsets(self._wrapper.dim), list[torch.Tensor]()
        for number, output in enumerate(outputs):
            named = dict(by_name(output, "output"))
            pieces = [cut.add_piece(name, part, part.device) for name, part in named.items()]
            self.call.replica_run(number).outputs = tuple(pieces)
            parts += named.values()
        self.call.with_grad = any(part.requires_grad for part in parts)
        return parts

    @staticmethod
    def _mark_nodes(key: str, value: object, tensors: Iterable[torch.Tensor]) -> None:
        """Store a value on the autograd nodes of some tensors."""
        for node in map(node_of, tensors):
            if node is not None:
                node.metadata[key] = value

    def _log_step(self, step: str, cause: Cause, crossings: list[Crossing]) -> None:
        call = self.call
        log_crossings(self._state, crossings, call.steps[step], call.path, "forward", call.site, cause)
