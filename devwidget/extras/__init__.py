"""EXTRAS: each folder here is one. None is needed: delete a folder, and what it offers is gone.

An extra says in its `extra.py` what it offers, as names of modules. The core looks there, and imports a module when somebody
asks for what stands in it. No other module outside this folder names one inside.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Extra:
    """What one extra offers. Modules are named from its folder: `"records"` is `devwidget.extras.<name>.records`.

    Attributes:
        names: public name of `devwidget` -> the module where it stands.
        records: kind of saved record -> the module that registers it, with its checks.
        files: modules that recognise files of other tools, by `@opens`.
        words: modules that teach records to print, to become data frames and pages, by `@presents`.
        rules: modules of rules, by `@rule` or `@rule_over_ranks`.
        commands: modules of command-line commands, by `@command`.
        panel: modules of what the panel shows, by `@tab` and `@opens_panel`.
        recorder: modules that take part in a recording, by `@joins_recording`.
        magics: word of `%devwidget` -> the module of the function that runs it.
        gpus: modules that take part in virtual GPUs.
        after: extras that this one may import.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    panel: tuple[str, ...] = ()
    recorder: tuple[str, ...] = ()
    magics: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


SLOTS = tuple(each.name for each in dataclasses.fields(Extra) if each.name != "after")


@functools.cache
def extras() -> Mapping[str, Extra]:
    """Find the extras whose folders are here, by name, in a zip file too."""
    names = sorted(each.name for each in pkgutil.iter_modules(__path__) if each.ispkg)
    return {name: importlib.import_module(f"{__name__}.{name}.extra").EXTRA for name in names}


@functools.cache
def offered(slot: str) -> Mapping[str, str]:
    """Map each key of a slot (`names`, `records`, `magics`) to the full name of its module."""
    return {
        key: f"{__name__}.{name}.{module}" for name, extra in extras().items() for key, module in getattr(extra, slot).items()
    }


def find_home(slot: str, key: str) -> ModuleType | None:
    """Import the module that offers a key; None if no extra does."""
    module = offered(slot).get(key)
    return None if module is None else importlib.import_module(module)


@functools.cache
def load_all(slot: str) -> tuple[ModuleType, ...]:
    """Import all modules of a slot, each once, in the order of the names of their extras."""
    return tuple(importlib.import_module(module) for module in _modules_of(slot))


def _modules_of(slot: str) -> Iterator[str]:
    for name, extra in extras().items():
        for module in getattr(extra, slot):
            yield f"{__name__}.{name}.{module}"
