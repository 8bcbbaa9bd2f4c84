"""Asks the ranks of a folder of sockets and files, or of files alone; tells what silence means."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import socket as sockets
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from devwidget.extras.ranks.collectives import Progress, parse_progress
from devwidget.extras.ranks.job import (
    HANDLER,
    file_of,
    find_machine,
    owner_folder,
    ranks_in,
    read_process,
    refuse_shared,
    socket_of,
)
from devwidget.extras.ranks.records.alike_files import AlikeFiles
from devwidget.extras.ranks.records.cluster import GONE, WITH_LAST_WORD, Cluster
from devwidget.extras.ranks.records.merging import Heard, merge, split_cluster
from devwidget.extras.ranks.records.rank import RankReport
from devwidget.extras.ranks.unix_http import LARGEST_ANSWER, Line, NoAnswer
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading.json_io import load, loads, read_regular
from devwidget.records.schema.message import Message

FIRST_WAIT, SECOND_WAIT = 1.0, 0.3
"""Seconds for the answer of Python, and for each of two that need no Python."""
LONG_IN_A_COLLECTIVE = 5.0
"""Seconds after which a rank that waits for others is said to hang."""
OLD = 60.0
"""Seconds that one file may be older than the newest before it is said to be stale."""
_MOST_AT_ONCE = 64


def ask_folder(folder: pathlib.Path, patience: float = LONG_IN_A_COLLECTIVE) -> list[Heard]:
    """Ask each rank of a folder, by its socket or else by its file; raise DevwidgetError if it is none, or open to others."""
    refuse_shared(folder)
    alike = AlikeFiles()
    numbers = list(ranks_in(folder))
    # At once: those that do not answer are waited for together.
    with ThreadPoolExecutor(max(1, min(_MOST_AT_ONCE, len(numbers)))) as pool:
        heard = list(pool.map(lambda rank: ask_rank(folder, rank, alike.loads), numbers))
    return mark_stale(mark_hung(heard, patience))


def mark_hung(heard: list[Heard], patience: float) -> list[Heard]:
    """Mark the ranks that hang by what was heard of all."""
    gone = {each.rank: _find_end(each) for each in heard if each.state in ("stopped", *GONE)}

    @functools.cache  # a thousand ranks may wait in one collective of them all
    def find_first_end(ranks: tuple[int, ...]) -> float:
        return min((gone[rank] for rank in ranks if rank in gone), default=math.inf)

    return [_mark_if_hung(each, patience, find_first_end) for each in heard]


def _mark_if_hung(heard: Heard, patience: float, find_first_end: Callable[[tuple[int, ...]], float]) -> Heard:
    """Mark a rank that has waited for longer than is usual, or that waits for one that cannot come."""
    waits = heard.report.collective if heard.report is not None else None
    if waits is None or waits.finished or heard.state in ("dead", "stale"):
        return heard
    # One that has ended waits for who had gone before it, not for who was ended with it.
    said = heard.taken if heard.state in WITH_LAST_WORD else math.inf
    if waits.seconds < patience and not find_first_end(waits.ranks) < said:
        return heard
    if heard.state in WITH_LAST_WORD:
        return dataclasses.replace(heard, hangs=True)
    note = Message("waits in `{kind}` number {number}", kind=waits.kind, number=waits.sequence)
    return dataclasses.replace(heard, state="hung", note=note, hangs=True)


# Seconds within which one signal reaches all ranks of a job.
_ONE_SIGNAL = 2.0


def _find_end(gone: Heard) -> float:
    """After which moment a rank had gone for certain; a signal may have ended others in the same moment."""
    if gone.state in ("dead", "stopped"):
        return -math.inf
    return gone.taken + (_ONE_SIGNAL if gone.state == "terminated" else 0.0)


def ask_rank(folder: pathlib.Path, rank: int, read: Callable[[str], Any] = loads) -> Heard:
    """Ask one rank; `read` makes records of what it says."""
    path, written = socket_of(folder, rank), _load_report(file_of(folder, rank), read)
    if not path.exists():
        return judge_written(rank, written)
    host, pid = (written.host, written.pid) if written is not None else ("", 0)
    try:
        line = Line(path, FIRST_WAIT)
        pid = (0 if _is_here(written) else pid) or line.pid
        answer = line.ask(HANDLER)
    except (ConnectionRefusedError, FileNotFoundError):
        # It may have said its last word since its file was read.
        return _judge_ended(rank, _load_report(file_of(folder, rank)))
    except NoAnswer as silence:
        return _judge_silence(path, rank, written, pid, silence.why)
    except OSError as error:
        return _judge_silence(path, rank, written, pid, str(error))
    if answer.status != 200 and not path.exists():
        # It has ended since it was asked, and torch's server answers a little longer.
        return judge_written(rank, _load_report(file_of(folder, rank)))
    if answer.status != 200:
        return Heard(rank, "busy", host=host, pid=pid, note=answer.body[:200].decode(errors="replace"))
    return _read_answer(rank, answer.body, host, pid, read)


def _judge_ended(rank: int, written: RankReport | None) -> Heard:
    """Judge a rank that nobody answers for: its file is no answer, and on another machine it may live."""
    if written is None:
        return Heard(rank, "dead", note=Message("its process has ended: nobody listens at its socket"), listens=False)
    if written.last_word is not None and written.last_word.how != "running":
        return _hear_last_word(rank, written)
    here = _is_here(written)
    state = read_process_state(written.pid, written.started) if here else "unknown"
    said = written if written.last_word is not None else None
    found = Heard(rank, "unknown", said, host=written.host, pid=written.pid, announced=written, listens=False)
    if state == "gone":
        return dataclasses.replace(found, state="dead", note=Message("its process has ended without a last word"))
    if here and state == "unknown":
        return dataclasses.replace(
            found, note=Message("nobody listens at its socket, and whether its process lives is not known")
        )
    if here:
        return dataclasses.replace(found, note=Message("nobody listens at its socket, and there is a process of its number"))
    if said is not None:
        return dataclasses.replace(found, state="answered")
    return dataclasses.replace(found, note=Message("it answers on {host} alone: ask there", host=written.host))


def _hear_last_word(rank: int, written: RankReport) -> Heard:
    """Hear how a rank has ended, as it has said itself."""
    word = written.last_word
    assert word is not None
    if word.how == "raised":
        return Heard(rank, "raised", written, note=Message("raised {error}", error=word.error), listens=False)
    if word.how == "terminated":
        note = Message("was ended by the signal {name}", name=word.error)
        return Heard(rank, "terminated", written, note=note, listens=False)
    return Heard(rank, "ended", written, note=Message("came to its end without an exception"), listens=False)


def _read_answer(rank: int, body: bytes, host: str, pid: int, read: Callable[[str], Any]) -> Heard:
    try:
        said = read(body.decode())
    except ValueError as error:
        return Heard(rank, "busy", host=host, pid=pid, note=Message("its answer cannot be read: {error}", error=error))
    if type(said) is not RankReport or said.rank != rank:
        return Heard(rank, "busy", host=host, pid=pid, note=Message("its answer is not that of this rank"))
    return Heard(rank, "answered", said)


def _judge_silence(path: pathlib.Path, rank: int, written: RankReport | None, pid: int, silence: str) -> Heard:
    """Tell stopped, gone, and busy with Python locked: then torch's server itself still answers."""
    host = written.host if written is not None else ""
    started = written.started if written is not None and written.pid == pid else 0
    state = read_process_state(pid, started) if _is_here(written) else "unknown"
    if state == "gone":
        return _judge_ended(rank, _load_report(file_of(path.parent, rank)))
    if state == "stopped":
        return Heard(rank, "stopped", host=host, pid=pid, note=Message("its process is stopped by a signal, as Ctrl-Z does"))
    try:
        Line(path, SECOND_WAIT).ask("ping")
    except (NoAnswer, OSError):
        if _is_refused_soon(path):
            return _judge_ended(rank, _load_report(file_of(path.parent, rank)))
        note = Message("{silence}, and neither did torch's own server", silence=silence)
        return Heard(rank, "busy", host=host, pid=pid, note=note)
    note = Message("its process is alive, and holds Python's lock")
    collective, groups = _ask_progress(path)
    return Heard(rank, "busy", host=host, pid=pid, note=note, collective=collective, groups=groups)


def _is_refused_soon(path: pathlib.Path) -> bool:
    """Whether nobody listens any more where somebody did: a process that ends closes its sockets one after the other."""
    for _ in range(5):
        try:
            with contextlib.closing(sockets.socket(sockets.AF_UNIX)) as line:
                line.setblocking(False)
                line.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except OSError:
            return False
        time.sleep(0.02)
    return False


def _ask_progress(path: pathlib.Path) -> Progress:
    """Ask torch alone which collective a rank waits in, and how far it has come."""
    try:
        return parse_progress(Line(path, SECOND_WAIT).ask("fr_trace_json").body)
    except (NoAnswer, OSError, ValueError, KeyError, TypeError):  # it is only more detail
        return None, ()


def judge_written(rank: int, written: RankReport | None) -> Heard:
    """Judge a rank that has left a file and no socket: the end of a recording, how it ended, or that it would answer."""
    if written is None:
        return Heard(rank, "unknown", note=Message("its file cannot be read"), listens=False)
    if written.announced or written.last_word is not None:
        return _judge_ended(rank, written)
    return Heard(rank, "answered", written, listens=False)


def mark_stale(heard: list[Heard]) -> list[Heard]:
    """Mark what was written long before the newest; what a rank writes from time to time, if it has not done so again."""
    newest = max((each.report.taken for each in heard if each.report is not None), default=0.0)
    return [_mark_if_stale(each, newest) for each in heard]


def _mark_if_stale(heard: Heard, newest: float) -> Heard:
    if heard.report is None or heard.state in ("stale", *GONE):
        return heard
    word = heard.report.last_word
    if word is not None and not heard.listens:
        age, most = max(newest, time.time()) - heard.report.taken, _MISSED * word.every + _LATE
        note = Message("it has written nothing for {age} s", age=round(age))
    else:
        age, most = newest - heard.report.taken, OLD
        note = Message("its file is {age} s older than the newest", age=round(age))
    return heard if age <= most else dataclasses.replace(heard, state="stale", note=note, hangs=False)


# A rank that writes from time to time has missed so many, and these seconds.
_MISSED, _LATE = 2, 1.0


def _load_report(path: pathlib.Path, read: Callable[[str], Any] = loads) -> RankReport | None:
    try:
        found = read(read_regular(path, LARGEST_ANSWER).decode())
    except (OSError, ValueError):
        # There is none, or somebody else's; who asks is told that the rank is missing.
        return None
    return found if type(found) is RankReport else None


ProcessState = Literal["running", "stopped", "gone", "unknown"]


def read_process_state(pid: int, started: int = 0) -> ProcessState:
    """Read whether a process of this machine runs, is stopped or is gone; `unknown` where there is no `/proc`.

    Args:
        pid: its number.
        started: when it began, in ticks; another process of its number is not it.
    """
    if pid <= 0 or not pathlib.Path("/proc/self").exists():
        return "unknown"
    found = read_process(pid)
    if found is None or (started and found[1] != started):
        return "gone"
    return "gone" if found[0] in "ZX" else "stopped" if found[0] in "Tt" else "running"


def _is_here(report: RankReport | None) -> bool:
    """Whether the process that wrote a report would be one of this machine, by the number that it has there."""
    if report is None:
        return True
    if report.machine and (machine := find_machine()):
        return report.machine == machine
    return report.host in ("", sockets.gethostname())


_SOURCES = Message("a folder of ranks or several, their files, or saved jobs: devwidget.ranks('runs/today')")


def hear_ranks(source: Any, *, patience: float = LONG_IN_A_COLLECTIVE) -> Cluster:
    """All ranks of one source at this moment.

    Args:
        source: see `devwidget.ranks`.
        patience: seconds in one collective after which a rank is said to hang.

    Raises:
        DevwidgetError: if it is none, or nothing of a rank is there.
    """
    asked = time.time()
    if source is None:
        source = find_newest_job()
    sources = list(source) if isinstance(source, Iterable) and not isinstance(source, str | os.PathLike) else [source]
    for each in sources:
        if not isinstance(each, str | os.PathLike | Cluster):
            raise DevwidgetError(Message("{kind} is no source of ranks", kind=type(each).__name__), instead=_SOURCES)
    heard = _hear_sources([each if isinstance(each, Cluster) else pathlib.Path(each) for each in sources], patience)
    if not heard:
        why = Message("no process has called devwidget.serve() there, or written its record there")
        raise DevwidgetError(Message("there are no ranks in this source"), why=why, instead=_SOURCES)
    return merge(heard, asked)


def find_newest_job() -> pathlib.Path:
    """Return the folder of this user's job that has started last; raise DevwidgetError if there is none."""
    above = owner_folder()
    folders = [entry for entry in above.iterdir() if entry.is_dir() and list(ranks_in(entry))] if above.is_dir() else []
    if not folders:
        raise DevwidgetError(
            Message("no job of yours answers on this machine"), instead=Message("devwidget.serve() in the training script")
        )
    return max(folders, key=lambda folder: folder.stat().st_mtime)


def _hear_sources(sources: list[pathlib.Path | Cluster], patience: float) -> list[Heard]:
    """Hear the ranks of all folders, saved jobs and files; of two of one rank the one of whom more is known, then the newer."""
    newest: dict[int, Heard] = {}
    for each in (heard for source in sources for heard in _hear_source(source, patience)):
        if each.rank not in newest or _how_much(newest[each.rank]) < _how_much(each):
            newest[each.rank] = each
    return mark_stale(mark_hung(list(newest.values()), patience))


def _how_much(heard: Heard) -> tuple[bool, float]:
    return heard.state != "unknown", heard.taken


def _hear_source(source: pathlib.Path | Cluster, patience: float) -> list[Heard]:
    if isinstance(source, Cluster):
        return split_cluster(source)
    return _hear_file(source) if source.is_file() else ask_folder(source, patience)


def _hear_file(path: pathlib.Path) -> list[Heard]:
    """Hear what a rank has written, or all of a saved job; a rank that has written that it would answer is asked."""
    try:
        said = load(path, LARGEST_ANSWER)
    except (OSError, ValueError) as error:
        raise DevwidgetError(Message("{name} cannot be read: {error}", name=path.name, error=error)) from None
    if isinstance(said, Cluster):
        return split_cluster(said)
    if not isinstance(said, RankReport):
        raise DevwidgetError(
            Message("{name} holds a {kind}, neither a job nor what one rank said", name=path.name, kind=type(said).__name__)
        )
    if not said.announced and said.last_word is None:
        return [judge_written(said.rank, said)]
    refuse_shared(path.absolute().parent)
    return [ask_rank(path.absolute().parent, said.rank)]
