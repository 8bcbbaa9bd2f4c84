"""Edits outside of functions are tried in the namespace of their file or cells, which is afterwards as it was."""

import pytest
import torch

import devwidget
from devwidget.records.finding import Edit
from devwidget.trying.edited_code import NotTried
from devwidget.trying.installed_edits import place_edits
from devwidget.trying.top_level import pair_tensors
from tests.cells import notebook

MODEL = """
    import torch
    from torch import nn
    import devwidget

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(x) * SCALE

    model = Net().to("cuda:0")
"""


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


@pytest.fixture
def run():
    """Runs a cell in the namespace of a module `__main__` of its own."""
    with notebook() as cell:
        yield cell


def first_fixes(names):
    return [finding.fixes[0] for finding in names["found"].findings]


def test_inputs_and_global_tensors_get_their_new_value_for_one_step(run):
    run(MODEL)
    names = run("SCALE = torch.full((3,), 2.0)\nx = torch.randn(4, 3)")
    before = names["SCALE"], names["x"], torch.get_rng_state()
    run("found = devwidget.trace(model, x)")
    fixes = first_fixes(names)
    assert [fix.code for fix in fixes] == [
        "x = torch.randn(4, 3, device='cuda:0')",
        "SCALE = torch.full((3,), 2.0, device='cuda:0')",
    ]
    assert all(fix.verified for fix in fixes)
    assert names["SCALE"] is before[0]
    assert names["x"] is before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


NAMED = """
    class Named(Net):
        def forward(self, x, more, scale=2):
            return self.layer(x) * scale + more[0][1]

    model = Named().to("cuda:0")
    SCALE = 1
"""


def test_a_batch_by_names_gets_its_new_tensors_for_one_step(run):
    run(MODEL)
    run(NAMED)
    names = run("batch = {'x': torch.randn(4, 3), 'more': [(1, torch.ones(3))], 'scale': 2}")
    before = names["batch"], dict(names["batch"])
    run("found = devwidget.trace(model, batch)")
    first, *_ = first_fixes(names)
    assert first.code == (
        "batch = {'x': torch.randn(4, 3, device='cuda:0'), 'more': [(1, torch.ones(3, device='cuda:0'))], 'scale': 2}"
    )
    assert (first.verified, first.confidence) == (True, "sure")
    assert names["batch"] is before[0]
    assert all(names["batch"][name] is value for name, value in before[1].items())


@pytest.mark.parametrize("other", ["[1, {'x': old}]", "[{'y': old}]", "({'x': old},)"])
def test_what_is_no_such_batch_is_not_taken_for_one(other):
    old = torch.ones(2)
    with pytest.raises(NotTried):
        list(pair_tensors([{"x": old}], eval(other)))
    assert list(pair_tensors([{"x": old}], [{"x": old}])) == [(old, old)]


@pytest.mark.parametrize("since", ["other = x * 2", "x = x + 0", "def use():\n    return x + 1\nother = use()"])
def test_a_value_that_was_used_before_the_step_is_not_tried(run, since):
    run(MODEL)
    names = run("SCALE = torch.full((3,), 2.0, device='cuda:0')\nx = torch.randn(4, 3)")
    run(since)
    run("found = devwidget.trace(model, x)")
    fixes = [fix for finding in names["found"].findings for fix in finding.fixes if "randn" in fix.code]
    assert not any(fix.verified for fix in fixes)


def test_what_was_only_looked_at_is_tried(run):
    run(MODEL)
    names = run("SCALE = torch.full((3,), 2.0, device='cuda:0')\nx = torch.randn(4, 3)")
    run("x.shape\nprint(x.dtype)\nx\ndef other(x):\n    y = x\n    return [x for x in y]\nother([1])")
    run("found = devwidget.trace(model, batch=(x,))")
    (fix,) = first_fixes(names)
    assert fix.verified


def test_a_function_of_the_user_is_not_run_again(run):
    run(MODEL)
    names = run("SCALE = torch.full((3,), 2.0)\ncalls = []\ndef make():\n    calls.append(1)\n    return torch.ones(4, 3)")
    run("x = make()")
    for text in ("x = make(1)", "x = calls.append(1)", "x = SCALE.fill_(1)", "x = model(SCALE)", "x = (lambda: 1)()"):
        with pytest.raises(NotTried), place_edits([Edit("<ipython-input-2-test>", 1, 1, text, "x = make()")], None):
            pass
    assert names["calls"] == [1]


def test_a_model_is_moved_for_one_step(run):
    from devwidget.capture.restore import keep_state
    from devwidget.capture.step.batch import Arguments
    from devwidget.trying.trial_subjects import Subjects

    run(MODEL.replace('Net().to("cuda:0")', "Net()"))
    names = run("SCALE = 1")
    subjects = Subjects(names["model"], Arguments((), {}))
    edit = Edit("<ipython-input-0-test>", 13, 13, "model = Net().to('cuda:0')", "model = Net()")
    with place_edits([edit], subjects) as trial:
        with keep_state(names["model"]):
            trial.make_inputs()
            assert {str(parameter.device) for parameter in names["model"].parameters()} == {"cuda:0"}
        assert trial.all_ran()
    assert {str(parameter.device) for parameter in names["model"].parameters()} == {"cpu"}
