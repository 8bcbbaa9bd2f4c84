"""EXTRAS: each folder here is one. None is needed: delete a folder, and what it offers is gone.

An extra says in its `extra.py` what it offers, as names of modules. The core looks there, and imports a module when you
ask for what it defines. No other module outside this folder names one inside.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType

from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message


@dataclass(frozen=True, slots=True)
class Extra:
    """What one extra offers. Modules are named from its folder: `"records.run"` is `devwidget.extras.<name>.records.run`.

    Attributes:
        names: public name of `devwidget` -> the module that defines it.
        records: kind of a saved record -> the module that registers its checks.
        files: modules that open files of other tools: `read_content(name, content, size)`, None for others.
        folders: modules that open folders of files: `read_folder(folder)`, None for others.
        words: modules that teach records to print, to become data frames and pages, by `@presents` and `frame`.
        formats: format in which a trace can be written, such as `sarif` -> the module of `WRITERS`.
        commands: modules that add to the command line, by `add_commands(line)`.
        integrations: name of `devwidget.integrations` -> the module that defines it.
        magics: word of `%devwidget` -> the module of `Magic`.
        recorder: argument of `devwidget.record` -> the module of `join_recording`.
        rules: argument of `devwidget.trace` and `devwidget.record` -> the module of a `RULE` that is checked only
            then, and of `verify_edits` and `verify_script`, which run its edits.
        panel: modules that add to the panel, by `@section` and `@opens_panel` of `panel.sections`.
        observers: modules of an `OBSERVER` of each recording, made of its log and its tracker.
        gpus: modules that take part in virtual GPUs.
        after: extras that this one imports; without one of them it is not offered.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    formats: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    integrations: Mapping[str, str] = field(default_factory=dict)
    magics: Mapping[str, str] = field(default_factory=dict)
    recorder: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    panel: tuple[str, ...] = ()
    observers: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@functools.cache
def extras() -> Mapping[str, Extra]:
    """Find the extras whose folders are here, by name, in a zip file too; one that needs another goes with that."""
    names = sorted(each.name for each in pkgutil.iter_modules(__path__) if each.ispkg)
    found = {name: importlib.import_module(f"{__name__}.{name}.extra").EXTRA for name in names}
    return {name: extra for name, extra in found.items() if found.keys() >= set(extra.after)}


@functools.cache
def offered(slot: str) -> Mapping[str, str]:
    """Map each key of a slot, such as a public name, to the full name of its module."""
    found: dict[str, str] = {}
    for name, extra in extras().items():
        found |= {key: f"{__name__}.{name}.{module}" for key, module in getattr(extra, slot).items()}
    return found


def find_home(slot: str, key: str) -> ModuleType | None:
    """Import the module that offers a key; return None if no extra does."""
    module = offered(slot).get(key)
    if module is None:
        return None
    return importlib.import_module(module)


def need_home(slot: str, key: str, what: str) -> ModuleType:
    """Import the module that offers a key, for what the user has asked for, such as `devwidget.record(path=...)`.

    Raises:
        DevwidgetError: if no extra does.
    """
    home = find_home(slot, key)
    if home is None:
        raise lacks_extra(what)
    return home


def lacks_extra(what: str) -> DevwidgetError:
    """Make the error for what no extra of this installation offers."""
    why = Message("its folder in devwidget/extras is missing")
    return DevwidgetError(Message("`{what}` is not in this installation", what=what), why=why)


@functools.cache
def load_all(slot: str) -> tuple[ModuleType, ...]:
    """Import all modules of a slot, each once, in the order of the names of their extras."""
    return tuple(importlib.import_module(module) for module in _modules_of(slot))


def _modules_of(slot: str) -> Iterator[str]:
    for name, extra in extras().items():
        for module in getattr(extra, slot):
            yield f"{__name__}.{name}.{module}"
