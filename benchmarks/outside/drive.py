"""For the programs of `fixes.toml`: reach one file of a package whose other files want what is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock


def bare(*packages: str) -> None:
    """Packages without what their `__init__` does, the outer ones first."""
    for name in packages:
        package = types.ModuleType(name)
        place = Path(*name.split("."))
        package.__path__ = [str(Path(entry) / place) for entry in ["", *sys.path] if (Path(entry) / place).is_dir()]
        package.__spec__ = importlib.util.spec_from_loader(name, None, is_package=True)
        sys.modules[name] = package
        outer, _, own = name.rpartition(".")
        if outer:
            setattr(importlib.import_module(outer), own, package)


def stub(*names: str) -> None:
    """Modules that have everything, and of which nothing is used."""
    for name in names:
        sys.modules[name] = MagicMock(__spec__=None, __path__=[], __name__=name)
