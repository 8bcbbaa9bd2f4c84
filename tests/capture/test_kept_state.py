"""Tensors that attributes keep from earlier: they lose against the model and against what the call computes."""

import pytest
import torch
from torch import nn

import devwidget
from devwidget.records.device import DeviceId
from tests.capture.test_diagnosis import line_of

CPU, GPU0, GPU1 = DeviceId("cpu"), DeviceId("cuda", 0), DeviceId("cuda", 1)


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


def first_fault(program):
    """The first finding of a program that is recorded, and the lines that its edits write."""
    with devwidget.record() as recording, pytest.raises(RuntimeError):
        program()
    found = recording.trace.findings[0]
    return found, [edit.text.strip() for fix in found.fixes for edit in fix.edits]


class Anchors(nn.Module):
    """Keeps what its first call has computed."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.anchors = None

    def make_anchors(self, device):
        if self.anchors is None:
            self.anchors = torch.arange(3, device=device)

    def forward(self, x):
        self.make_anchors(x.device)
        return self.layer(x) + self.anchors


def test_what_an_earlier_call_on_a_gpu_has_kept_is_misplaced_once_the_model_is_on_the_cpu():
    def run():
        model = Anchors().to("cuda:0")
        model(torch.ones(2, 3, device="cuda:0"))
        model.cpu()(torch.ones(2, 3))

    found, edits = first_fault(run)
    assert found.kind == "unregistered-tensor"
    assert "`anchors`" in found.headline
    assert "on cuda:0" in found.headline
    assert found.birth.line == line_of(Anchors, "self.anchors = torch.arange")
    assert edits == ['self.register_buffer("anchors", None)', "return self.layer(x) + self.anchors.to(x.device)"]
    assert not any('device="cpu"' in text for text in edits), "the device of the input is the right one in every call"


class Cached(nn.Module):
    """A layer on the second GPU, whose cache is made on the device of the first one's input."""

    def __init__(self):
        super().__init__()
        self.keys = nn.Linear(3, 3)

    def set_up(self, device):
        self.cache = torch.zeros(4, 3, device=device)

    def forward(self, x, at):
        cache = self.cache
        cache[at] = self.keys(x)
        return cache


def test_a_cache_that_is_written_follows_the_layer_that_keeps_it():
    def run():
        layer = Cached().to("cuda:1")
        layer.set_up("cuda:0")
        layer(torch.ones(2, 3, device="cuda:1"), torch.arange(2, device="cuda:1"))

    found, edits = first_fault(run)
    assert found.birth.line == line_of(Cached, "self.cache = torch.zeros")
    assert "when the model was moved" not in found.headline, "the cache is younger than the move"
    assert "self.cache = torch.zeros(4, 3, device=self.keys.weight.device)" in edits


class Restored(nn.Module):
    """Two methods set its statistics."""

    def __init__(self):
        super().__init__()
        self.mean = torch.zeros(3)

    def restore(self, values):
        self.mean = values["mean"]

    def forward(self, x):
        return x - self.mean


def test_an_exception_does_not_say_which_of_two_methods_has_set_an_attribute():
    layer = Restored()
    layer.restore({"mean": torch.ones(3)})
    with pytest.raises(RuntimeError) as error:
        layer(torch.ones(2, 3, device="cuda:0"))
    (found,) = devwidget.explain(error.value).findings
    assert found.birth is None
    assert found.fixes[0].edits[0].text.strip() == "return x - self.mean.to(x.device)"


def ratios(rows, sample):
    last = []
    for row in rows:
        ratio = row.sum()
        last.append(ratio)
    last.append(torch.ones((), device=sample.device))
    return torch.stack(last)


def test_an_item_of_a_list_is_not_called_by_the_variable_of_a_loop_that_is_over():
    found, edits = first_fault(lambda: ratios(torch.ones(1, 2), torch.ones(2, device="cuda:0")))
    assert found.operands[0].startswith("last[0] ")
    assert "last = [each.to(sample.device) for each in last]" in edits, "a list has other items in the next run"
    assert not any(text.startswith("ratio = ") for text in edits)


def sent_back(x):
    table = torch.linspace(0, 1, 3)
    table = table.to("cpu")
    return x + table


def test_a_device_at_the_creating_line_would_be_lost_where_the_result_is_sent_to_the_cpu():
    _, edits = first_fault(lambda: sent_back(torch.ones(3, device="cuda:0")))
    assert not any("linspace" in text for text in edits)
