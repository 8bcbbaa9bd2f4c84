"""The agent of one rank: it answers queries on a socket, even while the rank waits in a collective, and reports its end."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import functools
import os
import pathlib
import socket
import sys
from collections.abc import Sequence
from multiprocessing import util
from types import FrameType, TracebackType
from typing import Any, Self

from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.patching.global_hooks import STEP_ENDS
from devwidget.capture.undo import Undo
from devwidget.capture.validation import refuse_model
from devwidget.extras.ranks.answer import ReadMemory, Reporter
from devwidget.extras.ranks.job import (
    HANDLER,
    Identity,
    file_of,
    find_identity,
    job_folder,
    make_private,
    socket_of,
    write_whole,
)
from devwidget.extras.ranks.last_word import LastWords
from devwidget.extras.ranks.records.rank import LastWord, RankReport
from devwidget.extras.ranks.unix_http import end_connections
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.schema.message import Message, in_language
from devwidget.records.schema.record import dumps


class Agent:
    """A rank that answers queries: `with devwidget.serve(): ...`, or until the process ends.

    Attributes:
        folder: Folder of its socket.
    """

    def __init__(
        self,
        model: nn.Module | None,
        folder: str | os.PathLike[str] | None,
        memory: ReadMemory,
        *,
        every: float = 0.0,
        checksums: bool = False,
    ) -> None:
        torch_internals.check_names("reading tensors", "answering for a rank")
        if model is not None:
            refuse_model(model)
        self._who = find_identity()
        self._reporter = Reporter(model, memory, checksums=checksums)
        self.folder = make_private(pathlib.Path(folder) if folder is not None else job_folder())
        self._socket = socket_of(self.folder, self._who.rank)
        self._refuse_double()
        self._hook = Undo()
        STEP_ENDS.call_hook(self._reporter.history.note_step, self._hook)
        # Torch's `shutdown`, also called by the destructor of its server, waits for its threads while it holds the GIL, so a
        # query at that moment would deadlock. It is never called: the socket is removed, and the reference is kept.
        _register_handler()
        _keep_forever(torch_internals.WorkerServer(str(self._socket), -1))
        _agents.append(self)
        atexit.register(self.stop)
        # A child of multiprocessing ends without the exit handlers of Python, and shows its exception by itself.
        self._finalizer = util.Finalize(None, self._leave_child, exitpriority=10)
        write_whole(file_of(self.folder, self._who.rank), dumps(self._reporter.announce_rank(self._who)))
        self._last_words = LastWords(self._write_word, every)
        self._last_words.begin()

    def report(self, *, checksums: bool = False) -> RankReport:
        """Return what this rank holds now. Checksums read values, which syncs with the GPU."""
        return self._reporter.make_report(self._find_identity(), checksums=checksums)

    def _find_identity(self) -> Identity:
        """Return host and process, which are fixed, and the rank, which torch may set later."""
        if os.getpid() == self._who.pid:
            return find_identity()
        return self._who

    def stop(self) -> None:
        """Stop answering. A second call, or one in a forked child, has no effect."""
        if os.getpid() == self._who.pid and serving_agent() is self:
            _agents.clear()
            self._hook.run_steps()
            atexit.unregister(self.stop)
            self._finalizer.cancel()
            self._last_words.end()
            self._socket.unlink(missing_ok=True)
            end_connections(self._socket)

    def _write_word(self, word: LastWord, frames: Sequence[FrameType]) -> None:
        """Write how this rank has ended, or what it holds now."""
        who = self._find_identity()
        try:
            if word.how == "ended":
                said = self._reporter.report_end(who, word)
            else:
                said = self._reporter.make_report(who, word=word, frames=frames)
        except Exception as fault:
            # How it ended is known, whatever cannot be read of what it held.
            said = dataclasses.replace(
                self._reporter.announce_rank(who), announced=False, last_word=word, stack=word.stack, note=error_text(fault)
            )
        # A folder that is gone or full must not be what ends the process.
        with contextlib.suppress(OSError):
            write_whole(file_of(self.folder, self._who.rank), dumps(said))

    def _leave_child(self) -> None:
        error = sys.exception()
        # What torch starts has shown the exception, and leaves with another.
        cause = error.__context__ if isinstance(error, SystemExit) and error.code and error.__context__ else error
        if cause is not None:
            self._last_words.say_error(cause)
        self.stop()

    def _refuse_double(self) -> None:
        if serving_agent() is not None:
            raise DevwidgetError(
                Message("this process already answers queries"), instead=Message("call devwidget.serve() once in each rank")
            )
        if not self._socket.exists():
            return
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as other, contextlib.suppress(ConnectionRefusedError):
            other.connect(str(self._socket))
            why = Message("the folder {folder} belongs to another job, or this job was started twice", folder=self.folder)
            what = Message("another process already answers as rank {rank}", rank=self._who.rank)
            raise DevwidgetError(what, why=why, instead="devwidget.serve(folder=...)")
        # The socket of a killed process refuses connections, and a new one needs its name.
        self._socket.unlink()

    @property
    def rank(self) -> int:
        """Its number in the job."""
        return self._who.rank

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._last_words.say_error(error)
        self.stop()

    def __repr__(self) -> str:
        facts = {"rank": self._who.rank, "world_size": self._who.world_size, "folder": self.folder}
        return in_language(Message("<rank {rank} of {world_size} answers in {folder}>", **facts))


_agents: list[Agent] = []


def serving_agent() -> Agent | None:
    """Return the active agent of this process."""
    return _agents[0] if _agents else None


@functools.cache
def _register_handler() -> None:
    """Register once per process: torch rejects a second handler of a name and cannot remove the first."""
    _keep_forever(_answer_request)
    torch_internals.register_handler(HANDLER, _answer_request)


def _keep_forever(thing: object) -> None:
    """Never free it: torch releases it when Python has ended, and freeing it then aborts the process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _answer_request(request: Any, response: Any) -> None:
    """Answer one query. Errors are sent to the client."""
    agent = serving_agent()
    try:
        if agent is None:
            status, text = 400, "nobody answers here any more"
        elif _has_body(request):
            status, text = 400, "a question has no body"
        else:
            status, text = 200, dumps(agent.report())
    except Exception as error:
        status, text = 500, error_text(error)
    response.set_status(status)
    response.set_content(text, "application/json" if status == 200 else "text/plain")


def _has_body(request: Any) -> bool:
    try:
        return bool(request.body())
    except UnicodeDecodeError:
        # torch makes a text of the body before we see it.
        return True
