"""IPython magics: `%devwidget` for the panel, explanations, fixes and virtual GPUs; `%%devtrace` for a cell."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from devwidget import extras
from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.records.site import cell_label

if TYPE_CHECKING:
    from devwidget.records.finding import Edit

COMMANDS = ("why", "fix", "memory", "simulate", "births", "errors", *extras.offered("magics"), "help")
HELP = "%devwidget help"
_CLASS = re.compile(r"^\s*class \w", re.MULTILINE)
_applied: set[Edit] = set()
"""Edits of cells that `%devwidget fix apply` has offered as the next cell."""
_last_error = 0
"""The id of the last exception of a cell."""


def split_line(line: str) -> tuple[str, str]:
    """Split a line into the shortest prefix that is an expression, and the rest: `Net(2, 3) batch`."""
    words = line.split(" ")
    for end in range(1, len(words)):
        with contextlib.suppress(SyntaxError):
            compile(" ".join(words[:end]), "<model>", "eval")
            return " ".join(words[:end]), " ".join(words[end:]).strip()
    return line, ""


def evaluate_model(shell: Any, expression: str) -> Any:
    """Evaluate the user's model expression.

    Raises:
        DevwidgetError: If the expression is invalid or raises.
    """
    from devwidget import api
    from devwidget.records.errors import DevwidgetError, error_text, nearest
    from devwidget.records.schema.message import Message

    try:
        return shell.ev(expression)
    except SyntaxError as error:
        raise DevwidgetError(
            Message("`{expression}` is not an expression: {problem}", expression=expression, problem=error.msg),
            instead=find_example() or HELP,
        ) from None
    except Exception as error:
        if isinstance(error, NameError) and expression.isidentifier():
            command, variable = nearest(expression, COMMANDS), nearest(expression, api.model_names())
            facts = {"expression": expression, "hint": command or variable}
            what = Message("`{expression}` is neither a variable nor a command{hint}", **facts)
            raise DevwidgetError(what, instead=HELP if command else find_example() or HELP) from None
        raise DevwidgetError(
            Message("`{expression}` raised {error}", expression=expression, error=error_text(error)), instead=HELP
        ) from None


def find_example() -> str:
    """Return a line that works in this notebook, "" without a model."""
    if "torch" not in sys.modules:  # then there is none, and help comes at once
        return ""
    from devwidget import api

    return next((f"%devwidget {name}" for name in reversed(api.model_names())), "")


def refuse_other(words: list[str], known: list[str], command: str) -> None:
    """Refuse words that a command does not have.

    Raises:
        DevwidgetError: Names the words that it has.
    """
    from devwidget.records.errors import DevwidgetError
    from devwidget.records.schema.message import Message

    if words and (len(words) > 1 or words[0] not in known):
        right = " | ".join(f"%devwidget {each}" for each in (command, *(f"{command} {word}" for word in known)))
        raise DevwidgetError(
            Message("`{command}` has no option `{words}`", command=command, words=" ".join(words)), instead=right
        )


def in_one_line(command: Callable[[], Any]) -> Any:
    """Call `command`, and report a mistake in a magic's line without a traceback."""
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


_LINES = {
    "%devwidget MODEL [BATCH]": Message(
        "open the panel of a model; MODEL and BATCH are variables or expressions such as next(iter(loader))"
    ),
    "%devwidget why": Message("explain the last device or dtype exception"),
    "%devwidget fix": Message("show the fixes of the last trace or explanation as a diff"),
    "%devwidget fix apply": Message("write the fixes to your cells and files, with a backup of each file"),
    "%devwidget memory": Message("show which variables keep memory of each device in use, and what frees it"),
    "%devwidget simulate N [MEMORY]": Message("start N virtual GPUs, such as: %devwidget simulate 2 16GiB"),
    "%devwidget simulate off": Message("stop the virtual GPUs; `%devwidget simulate` alone shows them"),
    "%devwidget errors on | off": Message(
        "show the answer below each exception about devices, dtypes or memory; on by default"
    ),
    "%devwidget births on | off": Message(
        "record the line that creates each tensor, for every call of a cell or for none; the default is the first 10,000 calls"
    ),
    "%%devtrace [MODEL]": Message("as the first line of a cell: run the cell, then report transfers and findings"),
}
_SUMMARY = Message("Open the panel of a model, explain an exception, apply fixes, or start virtual GPUs.")
_SIMULATE = "%devwidget simulate 2 16GiB"


def usage_lines() -> str:
    """Return the help: each line and what it does."""
    lines = dict(_LINES)
    for word in extras.offered("magics"):
        lines |= extras.need_home("magics", word, word).LINES
    return "\n".join(f"{line:<36}{said(words)}" for line, words in lines.items())


def load_ipython_extension(shell: Any) -> None:
    """Load the magics: `%load_ext devwidget`. Loading twice has no effect."""
    if _fold_frames not in shell.events.callbacks["pre_run_cell"]:
        _watch_cells(shell)  # first: an explanation is no part of the cell
        shell.events.register("pre_run_cell", _fold_frames)
        _switch_answers(shell, is_on=True)
    shell.register_magic_function(LineMagic(shell), magic_kind="line", magic_name="devwidget")
    shell.register_magic_function(CellMagic(shell), magic_kind="cell", magic_name="devtrace")


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics and the callbacks of open panels: `%unload_ext devwidget`."""
    ours = shell.magics_manager.magics["line"].pop("devwidget", None)
    if ours is not None:
        ours.end()
    shell.magics_manager.magics["cell"].pop("devtrace", None)
    _switch_answers(shell, is_on=False)
    if _fold_frames in shell.events.callbacks["pre_run_cell"]:
        shell.events.unregister("pre_run_cell", _fold_frames)
    if "devwidget.api" in sys.modules:
        _folded_frames().unfold(shell, _fold_frames)
    _births_off(shell)
    refresh = sys.modules.get("devwidget.panel.refresh")  # only if a panel was ever opened: unloading must not load the screen
    if refresh is not None:
        refresh.stop_watching(shell)


def _switch_answers(shell: Any, *, is_on: bool) -> None:
    is_registered = _answer_error in shell.events.callbacks["post_run_cell"]
    if is_on and not is_registered:
        shell.events.register("post_run_cell", _answer_error)
    if is_registered and not is_on:
        shell.events.unregister("post_run_cell", _answer_error)


def _answer_error(result: Any) -> None:
    """Show the answer to a device, dtype or memory exception below its traceback, once for each exception.

    The exception is explained first, so that `%devwidget fix` knows its edits.
    """
    global _last_error
    error = getattr(result, "error_in_exec", None)
    # The shell keeps the last exception, so no other one has its id meanwhile.
    if error is None or id(error) == _last_error or "torch" not in sys.modules:
        return
    from devwidget import api
    from devwidget.records.errors import DevwidgetError

    _last_error = id(error)
    if isinstance(error, DevwidgetError):
        return
    # Nothing more comes below an exception if the answer fails: `%devwidget why` shows how.
    with contextlib.suppress(Exception):
        api.answer_error(error, getattr(getattr(result, "info", None), "cell_id", None) or "")


def _fold_frames(info: Any) -> None:
    """Hide frames of devwidget in the tracebacks of cells."""
    from devwidget.records.site import find_shell

    shell = find_shell()
    if shell is not None and "devwidget.api" in sys.modules:
        _folded_frames().fold(shell, _fold_frames)


def _folded_frames() -> Any:
    from devwidget.api import folded_frames

    return folded_frames


class LineMagic:
    """The magic `%devwidget`."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._of_extras: dict[str, Any] = {}
        self._allocated: dict[Any, int] = {}
        self.__doc__ = f"{said(_SUMMARY)}\n\n{usage_lines()}"  # what `%devwidget?` shows

    def __call__(self, line: str) -> Any:
        """Run one `%devwidget` line."""
        word, _, rest = line.strip().partition(" ")
        commands = {
            "why": self._print_explanation,
            "fix": self._print_fixes,
            "memory": self._print_memory,
            "simulate": self._switch_simulation,
            "births": self._switch_births,
            "errors": self._switch_errors,
        }
        if word in extras.offered("magics"):
            return in_one_line(lambda: self._magic_of_extra(word).run(rest.strip()))
        if not word or word in ("help", "?", "--help", "-h"):
            return self._print_help()
        if word in commands:
            return in_one_line(lambda: commands[word](rest.split()))
        return in_one_line(lambda: self._show_panel(line.strip()))

    def _magic_of_extra(self, word: str) -> Any:
        if word not in self._of_extras:
            self._of_extras[word] = extras.need_home("magics", word, f"%devwidget {word}").Magic(self.shell)
        return self._of_extras[word]

    def end(self) -> None:
        """Stop what runs across cells, such as a watched run."""
        for magic in self._of_extras.values():
            magic.end()

    def _print_help(self) -> None:
        print(usage_lines())
        if shown := find_example():
            print("\n" + say("in this notebook: {line}", line=shown))

    def _show_panel(self, line: str) -> Any:
        from devwidget import api

        expression, batch = split_line(line)
        model = evaluate_model(self.shell, expression)
        if batch:
            return api.show(model, batch_expression=batch)
        return api.show(model)

    def _print_explanation(self, words: list[str]) -> None:
        from devwidget import api

        refuse_other(words, [], "why")
        print(api.explain())

    def _print_fixes(self, words: list[str]) -> None:
        from devwidget import api

        refuse_other(words, ["apply"], "fix")
        apply, edits = bool(words), api.edits_to_apply()
        if edits is None:
            print(say("no trace or explanation yet: press Trace batch, or run devwidget.trace(model, batch)"))
            return
        if not edits:
            print(say("no finding has a fix to write"))
            return
        if any(edit in _applied for changes in edits.values() for edit in changes):
            print(say("this fix was written before; objects that are older still run the old code: create them again"))
        if not apply:
            print("\n".join(edit.diff() for changes in edits.values() for edit in changes))
            return
        api.refuse_edits(edits)
        self._write_cells({file: changes for file, changes in edits.items() if cell_label(file)})
        for file, changes in edits.items():
            if not cell_label(file):
                print("\n".join(edit.diff() for edit in changes))
                print(say("{file} was written; the original is in {backup}", file=file, backup=api.write_edits(file, changes)))
                print(say("reload the module or restart the kernel, then create the model again"))

    def _write_cells(self, edits: dict[str, list[Edit]]) -> None:
        """Edit the cells in the page; where that is not possible, offer the edited cell as the next one."""
        from devwidget import api

        every = [edit for changes in edits.values() for edit in changes]
        if not every or api.apply_in_page(every):
            return
        for file, changes in edits.items():
            _applied.update(changes)
            print("\n".join(edit.diff() for edit in changes))
            source = api.apply_to_text(file, changes)
            self.shell.set_next_input(source, replace=False)
            print(_next_steps(cell_label(file), source))

    def _print_memory(self, words: list[str]) -> None:
        from devwidget import api

        refuse_other(words, [], "memory")
        held = api.memory_holders()
        print(held)
        now = {each.device: each.allocated for each in held.devices}
        for device, before in self._allocated.items():
            freed = before - now.get(device, 0)
            if freed > 0:
                facts = {"device": device, "size": api.format_bytes(freed)}
                print(say("{device}: {size} freed since the last `%devwidget memory`", **facts))
        self._allocated = now

    def _switch_births(self, words: list[str]) -> None:
        from devwidget.api import background_births

        refuse_other(words, ["on", "off", "status"], "births")
        if words == ["on"]:
            _watch_cells(self.shell)
            background_births.begin_watching()
            print(say("each call that creates a tensor takes 5 to 25 us longer"))
            print(say("compiled functions run eagerly until `%devwidget births off`"))
        if words == ["off"]:
            _births_off(self.shell)
        print(_describe_births(self.shell))

    def _switch_errors(self, words: list[str]) -> None:
        refuse_other(words, ["on", "off", "status"], "errors")
        if words in (["on"], ["off"]):
            _switch_answers(self.shell, is_on=words == ["on"])
        is_on = _answer_error in self.shell.events.callbacks["post_run_cell"]
        print(say("errors: on") if is_on else say("errors: off"))

    def _switch_simulation(self, words: list[str]) -> None:
        from devwidget import api
        from devwidget.records.errors import SimulationError

        active = api.gpus.active()
        if words == ["off"]:
            if active is not None:
                active.stop()
        elif words and words != ["status"]:
            words = [word for word in words if word not in ("--gpus", "--memory")]  # as the command line has it
            if not words or not words[0].lstrip("-").isdigit() or len(words) > 2:
                raise SimulationError(Message("cannot parse `simulate {words}`", words=" ".join(words)), instead=_SIMULATE)
            try:
                api.simulate(int(words[0]), words[1].strip("\"'") if len(words) == 2 else "16GiB").start()
            except SimulationError as error:
                in_python = error.instead.startswith("devwidget.")
                raise SimulationError(error.what, why=error.why, instead=_SIMULATE if in_python else error.instead) from None
        running = api.virtual_gpus()
        print(say("virtual GPUs: {gpus}", gpus=running) if running else say("virtual GPUs: off"))


class CellMagic:
    """The magic `%%devtrace`: run a cell unchanged, then print its transfers and findings.

    After `%%devtrace MODEL` modules have their names in that model.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def __call__(self, line: str, cell: str) -> Any:
        """Run one `%%devtrace` cell and return the value of its last expression. Exceptions propagate."""
        from devwidget import api

        name, recording = line.strip(), api.record(heal=False)
        if name in ("--help", "-h"):
            print(usage_lines())
            return None
        run = in_one_line(lambda: _compile_cell(self.shell, cell))
        if name:
            in_one_line(lambda: recording.attach(evaluate_model(self.shell, name), name=name))
        try:
            with recording:
                return run()
        finally:
            trace = recording.trace
            print(dataclasses.replace(trace, error=trace.error.partition(":")[0]))  # IPython shows the exception in full


def _watch_cells(shell: Any) -> None:
    """Record creation lines from the next cell on; by default only in its first calls."""
    if _begin_births not in shell.events.callbacks["pre_run_cell"]:
        shell.events.register("pre_run_cell", _begin_births)
        shell.events.register("post_run_cell", _pause_births)


def _births_off(shell: Any) -> None:
    if _begin_births in shell.events.callbacks["pre_run_cell"]:
        from devwidget.api import background_births

        shell.events.unregister("pre_run_cell", _begin_births)
        shell.events.unregister("post_run_cell", _pause_births)
        background_births.end_watching()


def _begin_births(info: Any) -> None:
    from devwidget.api import background_births

    background_births.begin_cell()


def _pause_births(result: Any) -> None:
    from devwidget.api import background_births

    background_births.pause_watching()


def _describe_births(shell: Any) -> str:
    from devwidget.api import background_births

    if _begin_births not in shell.events.callbacks["pre_run_cell"]:
        return say("births: off")
    match background_births.which_watched():
        case background_births.Watching.EVERY:
            return say("births: on")
        case background_births.Watching.COMPILED:
            return say("births: off, because a function is compiled; `%devwidget births on` makes it run eagerly")
        case _:
            return say("births: on for the first {count} calls of each cell", count=f"{background_births.MOST_CALLS:,}")


def _compile_cell(shell: Any, cell: str) -> Callable[[], Any]:
    """Return a function that executes a cell in the user's namespace and returns the value of its last expression."""
    source = "\n" + shell.transform_cell(cell)  # the magic's own line is line 1 of the notebook's cell
    number = len(shell.history_manager.input_hist_parsed) - 1  # of this cell; `execution_count` may be the next one's already
    file = shell.compile.cache(source, number, raw_code=cell)
    tree = ast.parse(source, file)
    silent = source.rstrip().endswith(";")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    statements = compile(tree, file, "exec")
    if isinstance(last, ast.Expr):
        value = compile(ast.Expression(last.value), file, "eval")
    else:
        value = None

    def run_cell() -> Any:
        exec(statements, shell.user_ns)
        if value is not None:
            result = eval(value, shell.user_ns)
        else:
            result = None
        if silent:
            return None
        return result

    return run_cell


def _next_steps(cell: str, source: str) -> str:
    """Return what to do with the corrected cell. Objects of a class keep its old code."""
    if _CLASS.search(source):
        return say("the next cell is {cell} with the fix: run it, then create the model again", cell=cell)
    return say("the next cell is {cell} with the fix: run it", cell=cell)
