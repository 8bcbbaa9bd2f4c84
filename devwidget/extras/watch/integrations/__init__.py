"""INTEGRATIONS: trainers of other libraries, watched; each library is loaded when its name is asked for here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devwidget.extras.watch.integrations.accelerator_watch import watch_accelerator
    from devwidget.extras.watch.integrations.lightning_callback import LightningCallback
    from devwidget.extras.watch.integrations.trainer_watch import FindingWarning, TrainerWatch
    from devwidget.extras.watch.integrations.transformers_callback import TransformersCallback

__all__ = ["FindingWarning", "LightningCallback", "TrainerWatch", "TransformersCallback", "watch_accelerator"]
_HOMES = {
    "FindingWarning": "trainer_watch",
    "LightningCallback": "lightning_callback",
    "TrainerWatch": "trainer_watch",
    "TransformersCallback": "transformers_callback",
    "watch_accelerator": "accelerator_watch",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        from devwidget.records.errors import nearest

        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{nearest(name, __all__)}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
