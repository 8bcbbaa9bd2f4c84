"""Virtual GPUs in a process that another one with virtual GPUs has started: they begin when that process loads torch.

So a child that never loads it, such as a compiler or pip, pays nothing. Loads no torch itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Sequence

from devwidget.records.device import SIMULATE_VARIABLE


def begin_with_torch(text: str | None = None) -> None:
    """Have the virtual GPUs begin now if torch is there, else as soon as it is.

    Args:
        text: which they are, as the variable says it; None to read that. Children of this process inherit it.

    Raises:
        SimulationError: if it cannot be understood.
    """
    if text is not None:
        os.environ[SIMULATE_VARIABLE] = text
    if "torch" in sys.modules:
        _begin()
    elif os.environ.get(SIMULATE_VARIABLE):
        sys.meta_path.insert(0, _TorchFinder())


def _begin() -> None:
    # Late: it loads torch.
    from devwidget import gpus

    inherited = gpus.inherited()
    if inherited is not None and gpus.active() is None:
        inherited.start()


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Waits for the import of torch."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The ordinary spec of torch, with a loader that begins when torch is complete."""
        if fullname != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _TorchLoader(self, spec.loader)
        return spec


class _TorchLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, finder: _TorchFinder, plain: importlib.machinery.SourceFileLoader) -> None:
        super().__init__(plain.name, plain.path)
        self._finder = finder

    def exec_module(self, module: types.ModuleType) -> None:
        """Run `torch/__init__.py`, and begin."""
        super().exec_module(module)
        sys.meta_path[:] = [each for each in sys.meta_path if each is not self._finder]
        _begin()
