"""One replica of a DataParallel call, watched in whatever thread torch runs it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import torch
from torch import nn

from devwidget.capture.data_parallel import faults
from devwidget.capture.recording.parallel_calls import Call
from devwidget.capture.recording.state import State
from devwidget.capture.tensors import tensors_in


class Worker:
    """What torch's `parallel_apply` calls in place of a replica.

    Args:
        whole: the inputs before they were cut.
    """

    def __init__(
        self,
        state: State,
        wrapper: nn.DataParallel[Any],
        call: Call,
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
        here, state, run = self._state.tracker.here, self._state, self._call.run(self._number)
        own_thread = threading.get_ident() != self._caller
        started, outer, here.replica = time.perf_counter(), here.replica, self._number
        run.started, run.thread, run.failed = started - state.started, threading.current_thread().name, True
        before = faults.plain_attributes(self._replica)
        try:
            with state.watching() if own_thread else contextlib.nullcontext():
                out = self._forward(args, kwargs)
            run.failed = False
        finally:
            here.replica, run.seconds = outer, time.perf_counter() - started
        faults.lost_writes(state, self._replica, before)
        return out

    def _forward(self, args: Any, kwargs: Any) -> Any:
        try:
            return self._run(*args, **kwargs)
        except StopIteration as error:
            if not faults.without_parameters(self._state, self._replica, error):
                raise
            return self._run(*args, **kwargs)
        except Exception as error:
            self._explain(error, args, kwargs)
            raise

    def _explain(self, error: Exception, args: Any, kwargs: Any) -> None:
        """A replica failed: was it the way the inputs were cut?"""
        dim, whole = self._wrapper.dim, self._whole
        odd, batch = faults.odd_lengths(whole, dim)
        if whole and not any(True for _ in tensors_in((args, kwargs))):
            faults.too_few_samples(self._state, self._wrapper, error, whole, batch, len(self._call.runs), self._call.caller)
        elif odd:
            faults.cut_wrongly(self._state, odd, error, batch, dim, self._call.caller)
