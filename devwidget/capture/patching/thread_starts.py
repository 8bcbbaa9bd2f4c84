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

from devwidget.capture.patching.registry import Wrapper, everywhere, listen, make_patch
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


def pool_tasks(choice: Choice, undo: Undo, around: Wrapper = lambda submit: submit) -> None:
    """Run tasks of thread pools inside the chosen context until it is undone.

    Args:
        around: wraps the submission itself, in which a pool may start threads.
    """
    methods: list[tuple[type, str]] = [(ThreadPoolExecutor, "submit")]
    if _POOL in sys.modules:  # a pool that is made later begins its threads later
        methods += [(sys.modules[_POOL].ThreadPool, name) for name in ("apply_async", "_map_async", "imap", "imap_unordered")]
    for owner, name in methods:
        undo.enter_context(make_patch(owner, name, lambda submit: _wrap_submit(choice, around(submit), submit)))


def _wrap_submit(choice: Choice, submit: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    def submit_inside(*args: Any, **kwargs: Any) -> Any:
        inside = choice() if len(args) > 1 and not isinstance(args[0], _OTHER_INTERPRETERS) else None
        if inside is None:
            return plain(*args, **kwargs)
        return submit(args[0], functools.partial(_run_inside, inside, args[1]), *args[2:], **kwargs)

    return submit_inside


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
