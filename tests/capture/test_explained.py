"""What an explanation says of tensors is so: sentences that once were not."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import devwidget
from devwidget.records.device import DeviceId
from tests.capture.test_diagnosis import line_of
from tests.cells import notebook

GPU0, GPU1 = DeviceId("cuda", 0), DeviceId("cuda", 1)


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


def recorded(program):
    """The one finding of a program that is recorded and healed."""
    with devwidget.record(heal=True) as recording:
        program()
    (found,) = recording.trace.findings
    return found


def explained(program):
    """The one finding that the exception of a program shows."""
    with pytest.raises(Exception) as error:  # noqa: PT011  whichever it raises
        program()
    (found,) = devwidget.explain(error.value).findings
    return found


BOTH = pytest.mark.parametrize("told", [recorded, explained])


class Metric(nn.Module):
    """Keeps its state in attributes that its own `_apply` moves, as torchmetrics does."""

    def __init__(self):
        super().__init__()
        self.default = {"total": torch.zeros(3)}
        self.total = self.default["total"].clone()

    def _apply(self, fn, *more):
        super()._apply(fn, *more)
        self.total = fn(self.total)
        return self

    def forward(self, x):
        self.total += x.sum(0)
        return self.total


@BOTH
def test_a_metric_that_nobody_moved_has_not_stayed_behind(told):
    def program():
        metric = Metric()
        return metric(torch.ones(2, 3, device="cuda:0"))

    found = told(program)
    assert (found.kind, found.notes[0]) == ("wrong-device", "`self.total` was created on cpu; the others are on cuda:0")
    assert found.fixes[0].code == "metric = Metric().to('cuda:0')"
    assert not any(fix.summary[:3] == "or " for fix in found.fixes)


class Masked(nn.Module):
    def __init__(self, device=None):
        super().__init__()
        self.layer = nn.Linear(3, 3, device=device)
        self.mask = torch.ones(3)

    def forward(self, x):
        return self.layer(x) * self.mask


def test_what_stayed_behind_names_the_line_that_moved_the_model():
    def program():
        model = Masked()
        model.to("cuda:0")
        return model(torch.ones(2, 3, device="cuda:0"))

    assert recorded(program).headline == "`mask` stayed on cpu when the model was moved to cuda:0"


@BOTH
def test_beside_a_model_that_was_made_where_it_is_nothing_stayed(told):
    def program():
        model = Masked(device="cuda:0")
        return model(torch.ones(2, 3, device="cuda:0"))

    found = told(program)
    assert found.kind == "unregistered-tensor"
    assert found.headline == "`mask` is on cpu, and the model is on cuda:0"


class Fresh(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)

    def forward(self, x):
        return nn.Linear(6, 2, bias=False)(self.first(x))


@BOTH
def test_the_weight_of_a_layer_made_and_called_at_once_is_not_its_input(told):
    def program():
        model = Fresh().to("cuda:0")
        return model(torch.ones(3, 4, device="cuda:0"))

    found = told(program)
    assert found.notes[0].startswith("argument `weight` of `linear` ")


@BOTH
def test_an_index_on_the_host_is_lawful_beside_one_on_another_gpu(told):
    def program():
        table = torch.zeros(3, 3, device="cuda:0")
        i = torch.tensor([0, 1], device="cuda:1")
        return table[torch.arange(2), i]

    found = told(program)
    assert found.headline == "`__getitem__` got tensors on cuda:0 and cuda:1"
    assert found.notes[0].startswith("`i` was created on cuda:1")
    assert found.birth.line == line_of(program, "i = ")
    assert "torch.arange" not in found.fixes[0].code


def test_a_value_on_the_host_is_no_lawful_index():
    def program():
        table = torch.zeros(3, device="cuda:0")
        table[torch.tensor([0, 1])] = torch.ones(2)

    assert "`torch.tensor([0, 1])`" not in recorded(program).notes[0]


@BOTH
def test_a_bias_elsewhere_is_explained_whatever_torch_calls_it(told):
    def program():
        x, w = torch.ones(1, 3, 3, 3, device="cuda:0"), torch.ones(2, 3, 1, 1, device="cuda:0")
        b = torch.zeros(2)
        return F.conv2d(x, w, b)

    assert told(program).notes[0].startswith("`b` was created on cpu")


def test_weights_without_data_are_blamed_for_it_and_not_the_batch():
    def program():
        model = nn.Linear(4, 2).to("meta")
        return model(torch.rand(2, 4))

    found = explained(program)
    assert found.kind == "meta-tensor"
    assert "meta" in found.headline
    assert "torch.rand" not in found.headline
    assert found.fixes[0].code.startswith("model.to_empty(device='cpu')")  # where the batch is: there may be no GPU


@BOTH
def test_a_generator_is_no_tensor(told):
    def program():
        generator = torch.Generator()
        return torch.randn(3, device="cuda:0", generator=generator)

    headline = told(program).headline
    assert headline == "`randn` got a generator on cpu but requires one on cuda:0"


def test_the_line_that_created_a_generator_is_found_in_another_cell():
    with notebook() as cell:
        cell("import torch\ngen = torch.Generator().manual_seed(3)")
        with pytest.raises(RuntimeError) as caught:
            cell("torch.randn(3, device='cuda', generator=gen)")
        (found,) = devwidget.explain(caught.value).findings
    assert found.birth.text == "gen = torch.Generator().manual_seed(3)"
    assert found.fixes[0].code == "gen = torch.Generator(device='cuda').manual_seed(3)"


def test_what_cannot_be_pinned_is_left_where_it_is_and_nothing_else_is_said_of_it():
    def program():
        model = nn.Linear(4, 1).cuda()
        x, y = torch.randn(8, 4).cuda(), torch.randn(8, 1).cuda()
        loader = DataLoader(TensorDataset(x, y), batch_size=4, pin_memory=True)
        for a, b in loader:
            (model(a) - b).square().mean()

    found = recorded(program)
    assert "`pin_memory`" in found.headline
    assert found.notes[0].startswith("argument `input` of `pin_memory`")
    assert found.fixes[0].code == "loader = DataLoader(TensorDataset(x, y), batch_size=4, pin_memory=False)"


class Wrapping(nn.Module):
    def forward(self, x):
        try:
            return x + torch.ones(3)
        except RuntimeError as error:
            raise RuntimeError("different devices: try metric.to(device)") from error


def test_what_was_raised_in_the_end_is_told_too():
    with pytest.raises(RuntimeError) as error:
        Wrapping()(torch.ones(3, device="cuda:0"))
    explanation = devwidget.explain(error.value)
    assert explanation.findings[0].kind == "wrong-device"
    assert any("try metric.to(device)" in note for note in explanation.notes)


def one_hot(labels):
    return torch.eye(4)[labels]


def test_what_was_indexed_on_the_line_and_is_gone_was_made_there():
    found = explained(lambda: one_hot(torch.tensor([0, 3], device="cuda:0")))
    assert (found.kind, found.birth.line) == ("wrong-device", line_of(one_hot, "torch.eye"))
    assert found.fixes[0].code == "return torch.eye(4, device=labels.device)[labels]"


PRIOR = torch.distributions.Normal(torch.zeros(3), torch.ones(3))


def test_a_distribution_is_made_of_tensors_in_the_right_place():
    here = torch.distributions.Normal(torch.zeros(3, device="cuda:0"), 1.0)
    found = explained(lambda: torch.distributions.kl_divergence(here, PRIOR))
    made = "torch.zeros(3, device='cuda:0'), torch.ones(3, device='cuda:0')"
    assert found.fixes[0].code == f"PRIOR = torch.distributions.Normal({made})"
