"""What stands on the line of a magic: an expression, a batch, words of a command, or a mistake, which is one line too."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

COMMANDS = ("why", "fix", "simulate", "births", "help")
HELP = "%devwidget help"


def parted(line: str) -> tuple[str, str]:
    """`Net(2, 3) batch` -> the shortest beginning that is an expression, and the rest."""
    words = line.split(" ")
    for end in range(1, len(words)):
        with contextlib.suppress(SyntaxError):
            compile(" ".join(words[:end]), "<model>", "eval")
            return " ".join(words[:end]), " ".join(words[end:]).strip()
    return line, ""


def evaluated(shell: Any, expression: str) -> Any:
    """The user's model. What they wrote may raise anything, and it is all on this one line.

    Raises:
        DevwidgetError: if it does.
    """
    from devwidget import api
    from devwidget.records.errors import DevwidgetError, error_text, nearest

    try:
        return shell.ev(expression)
    except SyntaxError as error:
        raise DevwidgetError(f"`{expression}` is no expression: {error.msg}", instead=example() or HELP) from None
    except Exception as error:
        if isinstance(error, NameError) and expression.isidentifier():
            command, variable = nearest(expression, COMMANDS), nearest(expression, api.model_names())
            what = f"`{expression}` is neither a variable nor a command{command or variable}"
            raise DevwidgetError(what, instead=HELP if command else example() or HELP) from None
        raise DevwidgetError(f"`{expression}` raised {error_text(error)}", instead=HELP) from None


def example() -> str:
    """A line that works here, "" where there is no model."""
    if "torch" not in sys.modules:  # then there is none, and help comes at once
        return ""
    from devwidget import api

    return next((f"%devwidget {name}" for name in reversed(api.model_names())), "")


def refuse_other(words: list[str], known: list[str], command: str) -> None:
    """Refuse words that a command does not know.

    Raises:
        DevwidgetError: with those that it does.
    """
    from devwidget.records.errors import DevwidgetError

    if words and (len(words) > 1 or words[0] not in known):
        right = " | ".join(f"%devwidget {each}" for each in (command, *(f"{command} {word}" for word in known)))
        raise DevwidgetError(f"`{command}` does not know `{' '.join(words)}`", instead=right)


def in_one_line(command: Callable[[], Any]) -> Any:
    """Mistakes in a magic's line without a traceback: what is wrong, and a line that works."""
    from IPython.core.error import UsageError

    from devwidget.records.errors import DevwidgetError

    try:
        return command()
    except SyntaxError as error:
        raise UsageError(f"{error.msg}, line {error.lineno}: {(error.text or '').strip()}") from None
    except DevwidgetError as error:
        parts = (error.what, error.why and f"({error.why})", error.instead and f"-> {error.instead}")
        raise UsageError(" ".join(" ".join(filter(None, parts)).split())) from None
