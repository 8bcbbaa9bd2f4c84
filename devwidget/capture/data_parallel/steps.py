"""nn.DataParallel while it runs: its four steps are overridden on the instance and measured; each replica in its own thread."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.data_parallel import faults
from devwidget.capture.data_parallel.constructions import first_misplaced, report_misplaced
from devwidget.capture.data_parallel.faults import Named, ScatterOffsets, arguments_by_name, by_name, named_arguments
from devwidget.capture.modules import TENSOR_GROUPS, own_tensors, registered_entries, walk_modules
from devwidget.capture.object_fields import class_name
from devwidget.capture.patching.registry import listen, make_replacement
from devwidget.capture.recording.event_log import bytes_of, device_id
from devwidget.capture.recording.parallel_calls import CALL, GATHERED, NUMBER, WrapperCall
from devwidget.capture.recording.recorded_threads import watched_by_task
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import raw_site
from devwidget.capture.tensors import node_of, tensors_in
from devwidget.capture.undo import Undo
from devwidget.records.errors import error_text, message
from devwidget.records.trace import Cause


class Worker:
    """What torch's `parallel_apply` calls in place of a replica.

    Args:
        whole: the inputs before they were cut.
    """

    def __init__(
        self,
        state: RecordingState,
        wrapper: nn.DataParallel[Any],
        call: WrapperCall,
        whole: list[torch.Tensor],
        number: int,
        replica: nn.Module | Worker,
    ) -> None:
        self._state, self._wrapper, self._call, self._whole = state, wrapper, call, whole
        self._number, self._run = number, replica
        self._replica: nn.Module = replica._replica if isinstance(replica, Worker) else replica  # of a recording around
        self._caller = threading.get_ident()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the replica; its own faults are written down, and raised."""
        here, state, run = self._state.tracker.here, self._state, self._call.replica_run(self._number)
        own_thread = threading.get_ident() != self._caller
        started, outer, here.replica = time.perf_counter(), (here.replica, here.nodes), self._number
        here.nodes = state.tracker.forward_nodes.begin_thread(self._call)
        run.started, run.thread, run.failed = started - state.started, threading.current_thread().name, True
        before, fault_count = faults.plain_attributes(self._replica), len(state.log.faults)
        try:
            with state.watching() if own_thread else contextlib.nullcontext():
                out = self._run_forward(args, kwargs)
            run.failed = False
        finally:
            self._explain_objects(fault_count, args, kwargs)
            here.replica, here.nodes = outer
            run.seconds = time.perf_counter() - started
        faults.lost_writes(state, self._replica, before)
        return out

    def _run_forward(self, args: Any, kwargs: Any) -> Any:
        try:
            return self._run(*args, **kwargs)
        except StopIteration as error:
            if not faults.without_parameters(self._state, self._replica, error):
                raise
            return self._run(*args, **kwargs)
        except Exception as error:
            self._explain_failure(error, args, kwargs)
            raise

    def _explain_failure(self, error: Exception, args: Any, kwargs: Any) -> None:
        """A replica failed: was it the way the inputs were cut?"""
        dim, whole = self._wrapper.dim, self._whole
        odd, batch = faults.odd_lengths(whole, dim)
        if whole and not any(True for _ in tensors_in((args, kwargs))):
            faults.too_few_samples(self._state, self._wrapper, error, whole, batch, len(self._call.runs), self._call.caller)
        elif odd:
            faults.cut_wrongly(self._state, odd, error, batch, dim, self._call.caller)
        else:
            self._explain_lists(error, batch, args, kwargs)

    def _explain_lists(self, error: Exception, batch: int, args: Any, kwargs: Any) -> None:
        """The line that failed reads a list that is as long as the whole batch, beside a part of the batch."""
        share = max((tensor.shape[self._wrapper.dim] for tensor in tensors_in((args, kwargs)) if tensor.dim()), default=batch)
        if share < batch:
            values = faults.whole_values(self._wrapper.module, args, kwargs, batch)
        else:
            values = {}
        if "device" in message(error).lower():
            return
        name = faults.read_whole(error.__traceback__, values)
        if name and not faults.tensors_of_object(values[name]):
            site, path = faults.innermost_site(error.__traceback__), self._state.tracker.failed
            faults.not_cut(self._state, path, site, error_text(error), name, values[name], batch, len(self._call.runs))

    def _explain_objects(self, fault_count: int, args: Any, kwargs: Any) -> None:
        """A tensor of an object was met on the wrong device, because every replica was given the object as it is."""
        found = self._state.log.faults[fault_count:]
        for name, value in named_arguments(self._wrapper.module, args, kwargs) if found else ():
            whole = {(device_id(t.device), tuple(t.shape)) for _, t in faults.tensors_of_object(value)}
            mine = [f for f in found if any(o.stray and (o.device, o.shape) in whole for o in f.operands)]
            if mine:
                samples, replicas = max(shape[0] if shape else 0 for _, shape in whole), len(self._call.devices)
                faults.not_cut(self._state, mine[0].module, mine[0].site, mine[0].error, name, value, samples, replicas,
                               tuple(fault.number for fault in mine))  # fmt: skip


UserMove = tuple[torch.device, torch.device, Sequence[torch.Tensor]]


def watch_call(wrapper: nn.DataParallel[Any], state: RecordingState, undo: Undo) -> None:
    """Watch one call of a DataParallel module, and leave its instance as it was."""
    if not wrapper.device_ids:
        return
    misplaced = first_misplaced(wrapper)
    if misplaced is not None:
        report_misplaced(wrapper, misplaced, state, raw_site(sys._getframe(1)))
        if state.heal:  # run the wrapped module alone, where it is
            undo.enter_context(make_replacement(wrapper, "device_ids", []))
        return
    path = state.tracker.path_of(wrapper) or ""
    watched = WrapperWatch(wrapper, state, f"{path}.module".strip("."), sys._getframe(), path)
    for name in ("scatter", "replicate", "parallel_apply", "gather"):
        listen(state.is_here, wrapper, name, getattr(watched, name), undo)
    undo.add_step(watched.end_call)


class WrapperWatch:
    """The four steps of one DataParallel call, measured.

    Args:
        prefix: path of what is wrapped.
        frame: of the call.
        path: of the wrapper, that of what is wrapped where there is none.
    """

    def __init__(
        self, wrapper: nn.DataParallel[Any], state: RecordingState, prefix: str, frame: FrameType, path: str | None = None
    ) -> None:
        self._wrapper = wrapper
        self._state = state
        self._prefix = prefix
        self._whole: Named = {}
        self._started = time.perf_counter()
        self.call = self._open_call(frame, prefix if path is None else path)
        state.parallel.add_call(self.call)

    def _open_call(self, frame: FrameType, path: str) -> WrapperCall:
        wrapper, kind = self._wrapper, self._wrapper.src_device_obj.type
        return WrapperCall(
            number=self._state.log.number(),
            path=path,
            class_name=class_name(type(wrapper.module)),
            devices=tuple(torch.device(kind, index) for index in wrapper.device_ids),
            output_device=torch.device(kind, wrapper.output_device),
            dim=wrapper.dim,
            site=raw_site(frame),
            started=self._started - self._state.started,
            caller=frame,
        )

    def end_call(self) -> None:
        """The call has returned, or raised."""
        self.call.seconds = time.perf_counter() - self._started
        self.call.caller = None
        for run, device in zip(self.call.runs, self.call.devices, strict=False):
            run.peak_bytes = _peak_of(device)

    @contextlib.contextmanager
    def _measure_step(self, name: str, cause: Cause = "explicit") -> Iterator[None]:
        started = time.perf_counter()
        try:
            with self._state.tracker.set_cause(cause):
                yield
        finally:
            self.call.steps[name] = time.perf_counter() - started

    def scatter(self, original: Callable[..., Any], inputs: Any, kwargs: Any, *where: Any) -> Any:
        """Cut the batch; count what each device got."""
        with self._measure_step("scatter", "scatter"):
            parts = original(inputs, kwargs, *where)
        module = self._wrapper.module
        whole = self._whole = arguments_by_name(module, inputs, kwargs or {})
        cut, crossings = ScatterOffsets(self._wrapper.dim), list[UserMove]()
        for number, (part, part_kwargs) in enumerate(itertools.zip_longest(*parts, fillvalue=())):
            chunks = arguments_by_name(module, part, part_kwargs or {})
            run = self.call.replica_run(number)
            run.inputs = tuple(cut.add_piece(name, chunk, whole.get(name, chunk).device) for name, chunk in chunks.items())
            run.samples = next(map(cut.measure_length, chunks.values()), 0)
            crossings += [(whole.get(name, chunk).device, chunk.device, [chunk]) for name, chunk in chunks.items()]
            self._mark_nodes(chunks.values())
        self._log_step("scatter", "scatter", crossings)
        return parts

    def replicate(self, original: Callable[..., Any], module: nn.Module, device_ids: Any) -> Any:
        """Copy the model; give each replica's modules the paths of the originals."""
        with self._measure_step("replicate", "replicate"):
            replicas = original(module, device_ids)
        parts = [part for _, part in walk_modules(module)]
        parameters, buffers = (
            list({id(t): t for part in parts for _, t in registered_entries(part, group)}.values()) for group in TENSOR_GROUPS
        )
        crossings = list[UserMove]()
        for number, replica in enumerate(replicas):
            for path, part in walk_modules(replica):
                self._state.tracker.name_module(part, f"{self._prefix}.{path}".strip("."))
                self._mark_nodes(own_tensors(part).values())
            run, target = self.call.replica_run(number), self.call.devices[number]
            if target != self.call.devices[0]:
                run.buffer_bytes = sum(map(bytes_of, buffers))
                run.parameter_bytes = sum(map(bytes_of, parameters)) + run.buffer_bytes
                crossings += [(self.call.devices[0], target, group) for group in (parameters, buffers)]
        self._log_step("replicate", "replicate", crossings)
        return replicas

    def parallel_apply(self, original: Callable[..., Any], replicas: Any, *given: Any) -> Any:
        """Run the replicas, each watched in its own thread."""
        whole = list(self._whole.values())
        workers = [
            Worker(self._state, self._wrapper, self.call, whole, number, replica) for number, replica in enumerate(replicas)
        ]
        with self._measure_step("forward"), watched_by_task():
            return original(workers, *given)

    def gather(self, original: Callable[..., Any], outputs: Any, *where: Any) -> Any:
        """Collect the outputs; count what crosses to the gather point."""
        parts = self._given_back(outputs)
        with self._measure_step("gather", "gather"):
            try:
                joined = original(outputs, *where)
            except TypeError as error:
                faults.not_joined(self._state, self._prefix, self._wrapper.module, outputs[0], error)
                raise
        whole = list(tensors_in(joined))
        point = self.call.gathered_on = next((tensor.device for tensor in whole), None)
        self._log_step("gather", "gather", [(part.device, point, [part]) for part in parts if point is not None])
        self._mark_nodes(whole)
        for node in filter(None, map(node_of, whole)):
            node.metadata[GATHERED] = True
        if len(outputs) > 1:
            self._mark_numbers([vector for vector, part in zip(whole, tensors_in(outputs[0]), strict=False) if not part.dim()])
        return joined

    def _given_back(self, outputs: Any) -> list[torch.Tensor]:
        """Count what each replica gives back, before it is known whether the gather point has room for it."""
        cut, parts = ScatterOffsets(self._wrapper.dim), list[torch.Tensor]()
        for number, output in enumerate(outputs):
            named = dict(by_name(output, "output"))
            self.call.replica_run(number).outputs = tuple(
                cut.add_piece(name, part, part.device) for name, part in named.items()
            )
            parts += named.values()
        self.call.with_grad = any(part.requires_grad for part in parts)
        return parts

    def _mark_nodes(self, tensors: Any) -> None:
        """Let the autograd nodes of a step know their call."""
        for tensor in tensors:
            if (node := node_of(tensor)) is not None:
                node.metadata[CALL] = self.call

    def _mark_numbers(self, vectors: Sequence[Any]) -> None:
        """Let the nodes of vectors know that each replica gave a number of them, as a loss is."""
        if vectors:
            self.call.gives_numbers = type(self._wrapper.module)
        for node in map(node_of, vectors):
            if node is not None:
                node.metadata[NUMBER] = True

    def _log_step(self, step: str, cause: Cause, crossings: list[UserMove]) -> None:
        """Write the moves of a step down; its time is shared out by bytes, because torch copies them in one call."""
        moved = [(s, t, tensors, sum(map(bytes_of, tensors))) for s, t, tensors in crossings if s != t and tensors]
        share = self.call.steps[step] / max(1, sum(size for *_, size in moved))
        for source, target, tensors, size in moved:
            seconds = share * size
            self._state.log.log_transfer(source, target, tensors, self.call.path, "forward", self.call.site, cause, seconds)


def _peak_of(device: torch.device) -> int:
    peak: Any = getattr(torch.get_device_module(device), "max_memory_allocated", None)  # the cpu keeps none
    if peak is None:
        return 0
    return int(peak(device))
