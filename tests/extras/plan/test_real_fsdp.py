"""What a plan says of FSDP2 is what the real FSDP2 keeps, also where that is more than PyTorch's own formula counts."""

import functools

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing._internal.distributed._tensor.common_dtensor import ModelArgs, Transformer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import devwidget
from devwidget.capture.snapshot.odd_tensors import local_part
from devwidget.extras.plan.parallel import run_in_fork
from devwidget.extras.plan.parallel.rank_step import join_fake_group

TOKENS = torch.zeros(1, 4, dtype=torch.long)


class LiveBytes(TorchDispatchMode):
    """The most bytes that lived after any operator, of all storages that one has seen; their sizes change in place."""

    def __init__(self, known):
        super().__init__()
        self.storages, self.peak = {}, 0
        self.note(known)

    def note(self, values):
        for each in values:
            if isinstance(each, torch.Tensor):
                storage = local_part(each).untyped_storage()
                self.storages.setdefault(storage._cdata, StorageWeakRef(storage))

    def total(self):
        self.storages = {key: weak for key, weak in self.storages.items() if not weak.expired()}
        return sum(torch.UntypedStorage._new_with_weak_ptr(weak.cdata).nbytes() for weak in self.storages.values())

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        self.note(tree_leaves((args, kwargs, result)))
        self.peak = max(self.peak, self.total())
        return result


def model_of():
    torch.manual_seed(0)
    return Transformer(ModelArgs(vocab_size=32, n_layers=3, dim=128, n_heads=4, weight_tying=False, dropout_p=0.0))


def shard(model, mesh=None, *, reshard):
    for block in (*model.layers, model):
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)


def real_peak(reshard):
    """Of a forward pass on one of two ranks, whose collectives take the memory that they take and bring nothing."""
    join_fake_group(0, 2)
    model = model_of()
    shard(model, reshard=reshard)
    with LiveBytes(model.parameters()) as live:
        model(TOKENS)
    return live.peak


@pytest.mark.process
@pytest.mark.usefixtures("copies_run_backward")
@pytest.mark.parametrize(("reshard", "blocks"), [(True, 3), (False, 5)])
def test_a_plan_peaks_where_real_fsdp_does(reshard, blocks):
    """PyTorch's formula for what is not resharded has four blocks of three and their shards; torch 2.13 keeps five.

    And with resharding three; torch 2.15 keeps one less of each.
    """
    model = model_of()
    of_all = sum(each.nbytes for each in model.parameters())
    of_block = sum(each.nbytes for each in model.layers[0].parameters())
    step = {"loss_fn": torch.sum, "optimizer": torch.optim.SGD, "parallelize": functools.partial(shard, reshard=reshard)}
    plan = devwidget.plan(model, TOKENS, parallel={"dp": 2}, **step)
    (planned,) = {each.bytes for rank in plan.ranks for each in rank.phases if each.phase == "forward"}
    real = run_in_fork(lambda: real_peak(reshard))
    assert abs(planned - real) < of_block / 20
    assert round((real - of_all / 2) / of_block) in (blocks, blocks - 1)
