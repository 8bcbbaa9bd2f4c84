"""IPython magics: `%devwidget` for the panel and virtual GPUs, `%%devtrace` for a cell."""

from __future__ import annotations

import ast
import os.path
import shlex
import sys
from collections.abc import Callable
from typing import Any

USAGE = """\
%devwidget model [batch-expression]    open the panel of a model
%devwidget simulate N [memory]         N virtual GPUs, such as: %devwidget simulate 2 16GiB
%devwidget simulate off                stop them
%devwidget simulate status             how many there are
%devwidget births on | off             remember where tensors are made, in every cell
%devwidget why                         why the last device or dtype exception was raised
%devwidget fix                         the fixes of the last trace or explanation, as a diff
%devwidget fix apply                   write them: into your files, with a backup, or as the text of the next cell
%%devtrace [model]                     run a cell, then say what moved and what went wrong"""

OFFER = "devwidget: `%devwidget why` names the tensor and the line"


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext devwidget`; loading twice changes nothing."""
    if _offer not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _offer)
    shell.register_magic_function(LineMagic(shell), magic_kind="line", magic_name="devwidget")
    shell.register_magic_function(CellMagic(shell), magic_kind="cell", magic_name="devtrace")


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext devwidget`: takes off the magics and the callbacks of open panels."""
    shell.magics_manager.magics["line"].pop("devwidget", None)
    shell.magics_manager.magics["cell"].pop("devtrace", None)
    if _offer in shell.events.callbacks["post_run_cell"]:
        shell.events.unregister("post_run_cell", _offer)
    _births_off(shell)
    refresh = sys.modules.get("devwidget.ui.refresh")  # only if a panel was ever opened: unloading must not load the screen
    if refresh is not None:
        refresh.stop(shell)


def _offer(result: Any) -> None:
    """One line below the traceback of a device or dtype exception; what IPython printed stays as it was."""
    from devwidget import api
    from devwidget.records.errors import DevwidgetError

    error = getattr(result, "error_in_exec", None)
    if error is not None and not isinstance(error, DevwidgetError) and api.is_about_placement(error):
        print(OFFER)


class LineMagic:
    """Open the panel of a model, or start, stop and show virtual GPUs; without arguments it prints its usage."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def __call__(self, line: str) -> Any:
        """Run one `%devwidget` line."""
        word, _, rest = line.strip().partition(" ")
        if not word or word in ("help", "?"):
            return print(USAGE)
        if word == "why" and not rest.strip():
            return _short_errors(self._why)
        if word == "fix" and rest.strip() in ("", "apply"):
            return _short_errors(lambda: self._fix(apply=bool(rest.strip())))
        if word == "simulate":
            return _short_errors(lambda: self._simulate(rest))
        if word == "births" and rest.strip() in ("on", "off", "status", ""):
            return self._births(rest.strip())
        return _short_errors(lambda: self._show(word, rest.strip()))

    def _show(self, name: str, batch: str) -> Any:
        from devwidget import api

        model = self.shell.ev(name)
        return api.show(model, batch_expression=batch) if batch else api.show(model)

    def _why(self) -> None:
        from devwidget import api

        print(api.explain())

    def _fix(self, *, apply: bool) -> None:
        from devwidget import api

        edits = api.edits_to_apply()
        if not edits:
            print("nothing was found that an edit can mend")
        for file, changes in edits.items():
            print("\n".join(edit.diff() for edit in changes))
            if apply and not os.path.exists(file):  # a cell
                self.shell.set_next_input(api.edited_text(file, changes), replace=False)
            elif apply:
                print(f"written; {api.write_edits(file, changes)} is as it was")

    def _births(self, word: str) -> None:
        from devwidget.api import background_births

        if word == "on":
            _births_on(self.shell)
            print(
                f"each call that makes a tensor takes {background_births.cost_ns() / 1000:.1f} us longer, measured here and now"
            )
            print("compiled functions run eagerly until `%devwidget births off`")
        if word == "off":
            _births_off(self.shell)
        print(f"births: {'off' if background_births.births() is None else 'on'}")

    def _simulate(self, line: str) -> None:
        from devwidget import api
        from devwidget.records.errors import SimulationError

        words = shlex.split(line)
        active = api.simulator.active()  # type: ignore[attr-defined]  # not public by name, and magics import api alone
        if words == ["off"]:
            if active is not None:
                active.stop()
        elif words and words != ["status"]:
            if not words[0].lstrip("-").isdigit() or len(words) > 2:
                raise SimulationError(f"cannot read `simulate {line}`", instead="%devwidget simulate 2 16GiB")
            api.simulate(int(words[0]), words[1] if len(words) == 2 else "16GiB").start()
        print(f"virtual GPUs: {api.virtual_gpus() or 'off'}")


class CellMagic:
    """Run a cell as it would run without this line, then print what moved and what went wrong."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def __call__(self, line: str, cell: str) -> Any:
        """Run one `%%devtrace` cell; its last expression is the cell's result, its exception goes its way."""
        from devwidget import api

        recording = api.record(heal=False)
        try:
            with recording:
                if line.strip():
                    recording.attach(self.shell.ev(line.strip()), name=line.strip())
                return _run(self.shell, cell)
        finally:
            print(recording.trace)


def _births_on(shell: Any) -> None:
    """Watch this cell from here, and those that follow."""
    from devwidget.api import background_births

    if _resume not in shell.events.callbacks["pre_run_cell"]:
        shell.events.register("pre_run_cell", _resume)
        shell.events.register("post_run_cell", _pause)
    background_births.begin()


def _births_off(shell: Any) -> None:
    if _resume in shell.events.callbacks["pre_run_cell"]:
        from devwidget.api import background_births

        shell.events.unregister("pre_run_cell", _resume)
        shell.events.unregister("post_run_cell", _pause)
        background_births.end()


def _resume(info: Any) -> None:
    from devwidget.api import background_births

    background_births.begin()


def _pause(result: Any) -> None:
    from devwidget.api import background_births

    background_births.pause()


def _run(shell: Any, cell: str) -> Any:
    """Execute a cell in the user's namespace; the value of its last expression."""
    source = shell.transform_cell("\n" + cell)  # the magic's own line is line 1 of the notebook's cell
    file = shell.compile.cache(source, shell.execution_count, raw_code=cell)
    tree = ast.parse(source, file)
    silent = source.rstrip().endswith(";")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = ast.Expression(last.value) if isinstance(last, ast.Expr) else None
    exec(compile(tree, file, "exec"), shell.user_ns)
    result = eval(compile(value, file, "eval"), shell.user_ns) if value is not None else None
    return None if silent else result


def _short_errors(command: Callable[[], Any]) -> Any:
    """Our own errors without a traceback: they say what would have been right."""
    from IPython.core.error import UsageError

    from devwidget.records.errors import DevwidgetError

    try:
        return command()
    except DevwidgetError as error:
        raise UsageError(str(error)) from None
