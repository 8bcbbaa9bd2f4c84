"""Running rules, over a trace or over ranks: folders are lists of rules, a crash of one is shown, the worst is told first."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import TypeVar

from devwidget.records.errors import error_text
from devwidget.records.finding import Finding, Severity
from devwidget.records.schema.message import Message

Judged = TypeVar("Judged")

_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


def import_rules(folder: str) -> None:
    """Import every module of a folder, which registers its rules."""
    package = importlib.import_module(folder)
    for module in pkgutil.iter_modules(package.__path__, f"{folder}."):
        importlib.import_module(module.name)


def asked(kind: str, check: Callable[[Judged], Iterable[Finding]], judged: Judged) -> tuple[list[Finding], Message | None]:
    """What one rule found, and why it could not be asked."""
    try:
        return list(check(judged)), None
    except Exception as error:  # one broken rule must not hide what the others found
        failed = Message("the rule itself failed with {error}", error=error_text(error))
        return [], Message("{kind}: {reason}", kind=kind, reason=failed)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors, then warnings, then hints."""
    return tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity]))
