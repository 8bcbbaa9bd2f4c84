"""Trainers change Python's own settings when they are loaded: that is theirs, and no trace of ours."""

from __future__ import annotations

import contextlib
import importlib
import warnings

import pytest


@pytest.fixture(scope="session", autouse=True)
def _libraries_are_loaded() -> None:
    for name in ("lightning.pytorch", "transformers", "torch.utils.tensorboard"):
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
