"""Who holds the memory of a full device: `explain` and `memory_holders` name the holder, its line, and what frees it."""

from __future__ import annotations

import functools
import gc
import linecache
import random

import pytest
import torch

import devwidget
from devwidget import magics
from devwidget.fix_writer import apply_to_text
from tests.cells import ipython

pytestmark = pytest.mark.timeout(300)  # the file is among those that start first

HEAD = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loss_fn = nn.MSELoss()

def batches(count, size=64):
    for _ in range(count):
        yield torch.rand(size, 64).cuda(), torch.rand(size, 4).cuda()
"""
SUM = """
def evaluate():
    total = 0
    for x, y in batches(60):
        total += loss_fn(net(x), y)
    return total / 60

print(evaluate().item())
"""
SUM_IN_CLASS = """
class Runner:
    def __init__(self):
        self.total = 0.0

    def check(self):
        net.eval()
        for inputs, labels in batches(60):
            error = loss_fn(net(inputs), labels)
            self.total = self.total + error

runner = Runner()
runner.check()
"""
LOSSES = """
def evaluate():
    losses = []
    for x, y in batches(60):
        losses.append(loss_fn(net(x), y))
    return float(sum(losses))

evaluate()
"""
OUTPUTS_OF_TRAINING = """
outputs = []
def train():
    for x, y in batches(80):
        opt.zero_grad()
        hidden = net[:3](x)
        out = net[3:](hidden)
        loss_fn(out, y).backward()
        opt.step()
        outputs.append(hidden)

train()
"""
HISTORY = """
class Trainer:
    def __init__(self):
        self.history = []

    def step(self, x, y):
        out = net(x)
        self.history.append(out)

trainer = Trainer()
for x, y in batches(60):
    trainer.step(x, y)
"""
BY_KEY = """
def predict():
    found = {}
    for at, (x, y) in enumerate(batches(60)):
        found[at] = net(x)
    return {key: value.argmax() for key, value in found.items()}

predict()
"""
LARGE_BATCH = """
def train():
    losses = []
    for x, y in batches(4, size=900):
        opt.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())

train()
"""
SUM_FOR_BACKWARD = """
def train():
    loss = 0
    for x, y in batches(60):
        loss += loss_fn(net(x), y)
    loss.backward()

train()
"""
RETURNED_FOR_BACKWARD = """
def compute():
    losses = []
    for x, y in batches(60):
        losses.append(loss_fn(net(x), y))
    return torch.stack(losses).mean()

def train():
    opt.zero_grad()
    loss = compute()
    loss.backward()

train()
"""
IN_FORWARD = """
class Unrolled(nn.Module):
    def forward(self, parts):
        out = 0
        for x, y in parts:
            out = out + loss_fn(net(x), y)
        return out

Unrolled()(batches(60)).backward()
"""

LIST_FOR_BACKWARD_IN_ANOTHER_FUNCTION = """
def episode(policy):
    log_probs, rewards = [], []
    for x, _ in batches(100):
        log_probs.append(policy(x).log_softmax(1)[:, 0])
        rewards.append(1.0)
    return log_probs, rewards

def update(log_probs, rewards):
    loss = -sum(each.mean() * reward for each, reward in zip(log_probs, rewards))
    loss.backward()

log_probs, rewards = episode(net)
update(log_probs, rewards)
"""
CAT = """
def predict():
    found = torch.zeros(0, 4, device="cuda")
    for x, _ in batches(100):
        found = torch.cat((found, net(x)))
    return found.argmax(1)

predict()
"""
STATE = """
cell = nn.LSTMCell(64, 256).cuda()
def evaluate():
    h = c = torch.zeros(64, 256, device="cuda")
    for x, _ in batches(100):
        h, c = cell(x, (h, c))
    return h.sum().item()

evaluate()
"""
GIVEN = """
kept = []
def keep(outputs):
    for out in outputs:
        kept.append(out)

for x, _ in batches(100):
    keep([net(x)])
"""
FEATURES_FOR_BACKWARD = """
features = {}
def hook(module, args, out):
    features.setdefault("hidden", []).append(out)

def content_loss():
    return sum(each.pow(2).mean() for each in features["hidden"])

net[2].register_forward_hook(hook)
for x, _ in batches(100):
    net(x)
content_loss().backward()
"""
BACKWARD_OF_ANOTHER = """
class Engine:
    def optimize(self, loss):
        loss.backward()

engine = Engine()
def train():
    total = 0
    for x, y in batches(100):
        total += loss_fn(net(x), y)
    engine.optimize(total)

train()
"""
MODELS = """
models = []
def search():
    for _ in range(20):
        model = nn.Linear(512, 512).cuda()
        models.append(model)

search()
"""
HOOK = """
features = {}
def keep(name):
    def hook(module, args, out):
        features.setdefault(name, []).append(out)
    return hook

net[2].register_forward_hook(keep("hidden"))
for x, y in batches(100):
    net(x)
"""
COMPREHENSION = """
def collect():
    return torch.cat([net(x) for x, _ in batches(100)])

collect()
"""


@pytest.fixture
def run(tmp_path):
    def run_program(source, edited=None):
        file = tmp_path / "train.py"
        file.write_text(HEAD + source if edited is None else edited)
        linecache.checkcache(str(file))
        try:
            with devwidget.simulate(gpus=1, memory="8MiB"):
                try:
                    exec(compile(file.read_text(), str(file), "exec", dont_inherit=True), {"__name__": "train"})
                except torch.OutOfMemoryError as error:
                    return devwidget.explain(error)
        finally:
            gc.collect()
        return None

    return run_program


def apply_fix(finding, at=0):
    edits = finding.fixes[at].edits
    text = "".join(linecache.getlines(edits[0].file))
    return apply_to_text(edits[0].file, edits) if edits else text


@pytest.mark.parametrize("source", [SUM, LOSSES, BY_KEY, SUM_IN_CLASS, CAT, STATE])
def test_a_loop_without_backward_is_put_under_no_grad(run, source):
    (found,) = run(source).findings
    assert found.kind == "kept-memory"
    assert "with torch.no_grad():" in found.fixes[0].edits[0].text
    assert run("", edited=apply_fix(found)) is None


@pytest.mark.parametrize(("source", "line"), [(SUM, "total += "), (LOSSES, "losses.append("), (HISTORY, "self.history.append("),
                                              (BY_KEY, "found[at] ="), (OUTPUTS_OF_TRAINING, "outputs.append(")])  # fmt: skip
def test_the_line_that_keeps_it_is_named(run, source, line):
    (found,) = run(source).findings
    assert found.fault.text.startswith(line)


@pytest.mark.parametrize("source", [SUM, LOSSES, HISTORY, OUTPUTS_OF_TRAINING])
def test_the_last_fix_lets_the_program_run(run, source):
    (found,) = run(source).findings
    assert run("", edited=apply_fix(found, at=-1)) is None


def test_outputs_of_a_training_loop_go_to_host_memory(run):
    (found,) = run(OUTPUTS_OF_TRAINING).findings
    assert found.fixes[0].edits[0].text.strip() == "outputs.append(hidden.detach().cpu())"


@pytest.mark.parametrize("source", [LARGE_BATCH, SUM_FOR_BACKWARD, RETURNED_FOR_BACKWARD, IN_FORWARD,
                                    LIST_FOR_BACKWARD_IN_ANOTHER_FUNCTION, FEATURES_FOR_BACKWARD,
                                    BACKWARD_OF_ANOTHER])  # fmt: skip
def test_what_backward_needs_is_not_called_needless(run, source):
    told = run(source)
    assert told.findings == ()
    assert told.verdict.startswith("cuda:0 was full: ")


def test_a_large_batch_is_told_by_its_parts(run):
    assert "tensors of the failed step" in run(LARGE_BATCH).verdict


def test_a_loop_over_results_is_not_put_under_no_grad(run):
    (found,) = run(GIVEN).findings
    assert [each.edits[0].text.strip() for each in found.fixes] == ["kept.append(out.detach())"]


def test_models_in_a_list_get_no_edit(run):
    (found,) = run(MODELS).findings
    assert [each.edits for each in found.fixes] == [()]


def test_the_line_of_a_hook_is_named(run):
    (device,) = run(HOOK).memory.devices
    assert device.holders[0].name == "features['hidden']"
    assert device.holders[0].site.text == "features.setdefault(name, []).append(out)"


def test_values_that_no_variable_had_are_not_left_out(run):
    assert "values that the failed call did not keep in variables" in run(COMPREHENSION).verdict


def test_the_bytes_of_all_holders_are_those_of_the_allocator(run):
    (device,) = run(SUM).memory.devices
    assert sum(each.bytes for each in device.holders) == device.allocated


def test_a_recorded_loop_has_the_same_finding(tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(HEAD + SUM)
    with devwidget.simulate(gpus=1, memory="8MiB"), pytest.raises(torch.OutOfMemoryError), devwidget.record() as recording:
        exec(compile(file.read_text(), str(file), "exec", dont_inherit=True), {"__name__": "train"})
    assert [each.kind for each in recording.trace.findings] == ["kept-memory"]
    assert "The batch and the tensors computed from it" not in str(recording.trace)


def make_tensors():
    return [torch.rand(1024, device="cuda") for _ in range(3)]


def find_holder(name):
    (device,) = devwidget.memory_holders().devices
    return next(each for each in device.holders if each.name == name)


def test_del_is_said_to_free_what_it_frees():
    with devwidget.simulate(gpus=1):
        tensors = make_tensors()
        before = torch.cuda.memory_allocated()
        held = find_holder("tensors")
        del tensors
        assert held.frees == "del tensors"
        assert before - torch.cuda.memory_allocated() == held.freed == held.bytes


def test_del_is_not_said_to_free_what_another_variable_keeps():
    with devwidget.simulate(gpus=1):
        tensors = make_tensors()
        other = tensors[1:]
        assert find_holder("tensors").freed == 4096
        assert other[0] is tensors[1]


def test_a_reference_out_of_sight_is_counted():
    with devwidget.simulate(gpus=1):
        tensors = make_tensors()
        hidden = iter([tensors[0]]).__reduce__  # a bound method in C, which the search does not enter
        kept = map(hidden, tensors)
        assert find_holder("tensors").freed <= 2 * 4096
        assert kept is not None


def test_a_search_that_ends_early_says_so(monkeypatch):
    monkeypatch.setattr("devwidget.capture.memory.held_memory.MOST_OBJECTS", 1)
    with devwidget.simulate(gpus=1):
        tensors = [make_tensors()]
        text = str(devwidget.memory_holders())
        assert "not found in 1 objects" in text
        assert "gc.collect()" not in text
        assert tensors


def test_a_model_that_only_its_optimizer_keeps():
    with devwidget.simulate(gpus=1):
        net = torch.nn.Linear(32, 32).cuda()
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.rand(2, 32).cuda()).sum().backward()
        optimizer.step()
        net = torch.nn.Linear(8, 8).cuda()
        held = find_holder("optimizer")
        assert held.parameters == 4096 + 512
        assert held.gradients == 4096 + 512
        assert held.optimizer == 2 * (4096 + 512)
        assert net is not None


class Box:
    def __init__(self, **fields):
        vars(self).update(fields)


def make_suspended(tensor):
    yield 1
    yield tensor


def make_model():
    net = torch.nn.Linear(16, 16).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.rand(2, 16, device="cuda")).sum().backward()
    optimizer.step()
    return net, optimizer


def make_variables(choose):
    """Variables that share tensors in many ways; `choose` is a seeded generator."""
    shared = make_tensors()
    net, optimizer = make_model()
    suspended = make_suspended(choose.choice(shared))
    next(suspended)
    cycle = Box(one=make_tensors())
    cycle.me = cycle
    found = {
        "items": [choose.choice(shared), *make_tensors()],
        "by_key": {1: choose.choice(shared), 2: make_tensors()[0]},
        "box": Box(history=make_tensors(), pair=(choose.choice(shared), 1)),
        "function": functools.partial(torch.add, choose.choice(shared)),
        "suspended": suspended,
        "iterator": iter(make_tensors()),
        "view": choose.choice(shared)[2:],
        "result": net(torch.rand(64, 16, device="cuda")),
        "cycle": cycle,
        "net": net,
        "optimizer": optimizer,
    }
    return {name: found[name] for name in choose.sample(sorted(found), 5)}


@pytest.mark.parametrize("seed", range(12))
def test_each_way_frees_as_much_as_it_is_said_to(seed):
    choose = random.Random(seed)
    with devwidget.simulate(gpus=1):
        names = make_variables(choose)
        globals().update(names)
        names = list(names)
        gc.collect()
        (device,) = devwidget.memory_holders().devices
        way = choose.choice([each for each in device.holders if each.frees])
        before = torch.cuda.memory_allocated()
        exec(way.frees, globals())
        freed = before - torch.cuda.memory_allocated()
        for name in names:
            globals().pop(name, None)
        assert freed == way.freed, way


@pytest.fixture
def shell():
    with devwidget.simulate(gpus=1, memory="1MiB"), ipython(colors="nocolor") as found:
        magics.load_ipython_extension(found)
        yield found
        magics.unload_ipython_extension(found)


def run_cells(shell, *cells):
    for cell in cells:
        shell.run_cell(cell, store_history=True)


def test_displayed_results_are_freed_as_it_is_said(shell):
    run_cells(shell, "import torch; x = torch.rand(1024, device='cuda'); x", "del x")
    held = find_holder("Out[1]")
    run_cells(shell, "0", "0", "0", "%reset -f out")
    assert (held.frees, held.freed) == ("%reset -f out", 4096)
    assert torch.cuda.memory_allocated() == 0


def test_a_result_that_reset_leaves_has_its_own_del(shell):
    run_cells(shell, "import torch; x = torch.rand(1024, device='cuda'); x", "del x", "%reset -f out")
    held = find_holder("get_ipython().user_ns_hidden['_']")
    run_cells(shell, held.frees)
    assert held.freed == 4096
    assert torch.cuda.memory_allocated() == 0


def test_the_frames_of_an_error_go_with_the_next_error(shell):
    run_cells(shell, "import torch\ndef f():\n    big = torch.rand(1024, device='cuda')\n    1/0\nf()")
    assert find_holder("big").freed == 4096
    run_cells(shell, "1/0", "import gc; gc.collect();")
    assert torch.cuda.memory_allocated() == 0


def test_the_magic_says_what_was_freed_since(shell, capsys):
    run_cells(shell, "import torch; x = torch.rand(1024, device='cuda');", "%devwidget memory", "del x", "%devwidget memory")
    shown = capsys.readouterr().out
    assert "`del x` frees 4 KiB" in shown
    assert "cuda:0: 4 KiB freed since the last `%devwidget memory`" in shown


def test_a_cell_that_fills_the_gpu_is_answered(shell, capsys):
    run_cells(shell, "import torch; x = [torch.rand(1024, device='cuda') for _ in range(1000)]")
    answer, rest = capsys.readouterr().out.splitlines()[-2:]
    assert answer.startswith("the device was out of memory: ")
    assert rest == "`%devwidget why` shows the whole answer"


def test_the_report_names_holder_and_line(run):
    text = str(run(SUM))
    assert "error[kept-memory] `total` keeps the graphs of all its terms" in text
    assert "memory of cuda:0 after the error" in text


def test_a_graph_is_followed_before_a_heap_of_other_objects(run, monkeypatch):
    monkeypatch.setattr("devwidget.capture.memory.held_memory.MOST_OBJECTS", 5_000)
    text = str(run("rows = [[[number]] for number in range(10_000)]\n" + SUM))
    assert "error[kept-memory] `total` keeps the graphs of all its terms" in text
