"""Constructors of old: `torch.cuda.FloatTensor(2, 3)`, `torch.FloatTensor(2, 3)`, `torch.Tensor(2, 3)`."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.simulator import labels, machine
from devwidget.simulator.labels import CPU, TEMPORARY
from devwidget.simulator.patching import Patches
from devwidget.simulator.words import words

NAMES = words("Float Double Half BFloat16 Byte Char Short Int Long Bool")


class _LegacyType(type):
    """Makes tensors when called, and answers `isinstance`, as torch's own tensor types do."""

    real: Any
    on_gpu: bool

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args and isinstance(args[0], torch.Tensor) and labels.label_of(args[0]) >= 0:
            args = (args[0].cpu(), *args[1:])
        tensor: torch.Tensor = cls.real(*args, **kwargs)
        return meant(tensor, machine.current_index() if cls.on_gpu else CPU)

    def __instancecheck__(cls, instance: object) -> bool:
        if not isinstance(instance, torch.Tensor) or instance.dtype != cls.real.dtype:
            return False
        return (labels.label_of(instance) >= 0) == cls.on_gpu

    @property
    def dtype(cls) -> torch.dtype:
        """The dtype of its tensors."""
        return cls.real.dtype  # type: ignore[no-any-return]

    @property
    def is_cuda(cls) -> bool:
        """Whether its tensors are on a GPU."""
        return cls.on_gpu


def meant(tensor: torch.Tensor, label: int) -> torch.Tensor:
    """The tensor under the label that the user meant: a constructor looks like torch's own C++ code to the mode."""
    if label >= 0 or labels.label_of(tensor) == TEMPORARY:
        labels.put_label(tensor, label)
    return tensor


def install(patches: Patches) -> None:
    """Replace the constructors."""
    for name in NAMES:
        full = name + "Tensor"
        real = getattr(torch, full)
        for owner, module, on_gpu in ((torch, "torch", False), (torch.cuda, "torch.cuda", True)):
            if hasattr(owner, full):
                names = {"real": real, "on_gpu": on_gpu, "__module__": module, "__doc__": real.__doc__}
                patches.set(owner, full, _LegacyType(full, (), names))
    patches.set(torch.Tensor, "__new__", staticmethod(_new))


def _new(cls: type[torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    tensor: torch.Tensor = torch._C.TensorBase.__new__(cls, *args, **kwargs)
    # Without arguments, or for a subclass, nothing is allocated that could be mistaken for a temporary.
    return meant(tensor, CPU) if cls is torch.Tensor and args else tensor
