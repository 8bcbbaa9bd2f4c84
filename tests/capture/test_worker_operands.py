"""What failed in a DataParallel worker, whose exception is kept with its frames while births are watched."""

import runpy

import pytest
import torch
from torch._utils import ExceptionWrapper

import devwidget
from devwidget.capture import background_births
from devwidget.capture.patches.worker_errors import worker_error
from tests.explained_programs import explained_and_cured, line, run_failing, written


@pytest.fixture(autouse=True)
def _watched():
    background_births.begin_watching()
    yield
    background_births.end_watching()


WORKER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
    def noise(self, n):
        return torch.randn(n)
    def forward(self, x):
        scale = {made}
        return {value}  # fails
nn.DataParallel(Net().cuda())(torch.randn(6, 4).cuda())
"""


@pytest.mark.parametrize(
    ("made", "value", "birth"),
    [
        ("2.0", "self.lin(x) * torch.ones(4)", "# fails"),
        ("torch.linspace(0, 1, 4)", "self.lin(x) * scale", "scale = "),
    ],
    ids=["on the line", "above it"],
)
def test_a_factory_without_a_device_is_the_cause(tmp_path, made, value, birth):
    text = written(WORKER.format(made=made, value=value))
    found = explained_and_cured(tmp_path, text)
    assert (found.kind, found.fault.line, found.birth.line) == ("wrong-device", line(text, "# fails"), line(text, birth))


@pytest.mark.parametrize("value", ["self.lin(x) * torch.ones(4) + self.noise(4)", "x * self.noise(4)"])
def test_the_first_call_that_fails_is_cured(tmp_path, value):
    text = written(WORKER.format(made="2.0", value=value))
    explanation = run_failing(tmp_path, text)
    (found,) = explanation.findings
    assert (found.kind, found.fault.line, found.module) == ("wrong-device", line(text, "# fails"), "module")


def test_a_device_that_an_attribute_names_is_the_cause(tmp_path):
    text = written("""
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.device = nn.Linear(4, 4), "cuda:0"
        def forward(self, x):
            kept = torch.ones(4, 4, device=self.device).tril()
            return self.lin(x).masked_fill(kept[0] == 0, 0.0)
    nn.DataParallel(Masked().cuda())(torch.randn(6, 4).cuda())
    """)
    found = explained_and_cured(tmp_path, text)
    assert (found.kind, found.birth.line) == ("wrong-device", line(text, "kept = "))


def test_what_filled_a_device_is_not_kept():
    try:
        raise torch.OutOfMemoryError("full")
    except torch.OutOfMemoryError:
        wrapped = ExceptionWrapper(where="in replica 0 on device 0")
    with pytest.raises(torch.OutOfMemoryError) as caught:
        wrapped.reraise()
    assert worker_error(caught.value) is None


PLAIN = """
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.mask = nn.Linear(4, 4), torch.ones(4)
    def forward(self, x):
        return self.lin(x) * self.mask
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.DataParallel(Masked().cuda()), torch.ones(4)
    def forward(self, x):
        return self.inner(x{scaled})
Outer()(torch.randn(6, 4).cuda())
"""
IN_REPLICAS = "`inner.module.mask` is on cpu in every replica, and each replica computes on its own GPU"


def test_a_plain_attribute_of_replicas_is_in_all_of_them(tmp_path):
    assert explained_and_cured(tmp_path, written(PLAIN.format(scaled=""))).headline == IN_REPLICAS


def test_only_what_is_copied_is_in_replicas(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(written(PLAIN.format(scaled=" * self.scale")))
    with devwidget.simulate(gpus=2), devwidget.record(heal=True) as recording:
        runpy.run_path(str(program))
    headlines = {found.headline for found in recording.trace.findings}
    assert headlines == {"`scale` is on cpu, and the model is on cuda:0", IN_REPLICAS}
