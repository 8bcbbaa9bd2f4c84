"""INTEGRATIONS: callbacks that watch trainers of other libraries. Each library is loaded when you use its name."""

from __future__ import annotations

from devwidget import extras
from devwidget.records.errors import nearest

__all__ = sorted(extras.offered("integrations"))


def __getattr__(name: str) -> object:
    home = extras.find_home("integrations", name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{nearest(name, __all__)}")
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
