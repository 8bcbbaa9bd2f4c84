"""What modes above the simulator may rely on: a recorder sees virtual devices, moves, and calls without side effects."""

import threading

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.older_torch import IS_OLDER

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = pytest.mark.usefixtures("gpus")


class Ops(TorchDispatchMode):
    """Notes each operator with the devices before and after it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = [a.device for a in args if isinstance(a, torch.Tensor)]
        result = func(*args, **(kwargs or {}))
        assert before == [a.device for a in args if isinstance(a, torch.Tensor)]
        self.seen.append((func, before, getattr(result, "device", None)))
        return result

    def moves(self):
        return [(before[0], after) for func, before, after in self.seen if func is torch.ops.aten._to_copy.default]


class Calls(TorchFunctionMode):
    """Notes each call by name with the device of its first tensor before and of its result after it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        before = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
        result = func(*args, **(kwargs or {}))
        self.seen.append((getattr(func, "__name__", ""), before, getattr(result, "device", None)))
        return result


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: x.to("cuda:1"), "to"),
        (lambda x: x.cuda(1), "cuda"),
        (lambda x: torch.tensor([1.0], device="cuda:1"), "tensor"),
        (lambda x: torch.zeros(2, device=1), "zeros"),
        (lambda x: x.new_tensor([1.0], device=1), "new_tensor"),
    ],
)
def test_a_function_mode_sees_the_users_call_and_both_devices(call, name):
    x = torch.ones(2)
    with Calls() as calls:
        call(x)
    assert (name, SECOND) in [(seen[0], seen[2]) for seen in calls.seen]


def test_a_dispatch_mode_sees_moves_forward_and_backward():
    x = torch.ones(2, requires_grad=True)
    with Ops() as ops:
        x.to("cuda:0").to("cuda:1").sum().backward()
        torch.zeros(2, device="cuda:1").copy_(torch.ones(2))
    assert ops.moves() == [(CPU, FIRST), (FIRST, SECOND), (SECOND, FIRST), (FIRST, CPU)]
    assert (torch.ops.aten.copy_.default, [SECOND, CPU], SECOND) in ops.seen


def test_every_operator_of_a_step_shows_virtual_devices():
    model, x = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(9, 2)).cuda(), torch.ones(1, 2, 4, device="cuda")
    target = torch.tensor([1], device="cuda")
    with Ops() as ops:
        nn.functional.cross_entropy(model(x), target).backward()
    devices = {device for _, before, after in ops.seen for device in [*before, after] if device is not None}
    assert devices == {FIRST}


@pytest.mark.parametrize(
    "call",
    [
        lambda x, stray: x + stray,
        lambda x, stray: nn.functional.conv1d(x[None], stray[None]),
        lambda x, stray: torch.cat([x, stray]),
    ],
)
def test_a_stray_argument_can_be_moved_and_the_call_made_again(call):
    class Heal(TorchFunctionMode):
        healed = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            try:
                return func(*args, **(kwargs or {}))
            except RuntimeError:
                Heal.healed += 1
                move = lambda a: a.to(FIRST) if isinstance(a, torch.Tensor) else a
                args = [tuple(map(move, a)) if isinstance(a, (list, tuple)) else move(a) for a in args]
                return func(*args, **(kwargs or {}))

    stray = torch.ones(2, 2, requires_grad=True)
    with Heal():
        result = call(torch.ones(2, 2, device="cuda"), stray)
    assert Heal.healed == 1
    assert result.device == FIRST
    result.sum().backward()
    assert stray.grad.device == CPU


def test_modes_above_work_inside_workers(monkeypatch):
    for flag in ("_is_in_torch_dispatch_mode", "_is_in_non_infra_torch_dispatch_mode"):
        monkeypatch.setattr(_python_dispatch, flag, False)  # torch leaves them set where modes of two threads cross
    monkeypatch.setattr(_python_dispatch, "_is_in_any_mode_without_ignore_compile_internals", False, raising=not IS_OLDER)
    seen = []

    def work():
        with Ops() as ops, Calls():
            torch.ones(1).to("cuda:1").add(1)
        seen.extend(ops.moves())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(CPU, SECOND)] * 4
