"""What DataParallel did, against an independent count of what torch's own scatter, broadcast, gather and reduce were given."""

import collections
import contextlib
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm

import devwidget

pytestmark = pytest.mark.filterwarnings("ignore:Using -1 to represent CPU tensor:FutureWarning")


def scattered(args, out):
    return [(args[0], part, part) for part in out]


def broadcast(args, out):
    return [(tensor, copied, copied) for copies in out for tensor, copied in zip(args[0], copies, strict=True)]


def gathered(args, out):
    return [(part, out, part) for part in args[0]]


def added(args, out):
    return [(gradient, out[0], gradient) for gradients in args[0] for gradient in gradients]


STEPS = {"scatter": ("scatter", scattered), "broadcast_coalesced": ("replicate", broadcast),
         "gather": ("gather", gathered), "reduce_add_coalesced": ("reduce", added)}  # fmt: skip


class Counter:
    """Tensors and bytes that torch's own functions carried from one device to another, by cause."""

    def __init__(self, monkeypatch):
        self.seen = collections.Counter()
        for name, (cause, carried) in STEPS.items():
            monkeypatch.setattr(comm, name, self.counting(getattr(comm, name), cause, carried))

    def counting(self, original, cause, carried):
        def counted(*args, **kwargs):
            out = original(*args, **kwargs)
            for source, target, tensor in carried(args, out):
                if source.device != target.device:
                    key = (cause, str(source.device), str(target.device))
                    self.seen[(*key, "tensors")] += 1
                    self.seen[(*key, "bytes")] += tensor.nbytes
            return out

        return counted


def recorded(trace):
    found = collections.Counter()
    for move in trace.moves:
        if move.cause in ("scatter", "replicate", "gather", "reduce"):
            key = (move.cause, str(move.source), str(move.target))
            found[(*key, "tensors")] += move.tensors * move.count
            found[(*key, "bytes")] += move.bytes * move.count
    return found


class Mapping(nn.Module):
    """Dicts and tuples in, a dict of tensors and a tuple out; a buffer that needs no gradient; frozen weights."""

    def __init__(self):
        super().__init__()
        self.layer, self.frozen = nn.Linear(4, 6), nn.Linear(6, 3).requires_grad_(False)
        self.register_buffer("scale", torch.ones(3, dtype=torch.float64))

    def forward(self, batch, pair):
        hidden = self.layer(batch["x"] + batch["deep"]["y"]) + pair[0]
        return {"out": self.frozen(hidden) * self.scale.float(), "both": (hidden, pair[1] * 2), "none": None}


def mlp(n):
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    return model.eval(), (torch.randn(n, 4),), {}


def mapping(n):
    batch = {"x": torch.randn(n, 4), "deep": {"y": torch.randn(n, 4, requires_grad=True)}}
    return Mapping(), (batch,), {"pair": (torch.randn(n, 6), torch.randn(n, 2))}


def loss_of(out):
    parts = out if isinstance(out, dict) else {"out": out}
    return sum(value.float().square().mean() for value in parts.values() if isinstance(value, torch.Tensor))


@pytest.mark.parametrize(("samples", "gpus"), [(16, 2), (11, 3), (5, 8)])
@pytest.mark.parametrize("build", [mlp, mapping])
@pytest.mark.parametrize("where", ["cpu", "cuda:0"])
def test_moves_equal_what_torch_itself_carried(build, samples, gpus, where, monkeypatch):
    counter = Counter(monkeypatch)
    with devwidget.simulate(gpus):
        model, args, kwargs = build(samples)
        args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to(where), (args, kwargs))
        wrapper = nn.DataParallel(model.cuda())
        with devwidget.record() as recording:
            loss_of(wrapper(*args, **kwargs)).backward()
    assert recorded(recording.trace) == counter.seen
    assert {cause for cause, *_ in counter.seen} == {"scatter", "replicate", "gather", "reduce"}


@pytest.mark.parametrize("order", [{"device_ids": [2, 0, 1]}, {"device_ids": [1, 2]}, {"output_device": 2}])
def test_moves_equal_them_with_other_devices_and_gradients_of_the_input(order, monkeypatch):
    counter = Counter(monkeypatch)
    with devwidget.simulate(3):
        model, args, kwargs = mapping(7)
        wrapper = nn.DataParallel(model.to(f"cuda:{order.get('device_ids', [0])[0]}"), **order)
        trace = devwidget.trace(wrapper, devwidget.Inputs(*args, **kwargs), loss_fn=loss_of)
    assert recorded(trace) == counter.seen
    (call,) = trace.parallel
    assert [device.index for device in call.device_ids] == order.get("device_ids", [0, 1, 2])
    assert {str(replica.gathered_on) for replica in trace.replicas} == {str(call.output_device)}
    assert str(call.output_device) == f"cuda:{order.get('output_device', call.device_ids[0].index)}"


def test_each_replica_tells_its_part_of_every_tensor():
    model, args, kwargs = mapping(5)
    with devwidget.simulate(2):
        trace = devwidget.trace(nn.DataParallel(model.cuda()), devwidget.Inputs(*args, **kwargs))
    first, second = trace.replicas
    names = ["batch['x']", "batch['deep']['y']", "pair[0]", "pair[1]"]
    assert [(p.name, p.shape[0], p.start, str(p.source)) for p in first.inputs] == [(name, 3, 0, "cpu") for name in names]
    assert [(p.name, p.shape[0], p.start, str(p.source)) for p in second.inputs] == [(name, 2, 3, "cpu") for name in names]
    outs = ["output['out']", "output['both'][0]", "output['both'][1]"]
    assert [(p.name, p.shape, p.start, str(p.source)) for p in second.outputs] == [
        (name, shape, 3, "cuda:1") for name, shape in zip(outs, [(2, 3), (2, 6), (2, 2)], strict=True)
    ]
    assert (second.input_bytes, second.output_bytes) == (2 * (4 + 4 + 6 + 2) * 4, 2 * (3 + 6 + 2) * 4)


def test_a_call_spans_its_replicas_and_steps():
    with devwidget.simulate(3):
        trace = devwidget.trace(nn.DataParallel(mlp(1)[0].cuda()), torch.randn(6, 4), loss_fn=loss_of)
    (call,) = trace.parallel
    parts = (call.scatter_seconds, call.replicate_seconds, call.forward_seconds, call.gather_seconds)
    assert all(parts)
    assert sum(parts) <= call.seconds
    assert call.backward
    assert call.site is None  # the line is ours
    assert len({replica.thread for replica in trace.replicas}) == 3
    for replica in trace.replicas:
        assert call.started < replica.started < replica.started + replica.seconds < call.started + call.seconds
        assert replica.call == call.number
        assert replica.buffer_bytes == (0 if replica.number == 0 else 16 * 4 * 2 + 8)
        assert replica.gradient_bytes == replica.parameter_bytes - replica.buffer_bytes


def test_peaks_of_replicas_are_the_simulators():
    with devwidget.simulate(2):
        wrapper = nn.DataParallel(mlp(1)[0].cuda())
        with devwidget.record() as recording, torch.no_grad():
            wrapper(torch.randn(6, 4))
        peaks = [torch.cuda.max_memory_allocated(index) for index in range(2)]
    assert [replica.peak_bytes for replica in recording.trace.replicas] == peaks


def test_gradients_go_to_the_call_that_they_belong_to():
    class Twin(nn.Module):
        def __init__(self):
            super().__init__()
            self.small = nn.DataParallel(nn.Linear(4, 4).cuda())
            self.large = nn.DataParallel(nn.Linear(4, 64).cuda())

        def forward(self, x):
            return self.large(self.small(self.small(x)))

    with devwidget.simulate(2):
        trace = devwidget.trace(Twin(), torch.randn(4, 4, device="cuda"), loss_fn=loss_of)
    assert [call.wrapper for call in trace.parallel] == ["small", "small", "large"]
    home = [(replica.wrapper, replica.gradient_bytes) for replica in trace.replicas if replica.number]
    assert home == [("small", 80), ("small", 80), ("large", 1280)]
    reduced = [(move.module, move.bytes, move.count) for move in trace.moves if move.cause == "reduce"]
    assert sorted(reduced) == [("large", 1280, 1), ("small", 80, 1), ("small", 80, 1)]  # each bears the place of its own call


@pytest.mark.parametrize(("samples", "shares"), [(1, [1]), (3, [1, 1, 1]), (9, [3, 3, 3]), (10, [3, 3, 3, 1])])
def test_a_short_batch_does_not_reach_the_last_gpus(samples, shares):
    with devwidget.simulate(4):
        trace = devwidget.trace(nn.DataParallel(nn.Linear(4, 4).cuda()), torch.randn(samples, 4))
    assert [replica.samples for replica in trace.replicas] == shares
    assert len(trace.parallel[0].device_ids) == 4


def test_one_gpu_calls_the_module_directly():
    with devwidget.simulate(2):
        trace = devwidget.trace(nn.DataParallel(nn.Linear(4, 4), device_ids=[1]), torch.randn(3, 4))
    assert trace.replicas == ()
    assert [str(device) for device in trace.parallel[0].device_ids] == ["cuda:1"]


def test_a_failed_replica_says_so():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            if x.device.index == 1:
                raise ValueError("not here")
            return self.layer(x)

    with devwidget.simulate(2), pytest.raises(ValueError, match="not here"), devwidget.record() as recording:
        nn.DataParallel(Picky().cuda())(torch.randn(4, 4))
    assert [(r.failed, r.gathered_on, r.samples) for r in recording.trace.replicas] == [(False, None, 2), (True, None, 2)]


def test_outputs_that_the_gather_point_has_no_room_for_are_told():
    with devwidget.simulate(2, "1MiB"):
        wrapper = nn.DataParallel(nn.Linear(4, 1000).cuda())
        trace = devwidget.trace(wrapper, torch.randn(200, 4), loss_fn=loss_of)
    assert trace.error.startswith("OutOfMemoryError")
    assert [(replica.output_bytes, replica.gathered_on) for replica in trace.replicas] == [(400_000, None)] * 2
    assert not any(move.cause == "gather" for move in trace.moves)
    assert "DataParallel gathers the outputs on cuda:0: 781 KiB" in str(trace)


def test_a_subclass_that_scatters_in_its_own_way_is_watched_and_not_disturbed():
    class Own(nn.DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            (x,) = inputs
            return [(x[:1].to("cuda:0"),), (x[1:].to("cuda:1"),)], [{}, {}]

    with devwidget.simulate(2):
        trace = devwidget.trace(Own(nn.Linear(4, 4).cuda()), torch.randn(5, 4))
    assert [(replica.samples, replica.input_bytes) for replica in trace.replicas] == [(1, 16), (4, 64)]


class Counting(nn.Module):
    """Counts in attributes what it has seen."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.seen = 0
        self.longest = 0

    def forward(self, ids):
        self.seen = self.seen + len(ids)
        self.longest = max(self.longest, ids.shape[1])
        return self.embed(ids) + self.seen


def test_numbers_that_forward_updates_become_buffers_that_it_updates_in_place():
    with devwidget.simulate(gpus=2):
        model = nn.DataParallel(Counting().to("cuda:0"), device_ids=[0, 1])
        found = devwidget.trace(model, torch.zeros(4, 3, dtype=torch.long, device="cuda:0"), verify=False).findings
    code = "\n".join(fix.code for finding in found for fix in finding.fixes if fix.edits)
    assert "self.register_buffer('seen', torch.tensor(0))" in code
    assert "self.seen.add_(len(ids))" in code
    assert "self.longest.clamp_(min=ids.shape[1])" in code


@dataclasses.dataclass
class Rows:
    x: torch.Tensor


class OfRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, rows):
        return self.out(rows.x)


class Lengths(OfRows):
    def forward(self, x, lengths):
        return torch.nn.utils.rnn.pack_padded_sequence(self.out(x), lengths, batch_first=True, enforce_sorted=False).data


class Named(OfRows):
    def forward(self, x, names):
        assert len(names) == 4
        return self.out(x) + torch.ones(3, device=x.device)


def told_of_replicas(module, batch):
    """Kinds and headlines of a recording that heals, and of an explanation."""
    with devwidget.simulate(gpus=2):
        model = nn.DataParallel(module.to("cuda:0"), device_ids=[0, 1])
        with contextlib.suppress(Exception), devwidget.record(heal=True) as recording:
            model(*batch(torch.randn(4, 3, 4, device="cuda:0")))
        with pytest.raises(Exception) as caught:  # noqa: PT011  whichever it raises
            model(*batch(torch.randn(4, 3, 4, device="cuda:0")))
        findings = [*recording.trace.findings, *devwidget.explain(caught.value).findings]
    return [(found.kind, str(found.headline)) for found in findings]


@pytest.mark.parametrize(("module", "batch", "words"), [
    (OfRows, lambda x: (Rows(x),), "`rows` (Rows) has 4 entries, and each of the 2 replicas gets all of them"),
    (Lengths, lambda x: (x, [3, 1, 2, 3]), "`lengths` (list) has 4 entries, and each of the 2 replicas gets all of them"),
])  # fmt: skip
def test_what_the_wrapper_cannot_cut_is_told_by_a_recording_and_an_explanation(module, batch, words):
    assert told_of_replicas(module(), batch) == [("parallel-io", words)] * 2


def test_a_list_that_the_failing_line_does_not_read_is_not_blamed():
    assert [kind for kind, _ in told_of_replicas(Named(), lambda x: (x, ["a", "b", "c", "d"]))] == []


def test_more_gpus_than_there_are_is_an_invalid_device_for_a_recording_and_an_explanation():
    with devwidget.simulate(gpus=1):
        with contextlib.suppress(AssertionError), devwidget.record() as recording:
            nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[0, 1, 2])
        with pytest.raises(AssertionError) as caught:
            nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[0, 1, 2])
        (found,) = devwidget.explain(caught.value).findings
    (seen,) = recording.trace.findings
    assert (seen.kind, seen.headline) == (found.kind, found.headline)
    assert found.kind == "invalid-device"
    assert "`cuda:1` does not exist on this machine" in found.headline
    assert "device_ids=list(range(torch.cuda.device_count()))" in found.fixes[0].edits[0].text
