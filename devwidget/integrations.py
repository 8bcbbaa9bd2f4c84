"""INTEGRATIONS: trainers of other libraries, watched; each library is loaded when its name is asked for here."""

from __future__ import annotations

from devwidget.extras.watch import integrations


def __getattr__(name: str) -> object:
    return getattr(integrations, name)


def __dir__() -> list[str]:
    return dir(integrations)
