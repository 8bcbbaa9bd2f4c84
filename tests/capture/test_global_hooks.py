"""Hooks of ours in torch's global tables: threads that walk a table, and users who change it, do not notice them."""

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

import devwidget

REGISTER = (
    modules.register_module_forward_pre_hook,
    modules.register_module_forward_hook,
    optimizers.register_optimizer_step_pre_hook,
    optimizers.register_optimizer_step_post_hook,
)


def tables():
    """torch's four tables, as they stand now."""
    return (
        modules._global_forward_pre_hooks, modules._global_forward_hooks,
        optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks,
    )  # fmt: skip


def stepping():
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("at", range(4))
def test_a_table_that_is_being_walked_is_not_changed(at):
    handles = [REGISTER[at](lambda *args: None) for _ in range(2)]
    walk = iter(tables()[at].values())
    next(walk)
    with devwidget.record():
        beside = iter(tables()[at].values())
        next(beside)
    assert (len(list(walk)), len(list(beside))) == (1, 2)
    for handle in handles:
        handle.remove()


def test_a_hook_that_the_user_registers_meanwhile_stays_and_can_be_removed():
    calls = []
    with devwidget.record():
        handle = modules.register_module_forward_hook(lambda *args: calls.append("called"))
        nn.Linear(2, 2)(torch.ones(1, 2))
    nn.Linear(2, 2)(torch.ones(1, 2))
    handle.remove()
    nn.Linear(2, 2)(torch.ones(1, 2))
    assert calls == ["called"] * 2


def test_a_hook_that_the_user_removes_meanwhile_is_not_called_again():
    calls = []
    handle = modules.register_module_forward_pre_hook(lambda *args: calls.append("called"))
    with devwidget.record():
        nn.Linear(2, 2)(torch.ones(1, 2))
        handle.remove()
        nn.Linear(2, 2)(torch.ones(1, 2))
    assert calls == ["called"]
    assert not modules._global_forward_pre_hooks


def test_torchs_own_tables_are_back():
    before = tables()
    with devwidget.record():
        assert all(len(table) == len(own) + 1 for table, own in zip(tables(), before, strict=True))
    assert all(table is own for table, own in zip(tables(), before, strict=True))
