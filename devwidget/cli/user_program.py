"""Run a script or module as Python does: `__main__`, `sys.argv`, exit status, tracebacks without frames of devwidget."""

from __future__ import annotations

import builtins
import importlib.util
import linecache
import os
import pkgutil
import shutil
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, TracebackType
from typing import TypeGuard

from devwidget.records.errors import DevwidgetError

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_OURS = tuple(os.path.join(_PACKAGE, folder, "") for folder in ("cli", "capture", "gpus"))
_OPERATORS, _MODULES = os.path.join("torch", "_ops.py"), os.path.join("torch", "nn", "modules", "module.py")
_PLAIN = "return forward_call(*args, **kwargs)"
"""The code with which a module without hooks calls `forward`."""


def remove_our_frames(error: BaseException, known: frozenset[int] = frozenset()) -> None:
    """Remove the frames of devwidget from an exception, its causes and the members of a group."""
    if id(error) in known:
        return
    error.__traceback__ = _join_entries(_kept_entries(error.__traceback__))
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for other in (error.__cause__, error.__context__, *members):
        if other is not None:
            remove_our_frames(other, known | {id(error)})


def _kept_entries(trace: TracebackType | None) -> list[TracebackType]:
    """Yield the entries of the program, with torch's own frames unchanged."""
    kept: list[TracebackType] = []
    under_us = False
    for each in _iterate_entries(trace):
        code = each.tb_frame.f_code
        if code.co_filename.startswith(_OURS):
            if kept and kept[-1].tb_frame.f_code.co_name == "handle_torch_function":
                del kept[-2:]  # the function that asked us is called once more
            under_us = True
        elif under_us and code.co_filename.endswith(_OPERATORS):
            continue
        elif kept and code.co_name == "inner" and code.co_filename.endswith(_MODULES):
            kept[-1] = _without_hooks(kept[-1])
        else:
            kept.append(each)
            under_us = False
    return kept


def _iterate_entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _join_entries(entries: list[TracebackType]) -> TracebackType | None:
    # an entry knows the next one, so the chain is built anew from its end; the old entries stay as they are for who holds them
    trace: TracebackType | None = None
    for each in reversed(entries):
        trace = TracebackType(trace, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return trace


def _without_hooks(entry: TracebackType) -> TracebackType:
    """Return the entry of a module's call as if the module had no hooks."""
    offset, line = next(_plain_calls(entry.tb_frame.f_code), (entry.tb_lasti, entry.tb_lineno))
    return TracebackType(None, entry.tb_frame, offset, line)


def _plain_calls(code: CodeType) -> Iterator[tuple[int, int]]:
    """Return offset and line of the instructions that make the whole call."""
    for index, (line, last, first_column, last_column) in enumerate(code.co_positions()):
        text = linecache.getline(code.co_filename, line or 0)
        span = text[first_column or 0 : last_column or 0]
        if line is not None and line == last and text.strip() == _PLAIN and f"return {span}" == _PLAIN:
            yield 2 * index, line


Program = Callable[[], None]


def load_script(file: str, args: Sequence[str]) -> Program:
    """Return what `python file args` runs, which becomes `__main__`. Folders and archives with a `__main__` work too.

    Raises:
        DevwidgetError: If there is no such file.
    """
    if not os.path.exists(file) and os.path.dirname(file) == "":
        file = shutil.which(file) or file  # such as `torchrun`
    path = os.path.abspath(file)
    importer = pkgutil.get_importer(path)
    if importer is not None:
        spec = importer.find_spec("__main__")
    else:
        spec = None
    if spec is not None and _has_code(spec.loader):
        if sys.flags.safe_path:
            sys.path.insert(0, path)
        else:
            sys.path[0] = path
        return _load_spec(spec, spec.loader, [file, *args])
    if not os.path.isfile(path):
        raise DevwidgetError(f"there is no script {file}", instead="python -m devwidget run train.py [arguments]")
    loader = SourceFileLoader("__main__", path)
    main = _become_main(path, [file, *args], __loader__=loader)
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    # Not the loader's `get_code`, which would leave a file in `__pycache__`.
    return lambda: exec(compile(loader.get_data(path), path, "exec", dont_inherit=True), vars(main))


def load_code(text: str, args: Sequence[str]) -> Program:
    """Return what `python -c text args` runs, which becomes `__main__`."""
    main = _become_main("<string>", ["-c", *args])
    del main.__file__
    return lambda: exec(compile(text, "<string>", "exec", dont_inherit=True), vars(main))


def load_module(name: str, args: Sequence[str]) -> Program:
    """Return what `python -m name args` runs, which becomes `__main__`.

    Raises:
        DevwidgetError: If there is no such module, or it cannot be run.
    """
    spec = _find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find_spec(f"{name}.__main__")
    if spec is None or spec.origin is None or not _has_code(spec.loader):
        raise DevwidgetError(f"there is no module {name} that can be run", instead="python -m devwidget run -m package.train")
    return _load_spec(spec, spec.loader, [spec.origin, *args])


def _has_code(loader: object) -> TypeGuard[InspectLoader]:
    """Return whether `runpy` accepts a loader; that of archives derives from no abstract class."""
    return hasattr(loader, "get_code")


def _load_spec(spec: ModuleSpec, loader: InspectLoader, argv: list[str]) -> Program:
    """Return the code of a module, set up as `__main__`."""
    fields = {"__loader__": loader, "__spec__": spec, "__package__": spec.parent, "__cached__": spec.cached}
    main = _become_main(str(spec.origin), argv, **fields)

    def run_module() -> None:
        code = loader.get_code(spec.name)
        if code is not None:
            exec(code, vars(main))

    return run_module


def _find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module. Packages around it are imported, and their exceptions propagate."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        return None


def _become_main(path: str, argv: list[str], **fields: object) -> types.ModuleType:
    """Create a `__main__` with the attributes of Python's own; multiprocessing finds the file by it."""
    main = types.ModuleType("__main__")
    vars(main).update({"__builtins__": builtins, "__file__": path, "__cached__": None, "__annotations__": {}, **fields})
    sys.modules["__main__"] = main
    sys.argv = argv
    return main


def flush_output() -> None:
    """Flush the program's output before a report; its `sys.stdout` may be closed or missing."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except Exception:  # the stream is the program's own, and what ends with it is not seen in Python either
        return


def report_text(text: str) -> None:
    """Print on the error stream, or on Python's original one if the program closed or removed it."""
    for stream in (sys.stderr, sys.__stderr__):
        try:
            if stream is not None:
                print(text, file=stream, flush=True)
                return
        except BrokenPipeError:
            raise
        except Exception:  # as above: then the next one
            continue


def show_exception(error: BaseException) -> None:
    """Show an uncaught exception as Python does, through the hook that the program may have set.

    The exception can then be raised again to set Python's exit status without being shown twice.
    """
    remove_our_frames(error)
    sys.excepthook(type(error), error, error.__traceback__)
    sys.excepthook = lambda *_: None


def show_exceptions_of_threads() -> None:
    """Show exceptions of threads as the program's own, unless it sets a hook."""
    show = threading.excepthook

    def show_of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            remove_our_frames(args.exc_value)
            args = threading.ExceptHookArgs((args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread))
        show(args)

    threading.excepthook = show_of_thread
