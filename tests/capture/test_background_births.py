"""Births between recordings."""

import sys

import pytest
import torch

import devwidget
from devwidget.capture import background_births


def test_a_mode_of_the_user_below_or_above_stays():
    class Own(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Own() as below:
        background_births.begin_watching()
        with Own() as above:
            background_births.end_watching()
            assert torch.overrides._get_current_function_mode_stack() == [below, above]


@pytest.mark.filterwarnings("ignore:torch.compile with fullgraph=True found no compiled frames")  # torch 2.12
def test_a_compiled_function_is_not_compiled_for_the_mode():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # which a reset leaves
    doubled = torch.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    background_births.begin_watching()
    try:
        assert doubled(torch.ones(1)).item() == 2
        background_births.pause_watching()
        assert doubled(torch.ones(1)).item() == 2
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0
    finally:
        background_births.end_watching()
    doubled(torch.ones(1))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def function_modes():
    return torch.overrides._get_current_function_mode_stack()


@pytest.fixture
def few_calls(monkeypatch):
    """A cell of which ten calls are watched."""
    monkeypatch.setattr(background_births, "MOST_CALLS", 10)
    background_births.begin_cell()
    yield
    background_births.end_watching()
    assert sys.gettrace() is None


def add_often(x):
    for _ in range(20):
        x = x + 1
    return x


PROGRAMS = {
    "a loop": lambda: add_often(torch.ones(2)),
    "one line": lambda: [torch.ones(2) + 1 for _ in range(20)],
    "modules": lambda: [torch.nn.Linear(2, 2)(torch.ones(1, 2)) for _ in range(5)],
    "a call within the line": lambda: add_often(sum(torch.ones(2) for _ in range(11))),
}


@pytest.mark.skipif(
    sys.gettrace() is not None, reason="a debugger or coverage listens: then the mode stays to the end of the cell"
)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_after_its_first_calls_a_cell_is_not_watched_and_the_next_one_is(few_calls, program):
    assert len(function_modes()) == 1
    program()
    assert function_modes() == []
    background_births.pause_watching()
    background_births.begin_cell()
    assert len(function_modes()) == 1


def test_where_a_debugger_listens_the_mode_passes_calls_on_to_the_end_of_the_cell(few_calls):
    def listen(*event):
        return None

    sys.settrace(listen)
    try:
        add_often(torch.ones(2))
        assert sys.gettrace() is listen
    finally:
        sys.settrace(None)
    known = len(background_births.get_background_births())
    kept = [torch.ones(2) for _ in range(5)]
    assert len(background_births.get_background_births()) <= known, kept
    background_births.pause_watching()
    assert function_modes() == []


def test_a_mode_of_the_user_stays_where_it_is_when_ours_leaves(few_calls):
    class Own(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Own() as own:
        add_often(torch.ones(2))
        assert function_modes() == [own]
    assert function_modes() == []


def test_recordings_in_a_cell_go_on_when_its_calls_are_over(few_calls):
    with devwidget.record() as recording:
        add_often(torch.ones(2))
    assert sum(op.count for op in recording.trace.ops) > 20
    assert function_modes() == []


def test_gradients_and_random_numbers_are_as_unwatched(few_calls):
    def train():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
        model(torch.randn(8, 4)).sum().backward()
        return [each.grad for each in model.parameters()], torch.get_rng_state()

    watched, after = train()
    background_births.pause_watching()
    plain, random_state = train()
    assert all(map(torch.equal, watched, plain))
    assert torch.equal(after, random_state)


def test_compiled_code_of_an_earlier_cell_ends_the_watching_before_it_runs():
    torch._dynamo.reset()
    doubled = torch.compile(lambda x: x * 2, backend="eager")
    doubled(torch.ones(2))
    background_births.begin_cell()
    try:
        add_often(torch.ones(2))
        assert len(function_modes()) == 1
        doubled(torch.ones(2))
        assert function_modes() == []
        assert background_births.which_watched() is background_births.Watching.COMPILED
    finally:
        background_births.end_watching()


def test_tensors_are_not_kept_alive():
    background_births.begin_watching()
    try:
        known = background_births.get_background_births()
        for _ in range(10):
            torch.zeros(3).add(1)
        assert len(known) == 0
    finally:
        background_births.end_watching()
    assert background_births.get_background_births() is None


def test_a_failing_call_of_the_user_fails_as_ever_and_recordings_go_on_as_ever():
    with devwidget.simulate(1):
        background_births.begin_watching()
        try:
            x = torch.ones(2)
            with devwidget.record(heal=True) as recording:
                (torch.ones(2, device="cuda") + x).sum()
        finally:
            background_births.end_watching()
    (finding,) = recording.trace.findings
    assert finding.birth.text == "x = torch.ones(2)"


def stance():
    return torch._dynamo.eval_frame._stance.stance


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_the_stance_of_two_recordings_ends_with_the_last_of_them_in_any_order(first_to_end):
    recordings = [devwidget.record(), devwidget.record()]
    compiled = torch.compile(lambda x: x * 2, backend="eager")
    for each in recordings:
        each.__enter__()
    recordings.pop(first_to_end).__exit__(None, None, None)
    assert stance() == "force_eager"
    compiled(torch.ones(2))
    recordings.pop().__exit__(None, None, None)
    assert stance() == "default"


@pytest.mark.parametrize("ends_inside", [True, False])
def test_a_stance_that_the_user_takes_while_a_recording_runs_is_the_users_before_and_after_its_end(ends_inside):
    with devwidget.record() as recording:
        users = torch.compiler.set_stance("fail_on_recompile")
        torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2))
        if ends_inside:
            users.__exit__(None, None, None)
    assert stance() == ("default" if ends_inside else "fail_on_recompile")
    users.__exit__(None, None, None)
    assert stance() == "default"
    assert any(reason.startswith("compiled code") for reason in recording.trace.not_checked)


class Masked(torch.nn.Module):
    def mask(self):
        return torch.ones(4).bool()

    def forward(self, x):
        return x.masked_fill(~self.mask(), 0.0)


@pytest.fixture
def failed():
    """A call whose stray has no name, watched as it failed; its exception."""
    with devwidget.simulate(1):
        background_births.begin_watching()
        try:
            with pytest.raises(RuntimeError) as caught:
                Masked().cuda()(torch.ones(4).cuda())
            yield caught.value
        finally:
            background_births.end_watching()


def test_of_a_value_that_is_gone_the_recorded_line_is_named(failed):
    (finding,) = devwidget.explain(failed).findings
    assert finding.birth.text == "return torch.ones(4).bool()"


def test_operands_are_those_of_their_exception_alone(failed):
    births = background_births.get_background_births()
    assert [tensor.device.type for tensor in births.operands_of(failed)] == ["cuda", "cpu"]
    assert births.operands_of(RuntimeError(str(failed))) == ()
    with pytest.raises(RuntimeError):
        torch.ones(3) @ torch.ones(4)
    assert len(births.operands_of(failed)) == 2, "this call has mixed nothing"


def test_large_operands_are_not_kept():
    with devwidget.simulate(1):
        background_births.begin_watching()
        try:
            with pytest.raises(RuntimeError) as caught:
                torch.ones(5 << 20).cuda() + torch.ones(5 << 20)
            assert background_births.get_background_births().operands_of(caught.value) == ()
        finally:
            background_births.end_watching()


def test_the_exception_of_the_user_goes_its_way_whatever_an_operand_is():
    sparse = torch.eye(4).to_sparse()
    with devwidget.simulate(1):
        background_births.begin_watching()
        try:
            with pytest.raises(RuntimeError, match="same device"):
                torch.ones(4, 4).cuda() @ sparse
        finally:
            background_births.end_watching()
