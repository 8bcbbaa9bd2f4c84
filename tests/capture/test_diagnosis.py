"""Which line is blamed, and for what: programs that once were told wrongly."""

import inspect
import runpy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import devwidget


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return next(first + index for index, line in enumerate(lines) if text in line)


def explained(model, *given):
    with pytest.raises(RuntimeError) as caught:
        model(*given)
    return devwidget.explain(caught.value)


def recorded(program, *, heal=True):
    with devwidget.record(heal=heal) as recording:
        program(recording)
    return recording.trace


def test_a_criterion_called_inside_the_loss_hides_no_wait_of_it():
    criterion = nn.CrossEntropyLoss()

    def loss(out, target):
        value = criterion(out, target)
        return value * 2 if value.item() > 5 else value

    def program(recording):
        model = nn.Linear(3, 2).to("cuda:0")
        recording.attach(model)
        x, y = torch.ones(4, 3, device="cuda:0"), torch.zeros(4, dtype=torch.long, device="cuda:0")
        loss(model(x), y).backward()

    (found,) = recorded(program).findings
    assert (found.kind, found.fault.line) == ("host-sync", line_of(loss, ".item()"))


def test_without_healing_nothing_moves_that_the_program_did_not_move():
    def program(recording):
        with pytest.raises(RuntimeError):
            torch.ones(3, device="cuda:0") + torch.ones(3)

    assert recorded(program, heal=False).moves == ()


def test_what_healing_moves_is_told_as_healed():
    trace = recorded(lambda _: torch.ones(3, device="cuda:0") + torch.ones(3))
    assert {move.cause for move in trace.moves} == {"healed"}


def test_a_target_follows_the_output_that_trains():
    def program(recording):
        model, teacher = nn.Linear(3, 2).to("cuda:0"), nn.Linear(3, 2).to("cuda:1").requires_grad_(False)
        student, soft = model(torch.ones(4, 3, device="cuda:0")), teacher(torch.ones(4, 3, device="cuda:1"))
        F.kl_div(student.log_softmax(-1), soft.softmax(-1), reduction="batchmean")

    (found,) = recorded(program).findings
    assert found.birth.line == line_of(program, "student, soft = ")
    assert "soft.softmax(-1).to(student.device)" in found.fixes[0].code


def test_a_move_that_was_named_and_not_called_is_found_where_it_was_named():
    def program(recording):
        model, sound = nn.Conv1d(1, 2, 3).to("cuda:0"), torch.ones(1, 1, 9)
        clip = sound.cuda
        with pytest.raises(TypeError):
            model(clip)

    (found,) = recorded(program).findings
    assert (found.kind, found.birth.line) == ("unassigned-move", line_of(program, "clip = "))
    assert found.fixes[0].code == "clip = sound.cuda()"


def last_card():
    return torch.device("cuda", torch.cuda.device_count())


def test_a_device_that_does_not_exist_is_one_finding_at_the_line_that_made_it():
    def program(recording):
        home = last_card()
        model = nn.Linear(3, 2)
        model.to(home)
        model(torch.ones(2, 3).to(home))

    (found,) = recorded(program).findings
    assert found.birth.line == line_of(last_card, "return")
    assert found.fixes[0].code == 'return torch.device("cuda", torch.cuda.device_count() - 1)'


BESIDE = """
import types
import torch
import devwidget

class Critic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(2, device="cuda:0"))

    def forward(self, out):
        return (out * self.scale).sum()

model, critic = torch.nn.Linear(3, 2).to("cuda:0"), Critic()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
other = torch.optim.SGD(critic.parameters(), lr=0.1)
held = {held}
del other
x = torch.ones(4, 3, device="cuda:0")
findings = devwidget.trace(model, x, loss_fn=critic, optimizer=optimizer, verify=False).findings
"""


def found_beside(tmp_path, held):
    """What is said of a model with a loss that has parameters, where both have an optimizer that is older than the trace."""
    (tmp_path / "beside.py").write_text(BESIDE.format(held=held))
    return runpy.run_path(str(tmp_path / "beside.py"))["findings"]


@pytest.mark.parametrize(
    "held",
    ["other", "{'critic': [other]}", "other.step", "(lambda other: lambda: other)(other)", "types.SimpleNamespace(of=[other])"],
)
def test_parameters_of_the_loss_that_an_older_optimizer_trains_stay_silent(tmp_path, held):
    assert found_beside(tmp_path, held) == ()


def test_parameters_of_the_loss_that_no_older_optimizer_has_are_found(tmp_path):
    (found,) = found_beside(tmp_path, "None")
    assert (found.kind, found.birth.text) == ("optimizer-misplaced", BESIDE.splitlines()[14])


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 3)

    def forward(self, ids, places=None):
        if places is None:
            places = torch.arange(3, device=self.table.weight.device)
        places = places.unsqueeze(0)
        return self.table(places)


class Caller(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Positions()

    def forward(self, ids):
        places = torch.arange(3)
        return self.inner(ids, places=places)


def test_an_explanation_follows_an_argument_to_the_caller_and_blames_no_branch_that_did_not_run():
    (found,) = explained(Caller().to("cuda:0"), torch.ones(1, 3, device="cuda:0")).findings
    assert found.birth.line == line_of(Caller, "places = torch.arange(3)")
    assert found.fixes[0].code == "places = torch.arange(3, device=ids.device)"


class Scan(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_rate, self.gain = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))

    def forward(self, x):
        rate = -torch.exp(self.log_rate.float())
        return x * rate + self.gain[..., None].squeeze(-1)


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = [Scan() for _ in range(2)]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("told", [devwidget.trace, explained])
def test_what_is_computed_from_parameters_alone_is_astray_because_of_them(told):
    (found,) = told(Stack().to("cuda:0"), torch.ones(3, device="cuda:0")).findings
    assert (found.kind, found.birth.line) == ("unregistered-tensor", line_of(Stack, "self.blocks ="))
    assert found.fixes[0].edits[0].text.strip() == "self.blocks = nn.ModuleList([Scan() for _ in range(2)])"


def counted(x):
    return x.cpu().cumsum(0).cuda()


def test_between_two_gpus_a_move_that_names_none_is_astray():
    x = torch.ones(4, device="cuda:1")
    order = torch.argsort(x)
    with pytest.raises(RuntimeError), devwidget.record() as recording:
        counted(x)[order]
    (found,) = recording.trace.findings
    assert found.birth.text == "return x.cpu().cumsum(0).cuda()"


class WindowOfAClosure(nn.Linear):
    def forward(self, x):
        def window(size):
            ramp = torch.arange(x.shape[-1] + 1.0)
            return ramp < size

        return super().forward(x) * window(2)


def test_a_function_inside_forward_takes_the_device_of_what_forward_was_given():
    def program(recording):
        model = WindowOfAClosure(3, 4).to("cuda:0")
        recording.attach(model)
        model(torch.ones(4, 3, device="cuda:0"))

    (found,) = recorded(program).findings
    assert found.fixes[0].code == "ramp = torch.arange(x.shape[-1] + 1.0, device=x.device)"


class Angles(nn.Module):
    def __init__(self):
        super().__init__()
        table = torch.ones(4).double()
        self.register_buffer("angles", table, persistent=False)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(x * self.angles)


def test_a_buffer_of_float64_is_cast_where_it_is_registered():
    model = Angles().to("cuda:0")
    found = devwidget.trace(model, torch.ones(3, 4, device="cuda:0"), verify=False).findings
    (error,) = [each for each in found if each.severity == "error"]
    assert error.fixes[0].code == 'self.register_buffer("angles", table.float(), persistent=False)'


def test_a_gradient_that_a_moved_leaf_does_not_get_is_found_through_virtual_gpus():
    moved = torch.zeros(3, requires_grad=True).cuda()

    def program(recording):
        (moved * 2).sum().backward()
        with pytest.warns(UserWarning, match="not a leaf"):
            assert moved.grad is None

    (found,) = recorded(program).findings
    assert (found.kind, found.fault.line) == ("non-leaf-grad", line_of(program, "moved.grad is None"))


def test_what_a_call_computes_inside_is_not_called_like_its_argument():
    tower = nn.Sequential(nn.Linear(8, 8).to("cuda:0"), nn.Linear(8, 8).to("cuda:1"))
    given = torch.rand(4, 8, device="cuda:0")
    trace = recorded(lambda _: tower(given * 2))
    assert [operand.name for operand in trace.faults[0].operands if operand.stray] == ["input"]


def test_the_output_is_not_called_like_what_was_made_for_the_trace():
    layer, given = nn.Linear(8, 3).to("cuda:0"), torch.rand(4, 8, device="cuda:0")
    loss, target = nn.CrossEntropyLoss(weight=torch.ones(3)), torch.zeros(4).long().cuda()
    trace = devwidget.trace(layer, given, loss_fn=loss, target=target, optimizer=torch.optim.SGD(layer.parameters()))
    assert [operand.name for operand in trace.faults[0].operands] == ["input", "target", "loss.weight"]


def test_what_only_the_cpu_takes_is_not_held_against_others():
    given, lengths = torch.rand(2, 5, 8, device="cuda:0"), torch.tensor([5, 3], device="cuda:0")
    (found,) = recorded(lambda _: nn.utils.rnn.pack_padded_sequence(given, lengths, batch_first=True)).findings
    assert found.headline == "`_pack_padded_sequence` got a tensor on cuda:0 but requires one on cpu"
    assert "others" not in str(found)


class Centres(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(3, 2))

    def forward(self, out, target):
        return torch.cdist(out, self.centres).mean()


def test_what_a_loss_keeps_was_made_where_its_class_says():
    model, loss = nn.Linear(4, 2).to("cuda:0"), Centres()
    trace = devwidget.trace(model, torch.ones(4, 4, device="cuda:0"), loss_fn=loss)
    (found,) = (each for each in trace.findings if each.kind == "wrong-device")
    assert found.birth.line == line_of(Centres, "self.centres =")
    assert "self.centres = nn.Parameter(torch.randn(3, 2, device='cuda:0'))" in [fix.code for fix in found.fixes]


class BuiltLater(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.last = None
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        hidden = self.first(x)
        if self.last is None:
            self.last = nn.Linear(3, 2)
        return self.last(hidden)

    def smooth(self, x):
        self.mean = self.mean.cpu() * 0.9 + x.cpu().mean(0)
        return x - self.mean


def test_what_is_announced_as_none_was_made_where_it_is_filled():
    (found,) = explained(BuiltLater().to("cuda:0"), torch.ones(4, 3, device="cuda:0")).findings
    assert found.birth.line == line_of(BuiltLater, "self.last = nn")
    assert found.fixes[0].code == "self.last = nn.Linear(3, 2).to('cuda:0')"


def test_a_buffer_that_is_written_anew_is_where_the_writing_put_it():
    model = BuiltLater().to("cuda:0")
    model.forward = model.smooth
    (found,) = explained(model, torch.ones(4, 3, device="cuda:0")).findings
    assert found.birth.line == line_of(BuiltLater, "self.mean =")
