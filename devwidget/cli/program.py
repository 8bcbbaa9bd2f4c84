"""A script or module as Python itself runs it: `__main__`, `sys.argv`, `sys.path[0]`, and how it ends."""

from __future__ import annotations

import builtins
import importlib.util
import os
import pkgutil
import sys
import threading
import types
from collections.abc import Callable, Sequence
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import TypeGuard

from devwidget.cli.tracebacks import without_us
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

Program = Callable[[], None]


def script(file: str, args: Sequence[str]) -> Program:
    """What `python file args` runs, a folder or an archive with a `__main__` too; from here on it is `__main__`.

    Raises:
        DevwidgetError: if there is no such file.
    """
    path = os.path.abspath(file)
    importer = pkgutil.get_importer(path)
    spec = importer.find_spec("__main__") if importer is not None else None
    if spec is not None and _has_code(spec.loader):
        if sys.flags.safe_path:
            sys.path.insert(0, path)
        else:
            sys.path[0] = path
        return _specified(spec, spec.loader, [file, *args])
    if not os.path.isfile(path):
        raise DevwidgetError(
            Message("there is no script {file}", file=file), instead="python -m devwidget run train.py [arguments]"
        )
    loader = SourceFileLoader("__main__", path)
    main = _become_main(path, [file, *args], __loader__=loader)
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    # Not the loader's `get_code`, which would leave a file in `__pycache__`.
    return lambda: exec(compile(loader.get_data(path), path, "exec", dont_inherit=True), vars(main))


def module(name: str, args: Sequence[str]) -> Program:
    """What `python -m name args` runs; from here on it is `__main__`.

    Raises:
        DevwidgetError: if there is no such module, or it cannot be run.
    """
    spec = _spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _spec(f"{name}.__main__")
    if spec is None or spec.origin is None or not _has_code(spec.loader):
        raise DevwidgetError(
            Message("there is no module {name} that can be run", name=name), instead="python -m devwidget run -m package.train"
        )
    return _specified(spec, spec.loader, [spec.origin, *args])


def _has_code(loader: object) -> TypeGuard[InspectLoader]:
    """Whether a loader is of those that `runpy` takes: that of archives derives from no abstract class."""
    return hasattr(loader, "get_code")


def _specified(spec: ModuleSpec, loader: InspectLoader, argv: list[str]) -> Program:
    """The code of a module, as `__main__`."""
    fields = {"__loader__": loader, "__spec__": spec, "__package__": spec.parent, "__cached__": spec.cached}
    main = _become_main(str(spec.origin), argv, **fields)

    def run() -> None:
        code = loader.get_code(spec.name)
        if code is not None:
            exec(code, vars(main))

    return run


def _spec(name: str) -> ModuleSpec | None:
    """A module of this name; packages around it are imported, and what they raise is theirs."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        return None


def _become_main(path: str, argv: list[str], **fields: object) -> types.ModuleType:
    """A new `__main__` with the names that Python's own has; multiprocessing finds the file by it."""
    main = types.ModuleType("__main__")
    vars(main).update({"__builtins__": builtins, "__file__": path, "__cached__": None, "__annotations__": {}, **fields})
    sys.modules["__main__"] = main
    sys.argv = argv
    return main


def flush_output() -> None:
    """Have what the program printed come before what is said of it; its `sys.stdout` may be closed, or gone."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except Exception:  # the stream is the program's own, and what ends with it is not seen in Python either
        return


def report(text: str) -> None:
    """Say something on the error stream, on that which Python began with if the program's is closed or gone."""
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
    """What Python shows of an exception that nobody caught, by the hook that the program may have put in.

    Afterwards it can be raised once more, for the status with which Python ends, and is not shown again.
    """
    without_us(error)
    sys.excepthook(type(error), error, error.__traceback__)
    sys.excepthook = lambda *_: None


def show_exceptions_of_threads() -> None:
    """The same for a thread, unless the program puts in a hook of its own."""
    show = threading.excepthook

    def shown(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            without_us(args.exc_value)
            args = threading.ExceptHookArgs((args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread))
        show(args)

    threading.excepthook = shown
