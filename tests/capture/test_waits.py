"""Where the host waits: every line, how often, and what is said of it; programs that once were told wrongly or not at all."""

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

import devwidget
from tests.capture.test_diagnosis import line_of


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


def recorded(program, *arguments):
    with devwidget.record() as recording:
        program(*arguments)
    return recording.trace


def counts(trace):
    """Calls that wait and how often, whatever the line."""
    found: dict[str, int] = {}
    for wait in trace.waits:
        found[wait.call] = found.get(wait.call, 0) + wait.count
    return found


def told(trace):
    """Line and severity of each finding about waits."""
    return {(found.fault.line, found.severity) for found in trace.findings if found.kind == "host-sync"}


def made():
    model = nn.Linear(4, 2).to("cuda")
    return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.rand(8, 4, device="cuda")


def labels_and_losses():
    model, optimizer, x = made()
    y, total = torch.randint(0, 2, (8,), device="cuda"), 0.0
    for _ in range(3):
        wrong = torch.tensor([1 - label.item() for label in y], device="cuda")
        loss = functional.cross_entropy(model(x), y) - functional.cross_entropy(model(x), wrong)
        optimizer.zero_grad()
        loss.backward()
        total += loss.item()
        optimizer.step()


def weighted_by_a_list():
    model, optimizer, x = made()
    for _ in range(3):
        sums = model(x).sum(0)
        read = sums.detach()
        weights = torch.tensor([read[0], read[1]], device=x.device)
        torch.tensor([0.5, 0.5], device=x.device), torch.as_tensor(read)
        (sums * weights).sum().backward()
        optimizer.step()


def test_a_list_of_tensors_is_read_one_by_one():
    trace = recorded(weighted_by_a_list)
    assert counts(trace) == {"tensor": 6}
    assert told(trace) == {(line_of(weighted_by_a_list, "weights ="), "warning")}
    (found,) = trace.findings
    assert "torch.stack" in found.fixes[0].summary


def test_many_waits_in_a_step_are_a_warning_and_one_for_a_log_is_a_hint():
    trace = recorded(labels_and_losses)
    assert counts(trace) == {"item": 27}
    each, log = line_of(labels_and_losses, "label.item()"), line_of(labels_and_losses, "loss.item()")
    assert told(trace) == {(each, "warning"), (log, "info")}
    first, second = (found.fixes[0] for found in trace.findings)
    assert (first.code, "once per epoch" in second.summary) == ("y.tolist()", True)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("length", torch.zeros(1, dtype=torch.int32))

    def forward(self, x):
        position = self.length[0].item()
        return self.layer(x) + position


def run_five_times(call):
    model = Counting().cuda()
    for _ in range(5):
        call(model)(torch.ones(1, 4, device="cuda"))


@pytest.mark.parametrize("call", [lambda model: model, lambda model: model.forward])
def test_how_forward_was_called_changes_nothing(call):
    trace = recorded(run_five_times, call)
    assert told(trace) == {(line_of(Counting.forward, ".item()"), "warning")}
    assert {wait.phase for wait in trace.waits} == {"forward"}


class Selecting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x = self.layer(x)
        rows = (x.sum(1) > 0).nonzero()
        kept = x[x > 0]
        x = x.masked_fill(x > 1, 0)
        return kept.sum() + rows.unique().numel() + x.sum()


def select():
    model = Selecting().cuda()
    for _ in range(3):
        model(torch.rand(8, 4, device="cuda")).sum()


def test_sizes_that_are_values_wait_and_filling_through_a_mask_does_not():
    trace = recorded(select)
    assert counts(trace) == {"nonzero": 3, "__getitem__": 3, "unique": 3}
    lines = ("nonzero()", "x[x > 0]", "unique()")
    assert told(trace) == {(line_of(Selecting.forward, text), "info") for text in lines}


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("kept", torch.zeros(1, 16, 4))
        self.register_buffer("length", torch.zeros(1, dtype=torch.int32))

    def forward(self, x):
        h, at = self.layer(x), self.length[0]
        self.kept[:, at : at + 1] = h
        self.length += 1
        return h


def fill():
    model = Cached().cuda()
    with torch.no_grad():
        for _ in range(3):
            model(torch.ones(1, 1, 4, device="cuda"))


def test_a_slice_by_a_number_on_a_gpu_waits_for_both_ends():
    trace = recorded(fill)
    assert counts(trace) == {"__setitem__": 6}
    assert told(trace) == {(line_of(Cached.forward, "at + 1"), "warning")}
    (found,) = trace.findings
    assert "index_copy_" in found.fixes[0].summary


def show_each_step():
    model, optimizer, x = made()
    shown = []
    for _ in range(4):
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown.append(repr(loss))
        shown.append(f"{loss:.3f}")
        shown.append("%.3f" % loss.detach())  # noqa: UP031  the old way reads the number, too


def test_formatting_waits_once_for_each_text():
    assert counts(recorded(show_each_step)) == {"__repr__": 4, "__format__": 4, "__float__": 4}


def compare():
    model, optimizer, x = made()
    while (loss := model(x).square().mean()) > 1e9 or len(x) > 4:
        loss.backward()
        optimizer.step()
        x = x[1:]
    for _ in range(torch.tensor(2, device="cuda")):
        assert 5 not in x


def test_comparisons_ranges_and_containment_wait():
    assert set(counts(recorded(compare))) == {"__bool__", "__index__", "__contains__"}


def test_classes_known_beforehand_are_not_waited_for():
    def program():
        nn.Linear(4, 4).cuda()(functional.one_hot(torch.arange(4, device="cuda"), 4).float())

    assert recorded(program).waits == ()


@pytest.fixture
def library(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "waitinglib.py").write_text(
        "from torch import nn\n"
        "class Encoder(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.lin = nn.Linear(4, 4)\n"
        "    def forward(self, x, mask):\n"
        "        if mask.all():\n"
        "            mask = None\n"
        "        return self.lin(x)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    import waitinglib

    yield waitinglib
    del sys.modules["waitinglib"]


def test_a_wait_in_a_library_is_told_at_its_own_line_and_never_at_ours(library):
    model, batch = library.Encoder().to("cuda"), devwidget.Inputs(torch.ones(2, 4, device="cuda"), torch.ones(2, device="cuda"))
    (found,) = devwidget.trace(model, batch).findings
    assert (found.severity, found.fault.file.rpartition("/")[2], found.fault.line) == ("info", "waitinglib.py", 7)
    assert "`if mask.all()` syncs" in found.headline
    assert found.notes == ()


def test_a_wait_in_a_library_names_the_users_line_above(library):
    def program():
        model = library.Encoder().to("cuda")
        model(torch.ones(2, 4, device="cuda"), torch.ones(2, device="cuda"))

    (wait,) = recorded(program).waits
    assert (wait.site.line, wait.called.line) == (7, line_of(program, "model(torch"))
