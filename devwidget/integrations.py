"""INTEGRATIONS: trainers of other libraries, watched; each library is loaded when its name is asked for here."""

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
