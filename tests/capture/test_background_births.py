"""Births between recordings."""

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
