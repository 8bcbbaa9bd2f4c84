"""Hand-written gradients whose `forward` takes along to the CPU what `backward` meets on the GPU: cured where it was moved."""

import runpy

import pytest

import devwidget
from tests.explained_programs import edited, explained_and_cured, line, written

RETURNS_ELSEWHERE = """
class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        x = x.cpu()
        ctx.save_for_backward(x)
        return torch.round(x * levels) / levels
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() < 1), None
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
    def forward(self, x):
        return Quantize.apply(self.a(x), 8).to(x.device)
Net().cuda()(torch.randn(3, 4).cuda()).sum().backward()
"""
SAVES_ELSEWHERE = """
class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = 2 * (x.abs() - 1).{move}
        ctx.{kept} = mask
        return x.sign()
    @staticmethod
    def backward(ctx, grad):
        mask = ctx.{kept}
        return grad * mask
layer = nn.Linear(4, 4).cuda()
Sign.apply(layer(torch.randn(3, 4).cuda())).sum().backward()
"""
PROGRAMS = {
    "returned": RETURNS_ELSEWHERE,
    "saved": SAVES_ELSEWHERE.format(move="cpu()", kept="mask"),
    "saved by a device": SAVES_ELSEWHERE.format(move="to('cpu')", kept="about"),
}


def recorded(file, text):
    file.write_text(text)
    with devwidget.simulate(gpus=1), devwidget.record(heal=True) as recording:
        runpy.run_path(str(file))
    return [found for found in recording.trace.findings if found.severity != "info"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_move_in_forward_is_left_out_where_backward_meets_what_it_moved(tmp_path, name):
    text = written(PROGRAMS[name])
    (found,) = recorded(tmp_path / "program.py", text)
    assert (found.kind, found.birth.line) == ("wrong-device", line(text, "cpu"))
    assert recorded(tmp_path / "mended.py", edited(text, found)) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_exception_alone_leads_to_the_move_in_forward(tmp_path, name):
    text = written(PROGRAMS[name])
    found = explained_and_cured(tmp_path, text, gpus=1)
    assert (found.kind, found.birth.line) == ("wrong-device", line(text, "cpu"))


def test_what_is_left_of_an_expression_keeps_its_parentheses(tmp_path):
    text = written(PROGRAMS["saved"])
    (found,) = recorded(tmp_path / "program.py", text)
    assert "mask = 2 * (x.abs() - 1)" in edited(text, found)


def test_a_forward_that_computes_with_numpy_keeps_its_move(tmp_path):
    text = written(PROGRAMS["saved"].replace("return x.sign()", "mask.numpy()\n        return x.sign()"))
    (found,) = recorded(tmp_path / "program.py", text)
    assert "2 * (x.abs() - 1).cpu()" in edited(text, found)
