"""A snapshot lists every module and every tensor that it owns, and changes nothing."""

from __future__ import annotations

import gc
import random
import weakref

import pytest
import torch
from torch import nn

from devwidget.capture.snapshot.take_snapshot import take_snapshot
from devwidget.records.device import CPU
from devwidget.records.errors import DevwidgetError
from devwidget.records.snapshot import ModuleFacts, Snapshot, TensorFacts


def module(snapshot: Snapshot, path: str) -> ModuleFacts:
    return next(each for each in snapshot.modules if each.path == path)


def tensor(snapshot: Snapshot, path: str, name: str) -> TensorFacts:
    return next(each for each in module(snapshot, path).tensors if each.name == name)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 2, dtype=torch.bfloat16)


def test_modules_come_in_pre_order_with_parents_and_depths() -> None:
    facts = take_snapshot(Net()).modules
    assert [(each.path, each.class_name, each.parent, each.depth) for each in facts] == [
        ("", "Net", -1, 0),
        ("encoder", "Sequential", 0, 1),
        ("encoder.0", "Linear", 1, 2),
        ("encoder.1", "BatchNorm1d", 1, 2),
        ("head", "Linear", 0, 1),
    ]


def test_a_parameter_has_all_its_facts() -> None:
    facts = tensor(take_snapshot(Net()), "head", "weight")
    assert (facts.role, facts.shape, facts.dtype, facts.device) == ("parameter", (2, 8), "bfloat16", CPU)
    assert (facts.bytes, facts.storage_bytes, facts.requires_grad, facts.grad_bytes) == (32, 32, True, 0)
    assert (facts.grad_device, facts.tied_to, facts.note) == (None, "", "")


def test_gradients_are_counted_where_they_are() -> None:
    model = nn.Linear(4, 2)
    model(torch.ones(1, 4)).sum().backward()
    facts = tensor(take_snapshot(model), "", "weight")
    assert (facts.grad_bytes, facts.grad_device) == (32, CPU)


def test_a_user_class_has_its_line_and_a_library_class_has_none() -> None:
    snapshot = take_snapshot(Net())
    site = module(snapshot, "").defined
    assert site is not None
    assert site.file == __file__
    assert (site.text, site.function) == ("class Net(nn.Module):", "<module>")
    assert module(snapshot, "head").defined is None


def test_the_training_flag_is_kept() -> None:
    model = Net()
    model.encoder.eval()
    snapshot = take_snapshot(model)
    assert [each.training for each in snapshot.modules] == [True, False, False, False, True]


def test_a_module_registered_twice_is_listed_once() -> None:
    model = nn.Module()
    model.first = nn.Sequential(nn.Linear(2, 2))
    model.second = model.first
    snapshot = take_snapshot(model)
    assert [each.path for each in snapshot.modules] == ["", "first", "first.0"]
    assert module(snapshot, "first").note == "also at second"


def test_modules_that_contain_each_other_end_the_walk() -> None:
    model = nn.Module()
    model.child = nn.Module()
    model.child.back = model
    assert [each.path for each in take_snapshot(model).modules] == ["", "child"]


def test_a_tower_of_two_thousand_modules_needs_no_recursion() -> None:
    model = bottom = nn.Module()
    for _ in range(2_000):
        bottom.child = nn.Module()
        bottom = bottom.child
    assert take_snapshot(model).modules[-1].depth == 2_000


def test_tied_weights_share_a_storage_and_name_the_first() -> None:
    model = nn.Module()
    model.embed = nn.Embedding(5, 3)
    model.head = nn.Linear(3, 5, bias=False)
    model.head.weight = model.embed.weight
    snapshot = take_snapshot(model)
    first, second = tensor(snapshot, "embed", "weight"), tensor(snapshot, "head", "weight")
    assert first.storage == second.storage
    assert (first.tied_to, second.tied_to) == ("", "embed.weight")


def test_slices_of_one_storage_are_not_tied() -> None:
    model = nn.Module()
    both = torch.zeros(2, 3)
    model.register_buffer("upper", both[0])
    model.register_buffer("lower", both[1])
    upper, lower = module(take_snapshot(model), "").tensors
    assert upper.storage == lower.storage
    assert (lower.tied_to, lower.bytes, lower.storage_bytes) == ("", 12, 24)


def test_an_optimizer_gives_its_state_by_parameter() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    states = {each.name: each for each in take_snapshot(model, optimizer=optimizer).optimizer}
    assert sorted(states) == sorted(f"{name}.{key}" for name in ("weight", "bias") for key in ("step", "exp_avg", "exp_avg_sq"))
    assert (states["weight.exp_avg"].role, states["weight.exp_avg"].bytes) == ("optimizer", 32)


def test_states_in_lists_and_learning_rates_that_are_tensors_are_found() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=6)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = model(torch.ones(1, 4)).square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    names = [each.name for each in take_snapshot(model, optimizer=optimizer).optimizer]
    assert "param_groups[0].lr" in names
    assert any(name.startswith("weight.old_dirs[0]") for name in names)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Net, "the class `Net`.*\n.*`Net\\(...\\)`"),
        ({"weight": torch.zeros(1)}, "state_dict"),
        ([nn.Linear(1, 1)], "ModuleList"),
        (None, "a `NoneType`"),
        (torch.zeros(1), "a `Tensor`"),
    ],
)
def test_what_is_no_model_is_refused_with_what_would_be_right(value: object, expected: str) -> None:
    with pytest.raises(DevwidgetError, match=expected):
        take_snapshot(value)  # type: ignore[arg-type]


def test_a_pipeline_with_a_model_inside_is_told_apart() -> None:
    class Pipeline:
        def __init__(self) -> None:
            self.model = Net()

    with pytest.raises(DevwidgetError, match=r"pass its `\.model`, a Net"):
        take_snapshot(Pipeline())  # type: ignore[arg-type]


def test_a_module_that_forgot_super_init_is_refused() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            pass

    with pytest.raises(DevwidgetError, match=r"super\(\).__init__"):
        take_snapshot(Forgetful())


def test_what_is_no_optimizer_is_refused() -> None:
    model = Net()
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters()), 1)
    with pytest.raises(DevwidgetError, match=r"pass its `\.optimizer`"):
        take_snapshot(model, optimizer=scheduler)  # type: ignore[arg-type]
    with pytest.raises(DevwidgetError, match=r"Adam\(model.parameters\(\)\)"):
        take_snapshot(model, optimizer=torch.optim.Adam)  # type: ignore[arg-type]


def test_the_model_is_freed_at_once_after_a_snapshot() -> None:
    model = Net()
    model.mask = torch.zeros(3)
    watch = weakref.ref(model)
    gc.collect()
    gc.disable()
    try:
        snapshot = take_snapshot(model)
        del model
        assert watch() is None
        assert len(snapshot.modules) == 5
    finally:
        gc.enable()


def test_nothing_of_the_model_is_changed() -> None:
    model = Net()
    before = [dict(vars(each)) for each in model.modules()]
    versions = [each._version for each in (*model.parameters(), *model.buffers())]
    rng, python_rng, collecting = torch.get_rng_state(), random.getstate(), gc.isenabled()
    take_snapshot(model)
    assert [dict(vars(each)) for each in model.modules()] == before
    assert [each._version for each in (*model.parameters(), *model.buffers())] == versions
    assert torch.equal(rng, torch.get_rng_state())
    assert (python_rng, collecting) == (random.getstate(), gc.isenabled())


def test_cuda_is_not_initialised() -> None:
    take_snapshot(Net())
    assert not torch.cuda.is_initialized()


def test_torch_modes_of_the_user_see_nothing() -> None:
    seen: list[object] = []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func)
            return func(*args, **(kwargs or {}))

    model = Net()
    model.mask = torch.zeros(3)
    with Spy():
        take_snapshot(model)
    assert seen == []
