"""What a recording sees where a line writes a tensor into one on another device, `buffer[i] = value`."""

import pytest
import torch
from torch import nn

import devwidget


@pytest.fixture(autouse=True)
def one_gpu():
    with devwidget.simulate(gpus=1):
        yield


class Direct(nn.Module):
    """Losses of pairs, written into a tensor one by one."""

    def written(self, loss):
        return loss

    def forward(self, x, y):
        losses = torch.empty(len(x))
        for i in range(len(x)):
            losses[i] = self.written((x[i] - y[i]).square().mean())
        return losses.sum()


class Collected(Direct):
    def written(self, loss):
        return loss.detach()


def found(model):
    x, y = (torch.randn(2, 4, device="cuda", requires_grad=True) for _ in "xy")
    with devwidget.record() as recording:
        model(x, y)
    return [each for each in recording.trace.findings if each.severity != "info"]


def test_losses_written_into_a_tensor_on_the_host_name_the_line_that_made_it():
    (finding,) = found(Direct())
    assert (finding.kind, finding.birth.text) == ("needless-hop", "losses = torch.empty(len(x))")
    assert finding.fixes[0].code == "losses = torch.empty(len(x), device=x.device)"


def test_results_that_are_collected_stay_silent():
    assert found(Collected()) == []


class Step(nn.Module):
    """A forward pass that is one function."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self):
        self.body()


def found_in(body, **options):
    with devwidget.record(**options) as recording:
        Step(body)()
    return recording.trace.findings


def test_what_is_filled_from_a_gpu_and_then_moved_there_has_gone_round():
    def body():
        rows = torch.zeros(2, 3)
        for i in range(2):
            rows[i] = torch.ones(3, device="cuda") * i
        rows.cuda()

    (finding,) = found_in(body)
    assert finding.headline == "12 bytes are copied from cuda:0 to cpu to cuda:0 without being used in between"
    assert finding.birth.text == 'rows[i] = torch.ones(3, device="cuda") * i'


def test_what_was_brought_to_the_host_and_written_into_a_gpu_tensor_has_gone_round():
    def body():
        rows = torch.zeros(2, 3, device="cuda")
        rows[0] = (rows[1] + 1).cpu()

    assert [finding.fixes[0].code for finding in found_in(body)] == ["rows[0] = rows[1] + 1"]


def test_what_was_computed_with_on_the_host_has_not_gone_round():
    def body():
        rows = torch.zeros(2, 3)
        rows[0] = torch.ones(3, device="cuda")
        total = rows.sum()
        rows[1] = torch.ones(3, device="cuda")
        rows.cuda(), total.cuda()

    assert found_in(body) == ()


def test_a_tensor_that_was_written_into_is_still_where_its_maker_put_it():
    def body():
        rows = torch.zeros(2, 3)
        rows[0] = torch.ones(3, device="cuda")
        return rows + torch.ones(3, device="cuda")

    (finding,) = found_in(body, heal=True)
    assert (finding.kind, finding.birth.text) == ("wrong-device", "rows = torch.zeros(2, 3)")


def test_a_value_that_is_read_is_waited_for_where_its_tensor_is_whatever_was_written_into_it():
    def body():
        there, here = torch.ones(3, device="cuda"), torch.ones(3)
        there[1:] = torch.zeros(2)
        here[1:] = torch.zeros(2, device="cuda")
        there.tolist(), here.tolist()

    assert [finding.headline for finding in found_in(body)] == ["`there.tolist()` syncs with cuda:0, 1 time"]


class Permuted(nn.Module):
    """Reads at an index that it keeps."""

    def __init__(self, order):
        super().__init__()
        self.order = order

    def forward(self, x):
        x[:, self.order] = x.sum()
        return x[:, self.order]


def test_an_index_that_a_module_keeps_on_the_host_is_copied_at_every_call():
    model = Permuted(torch.tensor([1, 0])).cuda()
    with devwidget.record() as recording:
        model(torch.ones(3, 2, device="cuda"))
    kinds = {(finding.kind, finding.severity, finding.birth.text) for finding in recording.trace.findings}
    assert kinds == {("needless-hop", "info", "self.order = order")}
    assert recording.trace.findings[0].headline == "`order` (16 bytes) is copied from cpu to cuda:0 at every call"
