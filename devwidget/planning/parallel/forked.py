"""A call in a forked process, so that whatever it does to torch, to the model and to the process group ends with it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.schema.message import Message

T = TypeVar("T")
# What torch says once it has threads of its own for devices (`Engine::initialize_device_threads_pool` in `engine.cpp`).
_NO_BACKWARD = "autograd's threading in combination with fork"


def run_in_fork(call: Callable[[], T]) -> T:
    """Return what `call` returns in a copy of this process, by pickle; raise DevwidgetError in place of any exception."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # The warning is about locks that other threads hold: the copy uses none of the threads.
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(read)
        _answer_and_exit(write, call)
    os.close(write)
    try:
        with os.fdopen(read, "rb") as pipe:
            answer = pipe.read()
    except BaseException:
        # Such as an interrupt: the copy must not go on alone.
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.waitpid(child, 0)
    result: T = _unpack_answer(answer)
    return result


def _answer_and_exit(write: int, call: Callable[[], object]) -> None:
    """Answer, in the copy, and end it without any clean-up that is the original's."""
    try:
        _silence_output()
        # A fork copies the calling thread alone: what is given to the pool of threads would wait for ever.
        torch.set_num_threads(1)
        try:
            answer: tuple[str, object] = "returned", call()
        except DevwidgetError as error:
            answer = "refused", (error.what, error.why, error.instead)
        except BaseException as error:
            answer = "failed", error_text(error)
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(answer, pipe)
    finally:
        # Not `sys.exit`: what the original has registered for its own end must not run twice.
        os._exit(0)


def _silence_output() -> None:
    """Send what the copy prints nowhere: it would be in the user's cell once for each rank."""
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the process ends with it


def _unpack_answer(answer: bytes) -> Any:
    value: Any
    kind, value = pickle.loads(answer) if answer else ("failed", Message("the process of this rank died"))
    if kind == "refused":
        what, why, instead = value
        raise DevwidgetError(what, why=why, instead=instead)
    if kind == "failed" and _NO_BACKWARD in str(value):
        raise DevwidgetError(
            Message("ranks can be planned in this process no more"),
            why=Message("each runs in a copy of it, and torch runs no backward in one once it has threads for GPUs"),
            instead=Message("plan in a fresh kernel, before the first backward"),
        )
    if kind == "failed":
        raise DevwidgetError(
            Message("the step fails on this mesh: {error}", error=value),
            why=Message("the plan runs the step of one rank of each kind"),
        )
    return value
