"""The line that decides is not the one that fails: hooks that did not run, workers, omitted devices, moves that forget."""

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.source_code import stack
from tests.explained_programs import edited, explained_and_cured, line, run_failing, written
from tests.forked_programs import programs


def explained(tmp_path, text):
    (found,) = run_failing(tmp_path, text).findings
    return found


FUNCTION = """
x = torch.rand(2, 8).cuda()

def window(size, device="cpu"):
    return torch.hann_window(size, device=device)

w = window(8)
(x * w).sum()
"""
OBJECT = """
x = torch.rand(2, 8).cuda()

class Window:
    def __init__(self, size, device=None):
        self.rows = torch.hann_window(size, device=device)

    def __call__(self, x):
        return x * self.rows

Window(8)(x)
"""
MODULE = """
x = torch.rand(2, 8).cuda()

class Window(nn.Module):
    def __init__(self, size, device="cpu"):
        super().__init__()
        self.rows = torch.hann_window(size, device=device)

    def forward(self, x):
        return x * self.rows

Window(8)(x)
"""


@pytest.mark.parametrize("program", [OBJECT, MODULE])
def test_the_call_that_omits_a_device_gets_one(tmp_path, program):
    text = written(program)
    found = explained_and_cured(tmp_path, text)
    assert found.fixes[0].edits[0].first == line(text, "Window(8)")
    assert "Window(8, device=" in found.fixes[0].code


def test_a_recording_knows_the_function_that_omits_it(tmp_path):
    text = written(FUNCTION)
    (tmp_path / "program.py").write_text(text)
    with devwidget.simulate(gpus=1), devwidget.record(heal=True) as recording:
        exec(compile(text, str(tmp_path / "program.py"), "exec"), {})
    (found,) = (each for each in recording.trace.findings if each.kind == "wrong-device")
    assert found.fixes[0].edits[0].first == line(text, "w = window")
    assert run_failing(tmp_path, edited(text, found)) is None


def test_a_call_that_passes_its_device_is_not_edited(tmp_path):
    found = explained(tmp_path, written(OBJECT.replace("Window(8)", "Window(8, device='cpu')")))
    assert all("Window(8, device='cuda" not in fix.code for fix in found.fixes)


FORGETS = """
class Scales:
    def __init__(self):
        self.low, self.high = torch.zeros(3), torch.ones(3)

    def to(self, device):
        self.low = self.low.to(device)
        return self

class Layer:
    def __init__(self):
        self.scales = Scales()

    def apply(self, x):
        scales = self.scales
        return x * scales.low + scales.high

layer = Layer()
layer.scales.to("cuda")
layer.apply(torch.rand(2, 3).cuda())
"""


def test_a_move_method_that_forgets_a_tensor_is_the_line(tmp_path):
    text = written(
        FORGETS.replace("(nn.Module)", "").replace("super().__init__()", "pass").replace("layer(t", "layer.forward(t")
    )
    found = explained_and_cured(tmp_path, text)
    assert found.fixes[0].code == "self.high = self.high.to(device)"
    assert f"program.py:{line(text, 'self.low = self.low.to')}" in "".join(found.notes)
    assert found.birth is None or "scales = self.scales" not in found.birth.text


def test_an_index_that_was_moved_on_its_line_is_where_it_was_moved_to(tmp_path):
    program = """
        x, y = torch.rand(4, device="cuda:1"), torch.arange(4, device="cuda:0")
        mask = torch.ones(4, device="cuda:0")
        print(y[mask.to(x.device) != 0])
    """
    found = explained_and_cured(tmp_path, written(program))
    assert "cuda:0 and cuda:1" in found.headline
    assert "cpu" not in str(found)


SHARED = """
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.rand(2, 8))
        self.register_buffer("b", torch.rand(8, 2))

class Adapter(nn.Module):
    def __init__(self, pair):
        super().__init__()
        self.base, self.pair = nn.Linear(6, 8), pair

    def forward(self, x):
        a = self.pair.a[:, :6]
        b = self.pair.b
        return self.base(x) + F.linear(F.linear(x, a), b)

pair = Pair()
first, second = Adapter(pair).to("cuda:0"), Adapter(pair).to("cuda:1")
first(torch.rand(3, 6, device="cuda:0"))
"""


def test_both_tensors_of_a_module_that_went_to_another_gpu_are_moved_where_they_are_used(tmp_path):
    found = explained_and_cured(tmp_path, written(SHARED))
    assert set(found.fixes[0].code.splitlines()) == {"a = a.to(x.device)", "b = b.to(x.device)"}


LOADER = """
from torch.utils.data import DataLoader

def collate(rows):
    labels = torch.tensor([row % 2 for row in rows], device="cuda")
    return torch.tensor(rows, dtype=torch.float32).cuda(), labels

def train():
    weight = torch.ones(1).cuda()
    for step, (x, y) in enumerate(DataLoader(range(8), batch_size=4, collate_fn=collate, num_workers=1)):
        (x * weight + y).sum()

train()
"""


TOLD = """
import pathlib
from tests.capture.test_true_lines import explained, LOADER
from tests.explained_programs import edited, run_failing, written

folder, text = pathlib.Path.cwd(), written(LOADER)
found = explained(folder, text)
print(found)
print("after the edit:", run_failing(folder, edited(text, found)))
other = written(LOADER.replace(', device="cuda"', "").replace(").cuda(), labels", ") @ torch.ones(9), labels"))
print("another error:", run_failing(folder, other).site)
"""


@pytest.mark.process
def test_a_worker_is_explained_by_its_own_line(tmp_path):
    """In a process of its own: torch's loader leaves a handler of signals."""
    (tmp_path / "told.py").write_text(TOLD)
    done = programs().run(tmp_path, "told.py")
    text = done.stdout
    assert "`collate` uses cuda in a DataLoader worker" in text, done.stderr
    assert f"program.py:{line(written(LOADER), 'labels = torch.tensor')}  " in text
    assert "num_workers=0" in text
    assert "after the edit: None" in text
    assert f"another error: program.py:{line(written(LOADER), '.cuda(), labels')}" in text


@pytest.mark.parametrize(
    "setting", ["os.environ['CUDA_VISIBLE_DEVICES'] = '2,3'", "print(os.environ.get('CUDA_VISIBLE_DEVICES'))"]
)
def test_a_variable_of_the_environment_that_was_set_too_late_is_named(tmp_path, monkeypatch, setting):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    text = written(f"import os\nx = torch.ones(1).cuda()\n{setting}\ntorch.ones(1, device='cuda:2')")
    notes = "".join(explained(tmp_path, text).notes)
    assert (f"program.py:{line(text, setting)} sets it" in notes) == ("=" in setting)


def test_a_call_with_many_tensors_is_shown_by_a_few(tmp_path):
    text = str(
        explained(tmp_path, written("rows = [torch.rand(2).cuda() for _ in range(9)] + [torch.rand(2)]\ntorch.cat(rows)"))
    )
    (where,) = (row for row in text.splitlines() if "where:" in row)
    assert where.endswith("and 4 more")
    assert len(where) < 300


def test_a_tensor_in_the_place_of_a_parameter_is_answered(tmp_path):
    explanation = run_failing(tmp_path, written("layer = nn.Linear(3, 2).cuda()\nlayer.weight = torch.rand(2, 3).cuda()"))
    assert "nn.Parameter(" in explanation.findings[0].fixes[0].code


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(3, 2)

    def encode(self, x):
        return self.down(x)

    def forward(self, x):
        return self.encode(x)


def test_a_method_that_runs_without_the_hook_of_accelerate_is_named():
    hooks = pytest.importorskip("accelerate.hooks")
    with devwidget.simulate(gpus=2):
        coder = hooks.add_hook_to_module(Coder().to("cuda:1"), hooks.AlignDevicesHook("cuda:1"))
        x = torch.rand(2, 3, device="cuda:0")
        with pytest.raises(RuntimeError) as error:
            coder.encode(x)
        (found,) = devwidget.explain(error.value).findings
        assert "`encode` ran without them" in "".join(found.notes)
        coder(x)
        with pytest.raises(RuntimeError) as error:
            coder.encode(torch.rand(2, 3, device="cuda:1")) @ x
        (found,) = devwidget.explain(error.value).findings
        assert "hook" not in "".join(found.notes)


def test_code_that_a_library_compiled_from_a_text_is_not_the_users(tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "_IS_COMMAND", False)  # processes that run tests are started as `python -c`
    monkeypatch.delitem(stack.owners, "<string>", raising=False)
    text = written("exec('def check(x):\\n    assert x.dim() == 3\\n')\ncheck(torch.rand(2, 2))")
    assert run_failing(tmp_path, text).site.line == line(text, "check(torch")


BRANCHES = {
    "the test is a flag": """
def step(on_gpu):
    if not on_gpu:
        x = torch.zeros(4, 8)  # made
    else:
        x = torch.randn(4, 8)
    return model(x)
step(False)
""",
    "the test compares": """
def step(mode):
    x = torch.zeros(4, 8)  # made
    if mode == "half":
        x = x.half().float()
    return model(x)
step("full")
""",
    "the test has to run, and the line asks for a GPU": """
def step(names):
    if len(names) > 1:
        x = torch.zeros(4, 8)  # made
    else:
        x = torch.zeros(4, 8, device="cuda:0")
    return model(x)
step(["x", "y"])
""",
    "the test is about the variable": """
def step(x=None):
    if x is None:
        x = torch.zeros(4, 8)  # made
    return model(x)
step()
""",
}


@pytest.mark.parametrize("program", BRANCHES.values(), ids=BRANCHES)
def test_a_line_in_a_branch_that_was_not_taken_has_made_nothing(tmp_path, program):
    text = written("model = nn.Linear(8, 2).cuda()\n" + program)
    found = explained_and_cured(tmp_path, text)
    assert found.birth.line == line(text, "# made")
