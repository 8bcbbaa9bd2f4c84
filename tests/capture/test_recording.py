"""What a recording sees, heals and leaves alone, on virtual GPUs."""

import gc
import weakref

import pytest
import torch
from torch import nn

import devwidget
from tests.capture.test_diagnosis import line_of


@pytest.fixture(autouse=True)
def two_gpus():
    with devwidget.simulate(gpus=2):
        yield


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.GRU(4, 6, batch_first=True)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        hidden = torch.zeros(1, len(x), 6)
        _, hidden = self.read(x, hidden)
        return self.out(hidden.squeeze(0))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.mask = torch.ones(4)

    def forward(self, x):
        return self.lin(x) * self.mask


def test_a_hidden_state_made_in_forward_is_found_with_its_birth_and_fix():
    trace = devwidget.trace(Reader().to("cuda:0"), torch.randn(3, 5, 4, device="cuda:0"))
    (found,) = trace.findings
    assert (found.kind, found.module) == ("wrong-device", "read")
    assert found.birth.line == line_of(Reader.forward, "torch.zeros")
    assert found.fault.line == line_of(Reader.forward, "self.read(x, hidden)")
    assert found.fixes[0].code == "hidden = torch.zeros(1, len(x), 6, device=x.device)"
    assert found.fixes[0].verified
    assert trace.error == ""


def test_without_healing_the_exception_goes_its_way_and_is_in_the_trace():
    model, x = Reader().to("cuda:0"), torch.randn(3, 5, 4, device="cuda:0")
    recording = devwidget.record()
    recording.attach(model)
    with pytest.raises(RuntimeError, match="same device"), recording:
        model(x)
    assert [f.kind for f in recording.trace.findings] == ["wrong-device"]
    assert "same device" in recording.trace.error


def test_an_attribute_older_than_the_recording_is_found_in_its_class():
    (found,) = devwidget.trace(Masked().to("cuda:1"), torch.randn(2, 4, device="cuda:1")).findings
    assert (found.kind, found.module) == ("unregistered-tensor", "")
    assert found.birth.line == line_of(Masked, "self.mask = ")
    assert found.fixes[0].code == "self.register_buffer('mask', torch.ones(4), persistent=False)"


def test_one_run_finds_faults_in_forward_and_loss():
    model = nn.Sequential(Masked(), Masked()).to("cuda:0")
    target = torch.randn(2, 4)
    trace = devwidget.trace(model, torch.randn(2, 4, device="cuda:0"), loss_fn=nn.MSELoss(), target=target)
    assert sorted((f.kind, f.module, f.also) for f in trace.findings) == [
        ("unregistered-tensor", "0", ("1",)),
        ("wrong-device", None, ()),
    ]
    assert any(op.phase == "backward" for op in trace.ops)


def test_meant_hops_are_drawn_and_not_reported():
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4).to("cuda:0"), nn.Linear(4, 2).to("cuda:1")

        def forward(self, x):
            return self.b(self.a(x).to("cuda:1"))

    trace = devwidget.trace(Split(), torch.randn(2, 4, device="cuda:0"), loss_fn=lambda out: out.sum())
    assert trace.findings == ()
    there, back = trace.moves
    assert (str(there.source), str(there.target), there.bytes, there.cause, there.phase) == (
        "cuda:0", "cuda:1", 32, "explicit", "forward")  # fmt: skip
    assert (str(back.source), str(back.target), back.phase) == ("cuda:1", "cuda:0", "backward")


def test_a_fault_in_a_replica_has_the_originals_path():
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x):
            return self.lin(x) + torch.ones(4, device="cuda:0")

    model = nn.DataParallel(Fixed().to("cuda:0"), device_ids=[0, 1])
    (found,) = devwidget.trace(model, torch.randn(4, 4, device="cuda:0")).findings
    assert (found.kind, found.module) == ("wrong-device", "module")
    assert "device=x.device" in found.fixes[0].code


def test_attention_takes_the_same_fast_path_watched_and_unwatched():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=padding)
        with devwidget.record() as recording:
            seen = model(x, src_key_padding_mask=padding)
    assert torch.equal(plain, seen)
    assert any("transformer_encoder_layer" in op.name for op in recording.trace.ops)


def test_errors_that_are_not_about_devices_are_left_alone():
    with pytest.raises(RuntimeError, match="shape"), devwidget.record(heal=True) as recording:
        torch.ones(2, 3, device="cuda:0") @ torch.ones(2, 3, device="cuda:0")
    assert recording.trace.findings == ()
    assert "shape" in recording.trace.error


def test_a_model_is_freed_after_its_trace():
    model = Reader().to("cuda:0")
    gone = weakref.ref(model)
    devwidget.trace(model, torch.randn(3, 5, 4, device="cuda:0"), loss_fn=lambda out: out.sum())
    del model
    gc.collect()
    assert gone() is None


def test_what_is_no_model_is_refused():
    with pytest.raises(devwidget.DevwidgetError, match=r"not a torch\.nn\.Module"):
        devwidget.trace(len, torch.ones(2))
