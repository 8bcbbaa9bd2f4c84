"""Dtypes that autocast decides: outputs of a region, hand-written gradients, losses that it refuses, and scaled gradients."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import devwidget
from tests.capture.test_explained import explained, recorded

BOTH = pytest.mark.parametrize("told", [recorded, explained])


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def found_in_record(program):
    """The one finding of a recording that the exception of a program ends."""
    with pytest.raises(Exception) as _, devwidget.record() as recording:  # noqa: PT011
        program()
    (found,) = recording.trace.findings
    return found


RAISING = pytest.mark.parametrize("told", [found_in_record, explained])


def after_the_region():
    body, head = nn.Linear(4, 4).cuda(), nn.Linear(4, 2).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        h = body(torch.ones(2, 4, device="cuda"))
    return head(h)


@BOTH
def test_the_region_that_made_a_tensor_low_precision_is_named(told):
    found = told(after_the_region)
    assert found.kind == "wrong-dtype"
    (note,) = [note for note in found.notes if note.startswith("autocast at")]
    assert note.endswith("made `h` bfloat16")
    assert found.fixes[0].code == "h = h.float()"


def test_a_cast_without_autocast_names_no_region():
    def program():
        h = torch.ones(2, 4, device="cuda").half()
        return nn.Linear(4, 2).cuda()(h)

    assert not any("autocast" in note for note in explained(program).notes)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4).bfloat16()

    def forward(self, x):
        return self.second(self.first(x))


@BOTH
def test_a_region_for_another_device_is_the_cause(told):
    def program():
        model = Mixed()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(torch.ones(2, 4))

    found = told(program)
    assert any(note.endswith("casts only on cuda; these tensors are on cpu") for note in found.notes)
    assert found.fixes[0].code == 'with torch.autocast("cpu", dtype=torch.bfloat16):'


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, *grads):
        x, weight = ctx.saved_tensors
        return grads[0] @ weight.t(), x.t() @ grads[0]


class WithSetup(Product):
    @staticmethod
    def forward(x, weight):
        return x @ weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad


def trained(kind):
    weight = nn.Parameter(torch.ones(4, 2, device="cuda"))
    x = torch.ones(3, 4, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = kind.apply(x, weight).sum()
    loss.backward()
    return weight.grad


@BOTH
def test_a_hand_written_backward_runs_as_autocast_runs_forward(told):
    found = told(lambda: trained(Product))
    assert any(note.endswith("casts in forward; backward runs without it") for note in found.notes)
    assert [edit.text.strip() for edit in found.fixes[0].edits] == [
        '@torch.amp.custom_fwd(device_type="cuda")',
        '@torch.amp.custom_bwd(device_type="cuda")',
    ]


def test_a_forward_without_a_context_gets_casts():
    assert "custom_fwd" not in explained(lambda: trained(WithSetup)).fixes[0].code


class Decorated(Product):
    forward = staticmethod(torch.amp.custom_fwd(Product.forward, device_type="cuda"))
    backward = staticmethod(torch.amp.custom_bwd(Product.backward, device_type="cuda"))


def test_a_decorated_backward_is_silent():
    with devwidget.record() as recording:
        trained(Decorated)
    assert recording.trace.findings == ()


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return torch.sigmoid(self.layer(x)).squeeze(-1)


def losses(loss):
    model, target = Scores().cuda(), torch.ones(3, device="cuda")
    with torch.autocast("cuda"):
        return loss(model(torch.ones(3, 4, device="cuda")), target)


@BOTH
def test_a_loss_that_autocast_refuses_takes_logits(told):
    found = told(lambda: losses(F.binary_cross_entropy))
    assert found.headline == "`binary_cross_entropy` runs in an autocast region"
    assert found.notes[0].startswith("autocast begins at")


@BOTH
def test_the_sigmoid_goes_with_the_loss(told, tmp_path, monkeypatch):
    file = tmp_path / "scores.py"
    file.write_text(
        "import torch\nfrom torch import nn\n"
        "net = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()).cuda()\ncriterion = nn.BCELoss()\n"
        "def step():\n    with torch.autocast('cuda'):\n"
        "        return criterion(net(torch.ones(3, 4, device='cuda')), torch.ones(3, 1, device='cuda'))\n"
    )
    scope = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    found = told(scope["step"])
    assert [edit.text for edit in found.fixes[0].edits] == [
        "net = nn.Sequential(nn.Linear(4, 1), nn.Identity()).cuda()",
        "criterion = nn.BCEWithLogitsLoss()",
    ]


SCALED = """
import torch
from torch import nn
class Trainer:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).cuda()
        self.model{cast}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")
    def step(self):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.model(torch.ones(2, 4, device="cuda")).float().sum()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
"""


def scaled(tmp_path, cast):
    file = tmp_path / "trainer.py"
    file.write_text(SCALED.format(cast=cast))
    scope = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    return scope["Trainer"]


@RAISING
@pytest.mark.parametrize("cast", [".half()", ".to(dtype=torch.float16)"])
def test_float16_gradients_are_those_of_parameters_that_a_line_cast(told, tmp_path, cast):
    trainer = scaled(tmp_path, cast)()
    found = told(trainer.step)
    assert found.headline == "GradScaler got float16 gradients"
    assert found.birth.text == f"self.model{cast}"
    (edit,) = found.fixes[0].edits
    assert [line.strip() for line in edit.text.splitlines()] == [
        "for group in self.optimizer.param_groups:",
        'for parameter in group["params"]:',
        "parameter.data = parameter.data.float()",
    ]
    rows = (tmp_path / "trainer.py").read_text().splitlines()
    rows[edit.first - 1 : edit.last] = edit.text.splitlines()
    scope = {}
    exec("\n".join(rows), scope)
    scope["Trainer"]().step()


def test_float32_parameters_are_scaled_silently(tmp_path):
    trainer = scaled(tmp_path, ".float()")()
    with devwidget.record() as recording:
        trainer.step()
    assert recording.trace.findings == ()


def test_half_precision_without_autocast_is_not_edited():
    model = nn.Linear(4, 2).cuda().half()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")

    def program():
        scaler.scale(model(torch.ones(2, 4, device="cuda").half()).float().sum()).backward()
        scaler.step(optimizer)

    found = explained(program)
    assert not found.fixes[0].edits or "param_groups" in found.fixes[0].code


def test_the_details_can_be_saved():
    found = explained(after_the_region)
    assert dataclasses.replace(found) == found
