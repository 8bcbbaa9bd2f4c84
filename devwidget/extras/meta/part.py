"""What is done about values where tensors have none."""

from __future__ import annotations

from collections.abc import Callable

import torch

from devwidget.extras.meta import call, known_values, meta_kernels
from devwidget.extras.meta.mode import ModeWithoutValues
from devwidget.gpus.labels import META_DEVICE
from devwidget.gpus.parts import PARTS
from devwidget.gpus.patching import Patches, replacing
from devwidget.gpus.state import Values
from devwidget.gpus.tensors import get_device_property
from devwidget.gpus.torch_internals import locate_name
from devwidget.gpus.virtual_machine import VirtualMachine


class UnknownValues(Values):
    """Runs operators on meta, and keeps the values that are known all the same."""

    mode = ModeWithoutValues
    call_operator = staticmethod(call.call_operator)
    call_factory = staticmethod(call.call_factory)
    read_values = staticmethod(known_values.read_values)
    read_numbers = staticmethod(known_values.read_numbers)
    list_numbers = staticmethod(known_values.list_numbers)
    check_known = staticmethod(known_values.check_known)
    strip_values = staticmethod(known_values.strip_values)
    forget_values = staticmethod(known_values.forget_values)
    copy_known = staticmethod(known_values.copy_known)
    run_attention = staticmethod(meta_kernels.run_attention)


def install_without_values(patches: Patches, machine: VirtualMachine) -> None:
    """Have tensors without values say so, to who looks at one and to who would check their numbers."""
    if machine.compute:
        return
    patches.set(torch.Tensor, "is_meta", property(is_meta))
    patches.wrap(*locate_name("printed_tensor"), show_contents)
    patches.set(*locate_name("validate_distributions"), False)


def is_meta(self: torch.Tensor) -> bool:
    """Whether the user put it on meta."""
    return get_device_property(self) == META_DEVICE


@replacing
def show_contents(original: Callable[..., str], self: torch.Tensor, indent: int) -> str:
    """What `repr` shows of a tensor without values."""
    if known_values.is_unknown(self):
        return f"..., size={tuple(self.shape)}"
    return original(known_values.read_values(self), indent)


PARTS.unknown_values = UnknownValues()
PARTS.installs.append(install_without_values)
