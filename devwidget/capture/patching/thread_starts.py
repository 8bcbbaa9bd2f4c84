"""Run new threads and submitted tasks inside a context chosen by the thread that starts or submits them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from concurrent.futures.thread import ThreadPoolExecutor
from typing import Any

from devwidget.capture.patching.registry import everywhere, listen
from devwidget.capture.undo import Undo

Inside = Callable[[], contextlib.AbstractContextManager[object]]
"""Creates the context. Called in the thread that does the work."""
Choice = Callable[[], Inside | None]
"""Called in the thread that starts a thread or submits a task; None to leave it alone."""
_POOL = "multiprocessing.pool"
_OTHER_INTERPRETERS: Any = getattr(concurrent.futures, "InterpreterPoolExecutor", ())  # since Python 3.14; it pickles


def thread_starts(choice: Choice, undo: Undo) -> None:
    """Run new threads inside the chosen context until it is undone."""
    listen(everywhere, threading.Thread, "start", functools.partial(_start_thread, choice), undo)


def pool_tasks(choice: Choice, undo: Undo, submitting: Inside = contextlib.nullcontext) -> None:
    """Run tasks of thread pools inside the chosen context until it is undone.

    Args:
        submitting: creates the context of the submission itself, in which a pool may start threads.
    """
    methods: list[tuple[type, str]] = [(ThreadPoolExecutor, "submit")]
    if _POOL in sys.modules:  # a pool that is made later begins its threads later
        methods += [(sys.modules[_POOL].ThreadPool, name) for name in ("apply_async", "_map_async", "imap", "imap_unordered")]
    for owner, name in methods:
        listen(everywhere, owner, name, functools.partial(_submit_task, choice, submitting), undo)


def _submit_task(choice: Choice, submitting: Inside, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    inside = choice() if len(args) > 1 and not isinstance(args[0], _OTHER_INTERPRETERS) else None
    if inside is None:
        return original(*args, **kwargs)
    with submitting():
        return original(args[0], functools.partial(_run_inside, inside, args[1]), *args[2:], **kwargs)


def _run_inside(inside: Inside, task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with inside():
        return task(*args, **kwargs)


def _start_thread(choice: Choice, original: Callable[[threading.Thread], None], thread: threading.Thread) -> None:
    inside = choice()
    if inside is None:
        return original(thread)
    names = vars(thread)
    run, own = thread.run, names.get("run")  # one that the user has set, in place of the method of the class

    def put_back() -> None:
        names.pop("run", None)
        if own is not None:
            names["run"] = own

    def run_inside() -> None:
        put_back()  # here and not after `start`, which may return before the new thread has looked for `run`
        _run_inside(inside, run)

    names["run"] = run_inside
    try:
        original(thread)
    except BaseException:
        put_back()
        raise
