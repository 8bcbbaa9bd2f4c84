"""One replica of a DataParallel call, watched in whatever thread torch runs it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import torch
from torch import nn

from devwidget.capture.data_parallel import faults
from devwidget.capture.data_parallel.pieces import named_arguments
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.recording.parallel_calls import WrapperCall
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.tensors import tensors_in
from devwidget.records.errors import error_text, message


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
        started, outer, here.replica = time.perf_counter(), here.replica, self._number
        run.started, run.thread, run.failed = started - state.started, threading.current_thread().name, True
        before, fault_count = faults.plain_attributes(self._replica), len(state.log.faults)
        try:
            with state.watching() if own_thread else contextlib.nullcontext():
                out = self._run_forward(args, kwargs)
            run.failed = False
        finally:
            self._explain_objects(fault_count, args, kwargs)
            here.replica, run.seconds = outer, time.perf_counter() - started
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
        values = faults.whole_values(self._wrapper.module, args, kwargs, batch) if share < batch else {}
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
