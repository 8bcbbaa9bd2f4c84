"""Parts of torch that are first imported while a simulation runs must be born from the real torch.

dynamo, for one, keeps tables of torch's own functions; the replacements would stay in them after the simulation.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

from devwidget.capture.patching import registry as registry
from devwidget.simulator.patching import Patches


def install(patches: Patches) -> None:
    """Watch the imports of torch's modules."""
    finder = _Finder()
    patches.undo.add(_take_out, finder)
    sys.meta_path.insert(0, finder)


def _take_out(finder: _Finder) -> None:
    sys.meta_path[:] = [each for each in sys.meta_path if each is not finder]


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The ordinary spec, with a loader that puts the patches aside."""
        if not fullname.startswith("torch.") or registry.is_suspended():
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _QuietLoader(spec.loader.name, spec.loader.path)
        return spec


class _QuietLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: Any) -> None:
        """Run the module with torch as it really is."""
        with registry.suspended():
            super().exec_module(module)
