"""Run a command of a process with virtual GPUs as Python would, on virtual GPUs as well."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from devwidget.cli import user_program
from devwidget.cli.inherited_gpus import begin_with_torch


def main(argv: Sequence[str] | None = None) -> None:
    """Run the rest of the command line: a script, `-m` and a module, or `-c` and code."""
    first, *args = sys.argv[1:] if argv is None else argv
    begin_with_torch()
    user_program.show_exceptions_of_threads()
    try:
        _load_program(first, args)()
    except Exception as error:
        # Frames of ours are no part of the program's traceback.
        user_program.show_exception(error)
        raise


def _load_program(first: str, args: Sequence[str]) -> user_program.Program:
    if first == "-c":
        return user_program.load_code(args[0], args[1:])
    if first == "-m":
        if not sys.flags.safe_path:
            sys.path[0] = os.getcwd()
        return user_program.load_module(args[0], args[1:])
    return user_program.load_script(first, args)
