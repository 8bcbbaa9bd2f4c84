"""nn.DataParallel while it runs: its four steps are overridden on the instance, and its placement is checked first."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from devwidget.capture import replica_faults
from devwidget.capture.call_site import RawSite, raw_site, to_site
from devwidget.capture.log import bytes_of, device_id
from devwidget.capture.places import own_tensors
from devwidget.capture.state import State
from devwidget.capture.tensors import tensors_in
from devwidget.records.trace import Fault, Held, Operand, Replica


@contextlib.contextmanager
def watching(wrapper: nn.DataParallel[Any], state: State) -> Iterator[None]:
    """Watch one call of a DataParallel module, and leave its instance as it was."""
    if not wrapper.device_ids:
        yield
        return
    before = dict(wrapper.__dict__)
    misplaced = first_misplaced(wrapper)
    if misplaced is not None:
        report_misplaced(wrapper, misplaced, state, raw_site(sys._getframe(1)))
        if state.heal:
            wrapper.__dict__["device_ids"] = []  # runs the wrapped module alone, where it is
    else:
        wrapper.__dict__.update(_Watch(wrapper, state).overrides())
    try:
        yield
    finally:
        for name in ("replicate", "scatter", "parallel_apply", "gather", "device_ids"):
            if name in before:
                wrapper.__dict__[name] = before[name]
            else:
                wrapper.__dict__.pop(name, None)


def first_misplaced(wrapper: nn.DataParallel[Any]) -> tuple[str, torch.Tensor] | None:
    """The first parameter or buffer that is not where DataParallel demands it."""
    named = itertools.chain(wrapper.module.named_parameters(), wrapper.module.named_buffers())
    return next(((name, tensor) for name, tensor in named if tensor.device != wrapper.src_device_obj), None)


def report_misplaced(
    wrapper: nn.DataParallel[Any], misplaced: tuple[str, torch.Tensor], state: State, site: RawSite | None
) -> None:
    """Write down that a wrapper cannot run; `site` is the line that called it."""
    name, tensor = misplaced
    path = state.places.path_of(wrapper)
    owner = type(wrapper.module).__name__
    held = Held(f"{path}.module".strip(".") if path is not None else None, name, "parameter", owner)
    operand = Operand(name, "", tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), device_id(tensor.device),
                      bytes_of(tensor), stray=True, held=held)  # fmt: skip
    wanted = wrapper.src_device_obj
    devices = {str(t.device) for t in itertools.chain(wrapper.module.parameters(), wrapper.module.buffers())}
    state.log.fault(
        Fault(
            number=0,
            what="parallel",
            call="DataParallel.forward",
            module=path,
            phase=state.places.phase,
            site=to_site(site),
            error="RuntimeError: module must have its parameters and buffers on device "
            f"{wanted} (device_ids[0]) but found one of them on device: {tensor.device}",
            operands=(operand,),
            target=device_id(wanted),
            healed=state.heal,
            birth=to_site(state.places.made.get(wrapper)),
            model_name=state.places.model_name,
            facts=(
                ("device_ids", ", ".join(str(i) for i in wrapper.device_ids)),
                ("found", ", ".join(sorted(devices))),
                ("wrapped", owner),
            ),
        )
    )


class _Watch:
    """The four steps of one DataParallel call, measured."""

    def __init__(self, wrapper: nn.DataParallel[Any], state: State) -> None:
        self._wrapper = wrapper
        self._kind = type(wrapper)
        self._state = state
        self._path = state.places.path_of(wrapper) or ""
        self._prefix = f"{self._path}.module".strip(".")
        self._site: RawSite | None = raw_site(sys._getframe(1))
        self._runs: list[dict[str, Any]] = []
        self._main = threading.get_ident()
        self._whole: list[torch.Tensor] = []

    def overrides(self) -> dict[str, Any]:
        """Names and functions to lay over the instance."""
        return {
            "scatter": self.scatter,
            "replicate": self.replicate,
            "parallel_apply": self.parallel_apply,
            "gather": self.gather,
        }

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        """Cut the batch; count what each device got."""
        with self._state.places.because("scatter"):
            parts = self._kind.scatter(self._wrapper, inputs, kwargs, device_ids)
        whole = self._whole = list(tensors_in((inputs, kwargs)))
        for part, part_kwargs in zip(*parts, strict=True):
            chunks = list(tensors_in((part, part_kwargs)))
            dim = self._wrapper.dim
            samples = next((c.shape[dim] for c in chunks if c.dim() > dim), 0)
            self._runs.append({"samples": samples, "input_bytes": sum(map(bytes_of, chunks)), "parameter_bytes": 0})
            for source, chunk in zip(whole, chunks, strict=False):
                self._log_move(source.device, chunk.device, [chunk], "scatter")
        return parts

    def replicate(self, module: nn.Module, device_ids: Any) -> Any:
        """Copy the model; give each replica's modules the paths of the originals."""
        with self._state.places.because("replicate"):
            replicas = self._kind.replicate(self._wrapper, module, device_ids)
        originals = list(itertools.chain(module.parameters(), module.buffers()))
        places = self._state.places
        for number, replica in enumerate(replicas):
            for path, part in replica.named_modules():
                places.name(part, f"{self._prefix}.{path}".strip("."))
            target = next((t.device for m in replica.modules() for t in own_tensors(m).values()), None)
            if number and originals and target is not None:
                self._runs[number]["parameter_bytes"] = sum(map(bytes_of, originals))
                self._log_move(originals[0].device, target, originals, "replicate")
        return replicas

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> Any:
        """Run the replicas, each watched in its own thread."""
        workers = [_Worker(self, number, replica) for number, replica in enumerate(replicas)]
        return self._kind.parallel_apply(self._wrapper, workers, inputs, kwargs)

    def run(self, number: int, replica: nn.Module, args: Any, kwargs: Any) -> Any:
        """One replica's forward, in whatever thread DataParallel chose."""
        here, state = self._state.places.here, self._state
        own_thread = threading.get_ident() != self._main
        started, outer, here.replica = time.perf_counter(), here.replica, number
        before = replica_faults.plain_attributes(replica)
        try:
            with state.watching() if own_thread else contextlib.nullcontext():
                out = self._forward(replica, args, kwargs)
        finally:
            here.replica = outer
        replica_faults.lost_writes(state, replica, before)
        self._runs[number]["seconds"] = time.perf_counter() - started
        return out

    def _forward(self, replica: nn.Module, args: Any, kwargs: Any) -> Any:
        try:
            return replica(*args, **kwargs)
        except StopIteration as error:
            if not replica_faults.without_parameters(self._state, replica, error):
                raise
            return replica(*args, **kwargs)
        except Exception as error:
            self._explain(error, args, kwargs)
            raise

    def _explain(self, error: Exception, args: Any, kwargs: Any) -> None:
        """A replica failed: was it the way the inputs were cut?"""
        dim = self._wrapper.dim
        odd, batch = replica_faults.odd_lengths(self._whole, dim)
        if self._whole and not any(True for _ in tensors_in((args, kwargs))):
            replica_faults.too_few_samples(self._state, self._wrapper, error, self._whole, batch, len(self._runs))
        elif odd:
            replica_faults.cut_wrongly(self._state, odd, error, batch, dim)

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """Collect the outputs; count what crosses to the gather point."""
        with self._state.places.because("gather"):
            joined = self._kind.gather(self._wrapper, outputs, output_device)
        point = next((t.device for t in tensors_in(joined)), None)
        for number, output in enumerate(outputs):
            parts = list(tensors_in(output))
            for part in parts:
                if point is not None:
                    self._log_move(part.device, point, [part], "gather")
            self._finish(number, parts, point)
        if len(outputs) > 1 and all(isinstance(output, torch.Tensor) and not output.dim() for output in outputs):
            replica_faults.scalar_outputs(self._state, self._prefix, self._wrapper.module, len(outputs))
            return joined.mean() if self._state.heal else joined
        return joined

    def _finish(self, number: int, outputs: list[torch.Tensor], point: torch.device | None) -> None:
        run = self._runs[number]
        device = torch.device(self._wrapper.src_device_obj.type, self._wrapper.device_ids[number])
        self._state.log.replicas.append(
            Replica(
                wrapper=self._path,
                number=number,
                device=device_id(device),
                samples=run["samples"],
                input_bytes=run["input_bytes"],
                parameter_bytes=run["parameter_bytes"],
                output_bytes=sum(map(bytes_of, outputs)),
                peak_bytes=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0,
                seconds=run.get("seconds", 0.0),
                gathered_on=device_id(point) if point is not None else None,
            )
        )

    def _log_move(self, source: torch.device, target: torch.device, tensors: list[torch.Tensor], cause: Any) -> None:
        if source != target and tensors:
            self._state.log.move(source, target, tensors, self._path, "forward", self._site, cause)


class _Worker:
    """What torch's `parallel_apply` calls in place of a replica."""

    def __init__(self, watch: _Watch, number: int, replica: nn.Module) -> None:
        self._watch, self._number, self._replica = watch, number, replica

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._watch.run(self._number, self._replica, args, kwargs)
