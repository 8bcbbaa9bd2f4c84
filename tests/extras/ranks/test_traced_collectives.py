"""A recording sees the collectives of its process, with bytes, group, module and line: here as one rank of a fake group."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

import devwidget
from devwidget.extras.ranks import traced_collectives as collectives
from devwidget.extras.ranks.traced_collectives import KINDS, places_of
from devwidget.records.parallel import CollectiveCall
from devwidget.records.trace import Trace
from tests.older_torch import IS_OLDER
from tests.stepping import Block


@pytest.fixture(autouse=True)
def _four_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts one of its own there and leaves it
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    yield
    dist.destroy_process_group()


def stepped(model: nn.Module) -> tuple[CollectiveCall, ...]:
    """What a step of a model begins."""
    with warnings.catch_warnings(), devwidget.record() as recording:
        warnings.simplefilter("ignore")  # torch's own, of hooks
        recording.attach(model)
        model(torch.randn(8, 16)).square().mean().backward()
    return recording.trace.collectives


def told(found: tuple[CollectiveCall, ...]) -> list[tuple[Any, ...]]:
    return [(each.kind, each.bytes, each.module, each.phase, each.by) for each in found]


def test_fsdp_gathers_and_reduces_for_the_modules_whose_parameters_it_carries() -> None:
    model = Block()
    fully_shard(model.up)
    fully_shard(model)
    up, rest = 4 * (16 * 32 + 32) // 4, 4 * (32 * 16 + 16) // 4  # float32, of which a rank has a quarter
    assert told(stepped(model)) == [
        ("all_gather", rest, "", "forward", "FSDP"),
        ("all_gather", up, "up", "forward", "FSDP"),
        ("all_gather", up, "up", "backward", "FSDP"),
        ("reduce_scatter", 4 * rest, "", "backward", "FSDP"),
        ("reduce_scatter", 4 * up, "up", "backward", "FSDP"),
    ]


def test_tensor_parallel_layers_reduce_for_the_module_whose_output_it_is() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(Block(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    with devwidget.record() as recording:
        model(torch.randn(8, 16))
    (only,) = recording.trace.collectives
    assert told((only,)) == [("all_reduce", 8 * 16 * 4, "down", "forward", "DTensor")]
    assert only.site is not None
    assert only.site.text == "return x + self.down(self.up(x).relu())"
    assert [(group.label, group.ranks) for group in recording.trace.groups] == [("mesh_tp", (0, 1))]


def test_what_an_operator_on_dtensors_gathers_unasked_is_seen() -> None:
    mesh = init_device_mesh("cpu", (4,))
    one, other = (distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)], src_data_rank=None) for _ in range(2))
    with devwidget.record() as recording:
        one @ other
    assert told(recording.trace.collectives) == [("all_gather", 2 * 8 * 4, None, "build", "DTensor")]


def plain() -> None:
    """One of each kind."""
    ones = torch.ones(4)
    dist.all_reduce(ones)
    dist.broadcast(ones[:3], 0)
    dist.all_gather([torch.ones(2) for _ in range(4)], torch.ones(2))
    dist.reduce_scatter(torch.ones(2), [torch.ones(2) for _ in range(4)])
    dist.all_to_all_single(torch.ones(8), torch.ones(8))
    dist.barrier()
    functional.wait_tensor(functional.all_reduce(ones, "sum", dist.group.WORLD))
    dist.send(ones, 3)
    dist.recv(ones, 2)
    dist.send(ones, 3)


def of_plain() -> Trace:
    with devwidget.record() as recording:
        plain()
    return recording.trace


def test_each_kind_is_told_with_the_bytes_that_this_rank_gives() -> None:
    assert [(each.kind, each.bytes) for each in of_plain().collectives] == [
        ("all_reduce", 16), ("broadcast", 12), ("all_gather", 8), ("reduce_scatter", 32), ("all_to_all", 32), ("barrier", 0),
        ("all_reduce", 16), ("send", 16), ("recv", 16), ("send", 16),
    ]  # fmt: skip


def test_collectives_of_a_group_are_counted_and_messages_for_each_end() -> None:
    found = of_plain().collectives
    assert [each.sequence for each in found] == [1, 2, 3, 4, 5, 6, 7, 1, 1, 2]
    assert [each.peer for each in found][-3:] == [3, 2, 3]
    assert {each.by for each in found} == {""}
    assert [each.number for each in found] == sorted(each.number for each in found)


def test_the_line_is_that_of_the_user() -> None:
    lines = [each.site.text for each in of_plain().collectives if each.site]
    assert lines[0] == "dist.all_reduce(ones)"
    assert lines[6] == 'functional.wait_tensor(functional.all_reduce(ones, "sum", dist.group.WORLD))'


def test_a_group_of_some_ranks_is_told_with_its_ranks() -> None:
    pair = dist.new_group([1, 3], group_desc="pair")
    with devwidget.record() as recording:
        dist.all_reduce(torch.ones(2), group=pair)
        dist.all_reduce(torch.ones(2))
    assert [(group.label, group.ranks) for group in recording.trace.groups] == [("pair", (1, 3)), ("default_pg", (0, 1, 2, 3))]
    assert [(each.group, each.sequence) for each in recording.trace.collectives] == [(0, 1), (1, 1)]


def test_a_loop_keeps_its_first_collectives_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "MOST_CALLS", 3)
    trace = of_plain()
    assert len(trace.collectives) == 3
    assert "recorder: the trace contains only the first 3 collectives" in trace.not_checked


def test_every_operator_that_is_known_says_where_its_group_is() -> None:
    known = [func for name in KINDS if (func := _operator(name)) is not None]
    assert len(known) == len(KINDS) or IS_OLDER
    assert all(places_of(func).group >= 0 and places_of(func).given >= 0 for func in known)


def _operator(name: str) -> Any:
    space, _, short = name.partition("::")
    found = getattr(getattr(torch.ops, space), short, None)
    return None if found is None else found.default
