"""Models of transformers and modules of torch: recording changes nothing, breaks nothing and flags nothing."""

import copy
import functools
import random
import warnings

import numpy
import pytest
import torch
from torch.utils._pytree import tree_map

import devwidget
from tests import gradients, zoo
from tests.gradients import tensors

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")


def same(left, right):
    """Bit-identical, NaN equal to NaN."""
    return gradients.difference([left], [right]) == ""


def state(model):
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    values = {n: t.detach().clone() for n, t in named.items() if not torch.nn.parameter.is_lazy(t)}
    values |= {f"{n}.grad": t.grad.detach().clone() for n, t in named.items() if getattr(t, "grad", None) is not None}
    frame = [
        (name, m.training, sorted(m.__dict__), *(len(getattr(m, hooks)) for hooks in HOOKS))
        for name, m in model.named_modules()
    ]
    return values, frame


def run(model, args, kwargs, *, backward):
    """Outputs and random state of a seeded run."""
    torch.manual_seed(1)
    numpy.random.seed(1)
    random.seed(1)
    with torch.set_grad_enabled(backward):
        out = model(*args, **kwargs)
        roots = [t for t in tensors(out) if t.requires_grad]
        if roots:
            sum((t.abs() if t.is_complex() else t).float().sum() for t in roots).backward()
    return [t.detach() for t in tensors(out)], torch.get_rng_state()


def problems_of(model, args, kwargs, *, backward):
    twin, twin_args = copy.deepcopy(model), copy.deepcopy((args, kwargs))
    again, again_args = copy.deepcopy(model), copy.deepcopy((args, kwargs))
    plain, plain_random = run(twin, *twin_args, backward=backward)
    repeated, _ = run(again, *again_args, backward=backward)
    with devwidget.record() as recording:
        recording.attach(model)
        seen, seen_random = run(model, args, kwargs, backward=backward)
    found = [f"{f.severity} {f.kind} in {f.module!r}" for f in recording.trace.findings if f.severity != "info"]
    found += [text for text in recording.trace.not_checked if text.startswith("recorder")]
    (values, frame), (twin_values, twin_frame) = state(model), state(twin)
    if frame != twin_frame:
        found.append("hooks, flags or attributes were left behind")
    if all(map(same, plain, repeated)):  # some models seed themselves
        if len(plain) != len(seen) or not all(map(same, plain, seen)):
            found.append("outputs differ")
        if not torch.equal(plain_random, seen_random):
            found.append("random state differs")
        if values.keys() != twin_values.keys() or not all(same(values[n], twin_values[n]) for n in values):
            found.append("parameters, buffers or gradients differ")
    return found


def sweep(population, *, gpus, backward):
    """Problems by item; on virtual GPUs if asked for."""
    found = {}
    for name, model, args, kwargs in population:
        if gpus:
            model = model.to("cuda:0")
            args, kwargs = tree_map(lambda v: v.to("cuda:0") if isinstance(v, torch.Tensor) else v, (args, kwargs))
        found[name] = problems_of(model, args, kwargs, backward=backward)
    return found


FEW = ["gpt2", "mixtral", "mamba", "bert", "t5", "resnet", "whisper", "clip"]
FEW_MODULES = ["nn.BatchNorm2d", "nn.Embedding", "nn.GRU", "nn.MultiheadAttention", "nn.CrossEntropyLoss", "nn.LazyConv2d"]
POPULATIONS = {
    "core": (zoo.iter_core, FEW),
    "torch": (functools.partial(zoo.iter_torch, one_each=True), FEW_MODULES),
}


@pytest.mark.parametrize("part", ["few", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(("gpus", "backward"), [(0, False), (2, True)], ids=["cpu forward", "virtual GPUs backward"])
def test_recording_changes_nothing_and_flags_nothing(population, gpus, backward, part):
    iterate, few = POPULATIONS[population]
    models = iterate(names=few if part == "few" else None, training=backward)
    with warnings.catch_warnings(), devwidget.simulate(gpus=gpus) if gpus else warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = sweep(models, gpus=gpus, backward=backward)
    print(f"{population}: recorded {len(found)}")
    assert len(found) >= (len(few) if part == "few" else 80)
    assert {name: problems for name, problems in found.items() if problems} == {}
    assert zoo.ERRORS == []
