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
    from devwidget.records.schema.message import Message

    try:
        return shell.ev(expression)
    except SyntaxError as error:
        raise DevwidgetError(
            Message("`{expression}` is no expression: {problem}", expression=expression, problem=error.msg),
            instead=example() or HELP,
        ) from None
    except Exception as error:
        if isinstance(error, NameError) and expression.isidentifier():
            command, variable = nearest(expression, COMMANDS), nearest(expression, api.model_names())
            facts = {"expression": expression, "hint": command or variable}
            what = Message("`{expression}` is neither a variable nor a command{hint}", **facts)
            raise DevwidgetError(what, instead=HELP if command else example() or HELP) from None
        raise DevwidgetError(
            Message("`{expression}` raised {error}", expression=expression, error=error_text(error)), instead=HELP
        ) from None


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
    from devwidget.records.schema.message import Message

    if words and (len(words) > 1 or words[0] not in known):
        right = " | ".join(f"%devwidget {each}" for each in (command, *(f"{command} {word}" for word in known)))
        raise DevwidgetError(
            Message("`{command}` does not know `{words}`", command=command, words=" ".join(words)), instead=right
        )


def in_one_line(command: Callable[[], Any]) -> Any:
    """Mistakes in a magic's line without a traceback: what is wrong, and a line that works."""
    from IPython.core.error import UsageError

    from devwidget.language.speaking import said, say
    from devwidget.records.errors import DevwidgetError

    try:
        return command()
    except SyntaxError as error:
        facts = {"problem": error.msg, "line": error.lineno, "source": (error.text or "").strip()}
        raise UsageError(say("{problem}, line {line}: {source}", **facts)) from None
    except DevwidgetError as error:
        what, why, instead = map(said, (error.what, error.why, error.instead))
        parts = (what, why and f"({why})", instead and f"-> {instead}")
        raise UsageError(" ".join(" ".join(filter(None, parts)).split())) from None
