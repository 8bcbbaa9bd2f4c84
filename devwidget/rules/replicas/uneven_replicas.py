"""The hints of parallel-io: a GPU gets no sample, or one holds much more than the others because it gathers the outputs."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.device import DeviceId
from devwidget.records.finding import Fix
from devwidget.records.parallel import DataParallelCall, Replica
from devwidget.records.schema.message import Message, in_row
from devwidget.records.trace import Trace
from devwidget.rules.found import Found, SiteInModule

_LEAST_BYTES = 2**20
_LEAST_SHARE = 0.1
"""Of the other GPUs' peak that the gathered outputs must take."""


def find_uneven(trace: Trace) -> Iterator[Found]:
    """Yield hints on wrappers, each from its last call. A short last batch among others says nothing."""
    is_odd = any(fault.what == "io" for fault in trace.faults)
    last = {call.wrapper: call for call in trace.parallel}
    for wrapper, call in last.items():
        replicas = [each for each in trace.replicas if each.call == call.number]
        numbers = [each.number for each in trace.parallel if each.wrapper == wrapper]
        reached = max(sum(each.call == number for each in trace.replicas) for number in numbers) or len(call.device_ids)
        samples = sum(each.samples for each in replicas)
        is_full = call.with_grad and trace.error.startswith("OutOfMemoryError")
        if samples and reached < len(call.device_ids) and not trace.error and not is_odd:
            yield _idle(call, samples, reached)
        elif replicas and (call.backward or is_full):
            yield from _gathered(trace, call, replicas)


def _idle(call: DataParallelCall, samples: int, reached: int) -> Found:
    count = len(call.device_ids)
    return Found(
        SiteInModule(call.site, call.wrapper),
        Message(
            "a batch of {samples} reaches {reached} of {count} GPUs; {idle} got no sample",
            samples=samples,
            reached=reached,
            count=count,
            idle=in_row(map(str, call.device_ids[reached:])),
        ),
        why=Message("torch splits the batch into chunks of {part}", part=-(-samples // count)),
        fixes=[Fix(Message("use a batch size that the number of GPUs divides"), "", "likely")],
        cause=f"idle {call.wrapper}",
        severity="info",
    )


def _gathered(trace: Trace, call: DataParallelCall, replicas: list[Replica]) -> Iterator[Found]:
    peaks = _list_peaks(trace, call, replicas)
    gathered, most = sum(each.output_bytes for each in replicas), peaks.pop(call.output_device, 0)
    rest = max(peaks.values(), default=0)
    if not rest or gathered < max(_LEAST_BYTES, _LEAST_SHARE * rest) or most - rest < gathered:
        return
    yield Found(
        SiteInModule(call.site, call.wrapper),
        Message(
            "{device} gathers {gathered} MiB of outputs: its peak is {most} MiB, that of the other GPUs at most {rest} MiB",
            device=call.output_device,
            gathered=_mebibytes(gathered),
            most=_mebibytes(most),
            rest=_mebibytes(rest),
        ),
        why=Message("DataParallel gathers the outputs of all replicas on one GPU, where the loss is computed"),
        fixes=[
            Fix(
                Message("compute the loss in `forward` and return it, so that only the losses are gathered"),
                _WITH_LOSS,
                "likely",
            ),
            Fix(Message("use DistributedDataParallel, which gathers no outputs"), "", "choice"),
        ],
        cause=f"gathered {call.wrapper}",
        severity="info",
    )


_WITH_LOSS = """class WithLoss(nn.Module):
    def __init__(self, model, loss_fn):
        super().__init__()
        self.model, self.loss_fn = model, loss_fn

    def forward(self, x, target):
        return self.loss_fn(self.model(x), target)

loss = nn.DataParallel(WithLoss(model, loss_fn))(x, target).mean()"""


def _list_peaks(trace: Trace, call: DataParallelCall, replicas: list[Replica]) -> dict[DeviceId, int]:
    """Return the peak of each GPU of a call: by the end of the step where that is known, else by the gather."""
    peaks = {each.device: each.peak_bytes for each in replicas}
    for curve in trace.memory:
        if curve.device in peaks:
            peaks[curve.device] = max(peaks[curve.device], curve.end.peak)
    return peaks


def _mebibytes(count: int) -> str:
    size = count / 2**20
    return f"{size:.3g}" if size < 1000 else f"{size:.0f}"
