"""Virtual GPUs in a child process: they start when that process loads torch.

A child that never loads torch, such as a compiler or pip, pays nothing. This module does not load torch.
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
    """Start the virtual GPUs now if torch is loaded, else when it is.

    Args:
        text: The GPUs, as in the environment variable; None reads the variable. Child processes inherit it.

    Raises:
        SimulationError: If `text` cannot be parsed.
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
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of torch with a loader that starts the GPUs once torch is loaded."""
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
        """Run `torch/__init__.py`, then start the GPUs."""
        super().exec_module(module)
        sys.meta_path[:] = [each for each in sys.meta_path if each is not self._finder]
        _begin()
