"""The current GPU while hooks of the user run in backward: that of what they are given, as in the engine's threads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devwidget.simulator.devices import labels, machine
from devwidget.simulator.patching import Patches
from devwidget.simulator.torch_internals import target
from devwidget.simulator.torch_surface import gradient_hooks


def install(patches: Patches) -> None:
    """Replace what takes such hooks, but for those of tensors and modules, which are also checked."""
    patches.wrap(*target("push_saved_hooks"), unpacked_there)
    patches.wrap(torch.Tensor, "register_post_accumulate_grad_hook", accumulated_there)


def unpacked_there(original: Callable[..., None]) -> Callable[..., None]:
    """Hooks for saved tensors, non-reentrant checkpoints among them: unpacked on the GPU where they were packed."""

    @functools.wraps(original)
    def _push_saved_tensors_default_hooks(pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        def pack(tensor: torch.Tensor) -> tuple[int, Any]:
            return labels.label_of(tensor), pack_hook(tensor)

        def unpack(packed: tuple[int, Any]) -> Any:
            return machine.call_on(packed[0], unpack_hook, packed[1])

        original(pack, unpack)

    return _push_saved_tensors_default_hooks


def accumulated_there(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks that run when a gradient is complete."""

    @functools.wraps(original)
    def register_post_accumulate_grad_hook(self: torch.Tensor, hook: Callable[[Any], None]) -> Any:
        @functools.wraps(hook)
        def there(tensor: torch.Tensor) -> None:
            machine.call_on(labels.label_of(tensor), hook, tensor)

        handle = original(self, there)
        gradient_hooks.remember(handle, there, hook)
        return handle

    return register_post_accumulate_grad_hook
