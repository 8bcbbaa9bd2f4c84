"""Blocks that repeat."""

from dataclasses import replace

from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.records.trace import Trace
from devwidget.views.overlay import make_overlay, repeated_blocks
from devwidget.views.placement import tabulate_snapshot
from tests.views.builders import GPU0, GPU1, one_step, tensor


def stack(count, device=lambda block: GPU0):
    """A model of equal blocks, each of two layers."""
    modules = [ModuleFacts("", "Net", -1, 0), ModuleFacts("h", "ModuleList", 0, 1)]
    for block in range(count):
        own = len(modules)
        modules.append(ModuleFacts(f"h.{block}", "Block", 1, 2))
        for layer in ("up", "down"):
            weight = tensor("weight", (1000, 1000), device(block), storage=own * 10 + len(layer))
            modules.append(ModuleFacts(f"h.{block}.{layer}", "Linear", own, 3, (weight,)))
    return Snapshot(tuple(modules))


def folds(snapshot, trace=None):
    table = tabulate_snapshot(snapshot)
    return {table.paths[row]: count for row, count in repeated_blocks(table, make_overlay(table, trace)).items()}


def test_equal_blocks_are_one_run():
    assert folds(stack(12)) == {"h.0": 12}


def test_a_run_ends_where_the_device_changes():
    assert folds(stack(12, lambda block: GPU0 if block < 5 else GPU1)) == {"h.0": 5, "h.5": 7}


def test_two_of_a_kind_are_no_run():
    assert folds(stack(2)) == {}


def test_a_block_in_which_a_tensor_hops_is_like_no_other():
    move = replace(one_step().moves[0], module="h.4.up")
    assert folds(stack(12), Trace(moves=(move,))) == {"h.0": 4, "h.5": 7}


def test_many_equal_leaves_are_one_run_and_a_few_are_none():
    leaves = lambda count: Snapshot(
        (ModuleFacts("", "Net", -1, 0), *(ModuleFacts(f"drop{n}", "Dropout", 0, 1) for n in range(count)))
    )
    assert folds(leaves(9)) == {}
    assert folds(leaves(50)) == {"drop0": 50}
