"""Faults inside functions that torch takes apart, transforms, compiles or runs again are found, and healed."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from devwidget import record
from devwidget.gpus import simulate

HERE = [8.0, 8.0, 8.0, 8.0]


def _given():
    return torch.full((4,), 2.0, device="cuda:0", requires_grad=True)


def in_a_branch(stray, x):
    return torch.cond(x.sum() > 0, lambda x: x * stray, lambda x: x.clone(), (x,))


def in_vmap(stray, x):
    return torch.vmap(lambda x, s: x * s)(x, stray)


def in_vmap_over_a_stray(stray, x):
    return torch.vmap(lambda x: x * stray)(x.expand(3, 4))[0]


def in_a_gradient(stray, x):
    return torch.func.grad(lambda x: (x * stray).sum())(x) * 2


def in_a_jacobian(stray, x):
    return torch.func.jacrev(lambda x: x * stray)(x).diagonal() * 2


def in_compiled_code(stray, x):
    return torch.compile(lambda x: x * stray, fullgraph=True)(x)


def in_a_reentrant_checkpoint(stray, x):
    return checkpoint(lambda x: x * stray, x, use_reentrant=True)


def in_a_checkpoint(stray, x):
    return checkpoint(lambda x: x * stray, x, use_reentrant=False)


PROGRAMS = [in_a_branch, in_vmap, in_vmap_over_a_stray, in_a_gradient, in_a_jacobian, in_compiled_code,
            in_a_reentrant_checkpoint, in_a_checkpoint]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_stray_tensor_is_found_and_healed_through_backward(program):
    with simulate(2), record(heal=True) as recording:
        x = _given()
        out = program(torch.full((4,), 4.0), x)
        if out.requires_grad:
            out.sum().backward()
            assert x.grad.tolist() == [4.0] * 4
        assert out.tolist() == HERE
    assert [finding.kind for finding in recording.trace.findings if finding.severity == "error"] == ["wrong-device"]
    assert recording.trace.error == ""


def _compiled_step(compiled, x):
    return compiled(x).detach().clone()


def test_compiled_code_is_as_before_after_a_recording_that_says_so_once():
    torch._dynamo.reset()
    compiled = torch.compile(torch.nn.Linear(4, 4), backend="eager", fullgraph=True)
    x = torch.ones(2, 4)
    before = _compiled_step(compiled, x)
    frames = dict(torch._dynamo.utils.counters["frames"])
    with record() as recording:
        assert torch.equal(_compiled_step(compiled, x), before)
        _compiled_step(compiled, x)
    assert torch.equal(_compiled_step(compiled, x), before)
    assert dict(torch._dynamo.utils.counters["frames"]) == frames
    assert sum(reason.startswith("compiled code") for reason in recording.trace.not_checked) == 1


def test_a_recording_without_compiled_code_does_not_speak_of_it():
    with record() as recording:
        torch.cond(torch.tensor(True), torch.sin, torch.cos, (torch.ones(2),))
    assert not any(reason.startswith("compiled code") for reason in recording.trace.not_checked)
