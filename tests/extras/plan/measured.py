"""What a plan predicts, measured: the peaks of the same step on virtual GPUs with values."""

import copy

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

import devwidget
from devwidget.capture.step.batch import Arguments
from devwidget.extras.plan.rehearsal import MeanStep


def total(out):
    """A loss for any output."""
    leaves = tree_leaves(dict(out) if hasattr(out, "keys") else out)
    roots = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    return sum((t.abs() if t.is_complex() else t).float().sum() for t in roots)


def keeps_all_layers(model):
    """The model without layers that are dropped at random: a plan counts them all."""
    for module in model.modules():
        for owner in (module, getattr(module, "config", None)):
            for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
                if hasattr(owner, name):
                    setattr(owner, name, 0.0)
    return model


def measured(model, kwargs, loss_fn, optimizer, *, gpus=1, parallel=False, device_map=()):
    """The peak of each GPU; `device_map` as a plan holds it."""
    with devwidget.simulate(gpus, 1 << 60):
        return measured_here(model, kwargs, loss_fn, optimizer, gpus=gpus, parallel=parallel, device_map=device_map)


def measured_here(model, kwargs, loss_fn, optimizer, *, gpus=1, parallel=False, device_map=()):
    """The same on the GPUs that there are."""
    home = next((device for _, device in device_map if device != "cpu"), "cuda:0")
    twin = keeps_all_layers(copy.deepcopy(model))
    placed = twin = _dispatched(twin, dict(device_map), home) if device_map else twin.to(home)
    if parallel:
        placed = nn.DataParallel(twin, device_ids=list(range(gpus)))
    there = tree_map_only(torch.Tensor, lambda tensor: tensor.to(home), kwargs)
    state = optimizer(twin.parameters()) if optimizer else None
    step = MeanStep(placed, Arguments((), there), loss_fn, state)
    for _ in range(2 if state else 1):
        for _, run in step.list_phases():
            run()
    return [torch.cuda.max_memory_allocated(index) for index in range(gpus)]


def _dispatched(model, places, home):
    import accelerate

    places = {path: int(device[5:]) if device.startswith("cuda") else device for path, device in places.items()}
    return accelerate.dispatch_model(model, places, main_device=home, force_hooks=True)
