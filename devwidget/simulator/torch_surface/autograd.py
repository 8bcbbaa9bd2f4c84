"""Device checks of custom functions, which autograd's engine makes on real devices only."""

from __future__ import annotations

import torch
from torch.autograd.function import BackwardCFunction

from devwidget.simulator.operators import backward
from devwidget.simulator.patching import Patches
from devwidget.simulator.torch_internals import locate_name
from devwidget.simulator.torch_surface import gradient_hooks


def install(patches: Patches) -> None:
    """Check the gradients of `torch.autograd.Function`s."""
    patches.wrap(torch.autograd.Function, "apply", backward.remember_devices)
    patches.wrap(*locate_name("apply_on_tensors"), gradient_hooks.check_module_hooks)
    patches.wrap(*locate_name("run_backward"), gradient_hooks.check_roots)
    patches.wrap(BackwardCFunction, "apply", backward.check_custom_gradients)
    patches.wrap(BackwardCFunction, "apply_boxed", backward.check_custom_gradients)  # since torch 2.13
