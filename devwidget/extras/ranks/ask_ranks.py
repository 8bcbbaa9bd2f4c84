"""Query the ranks of a folder by their sockets or files, and find out why a rank does not answer."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import pathlib
import socket as sockets
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from devwidget.extras.ranks.collectives import parse_progress
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
from devwidget.extras.ranks.records.cluster import GONE, WITH_LAST_WORD, Cluster, Rank
from devwidget.extras.ranks.records.merging import merge, ranks_of_saved
from devwidget.extras.ranks.records.rank import LastWord, RankReport, silent_rank
from devwidget.extras.ranks.unix_http import LARGEST_ANSWER, Line, NoAnswer
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading.json_io import load, loads, read_regular
from devwidget.records.schema.message import Message

FIRST_WAIT, SECOND_WAIT = 1.0, 0.3
"""Seconds for an answer from Python, and for each of two answers without Python."""
LONG_IN_A_COLLECTIVE = 5.0
"""Seconds after which a waiting rank counts as hung."""
OLD = 60.0
"""Seconds by which a file may be older than the newest before it counts as stale."""
_MOST_AT_ONCE = 64


def ask_folder(folder: pathlib.Path, patience: float = LONG_IN_A_COLLECTIVE) -> list[Rank]:
    """Query each rank of a folder, by its socket or else by its file; refuse one that other users have access to."""
    refuse_shared(folder)
    numbers = list(ranks_in(folder))
    # At once: those that do not answer are waited for together.
    with ThreadPoolExecutor(max(1, min(_MOST_AT_ONCE, len(numbers)))) as pool:
        heard = list(pool.map(lambda rank: ask_rank(folder, rank), numbers))
    return mark_stale(mark_hung(heard, patience))


def mark_hung(heard: list[Rank], patience: float) -> list[Rank]:
    """Mark the ranks that hang, from the answers of all."""
    gone = {rank.number: _find_end(rank) for rank in heard if rank.state in ("stopped", *GONE)}

    @functools.cache  # a thousand ranks may wait in one collective of them all
    def find_first_end(ranks: tuple[int, ...]) -> float:
        return min((gone[rank] for rank in ranks if rank in gone), default=math.inf)

    return [_mark_if_hung(rank, patience, find_first_end) for rank in heard]


def _mark_if_hung(rank: Rank, patience: float, find_first_end: Callable[[tuple[int, ...]], float]) -> Rank:
    """Mark a rank that has waited too long, or that waits for a rank that cannot come."""
    waits = rank.said.waits
    if waits is None or rank.said.announced or rank.state in ("dead", "stale"):
        return rank
    # One that has ended waits for who had gone before it, not for who was ended with it.
    said = rank.said.taken if rank.state in WITH_LAST_WORD else math.inf
    if waits.seconds < patience and not find_first_end(waits.ranks) < said:
        return rank
    if rank.state in WITH_LAST_WORD:
        return dataclasses.replace(rank, hangs=True)
    note = Message("waits in `{kind}` number {number}", kind=waits.kind, number=waits.sequence)
    return dataclasses.replace(rank, state="hung", note=note, hangs=True)


# Seconds within which one signal reaches all ranks of a job.
_ONE_SIGNAL = 2.0


def _find_end(gone: Rank) -> float:
    """Return the time after which a rank had certainly ended; one signal may have ended others at the same time."""
    if gone.state in ("dead", "stopped"):
        return -math.inf
    if gone.state == "terminated":
        return gone.said.taken + _ONE_SIGNAL
    return gone.said.taken


def ask_rank(folder: pathlib.Path, rank: int) -> Rank:
    """Query one rank."""
    path, written = socket_of(folder, rank), _load_report(file_of(folder, rank))
    if not path.exists():
        return judge_written(rank, written)
    known = silent_rank(rank)
    if written is not None:
        known = _announce_again(written)
    pid = known.pid
    try:
        line = Line(path, FIRST_WAIT)
        if _is_here(written) or not pid:
            pid = line.pid
        answer = line.ask(HANDLER)
    except (ConnectionRefusedError, FileNotFoundError):
        # It may have said its last word since its file was read.
        return _judge_ended(rank, _load_report(file_of(folder, rank)))
    except NoAnswer as silence:
        return _judge_silence(path, dataclasses.replace(known, pid=pid), written, silence.args[0])
    except OSError as error:
        return _judge_silence(path, dataclasses.replace(known, pid=pid), written, str(error))
    if answer.status == 200:
        return _read_answer(known, answer.body)
    if not path.exists():
        # It has ended since it was asked, and torch's server answers a little longer.
        return judge_written(rank, _load_report(file_of(folder, rank)))
    return Rank("busy", known, answer.body[:200].decode(errors="replace"))


_IDENTITY = ("rank", "world_size", "host", "pid", "taken", "job", "run", "machine", "started")


def _announce_again(written: RankReport) -> RankReport:
    """Return the identity in a file; the rank may no longer hold what the file says."""
    return RankReport(**{name: getattr(written, name) for name in _IDENTITY}, announced=True)


def _judge_ended(rank: int, written: RankReport | None) -> Rank:
    """Judge a rank that does not answer, by its file and its process; on another machine it may be alive."""
    if written is None:
        return Rank("dead", silent_rank(rank), Message("its process has ended: its socket refuses connections"))
    word = written.last_word
    if word is not None and word.how != "running":
        return Rank(word.how, written, _word_end(word))
    writes_on = word is not None
    here = _is_here(written)
    process: ProcessState = "unknown"
    if here:
        process = read_process_state(written.pid, written.started)
    said = written if writes_on else _announce_again(written)
    if process == "gone":
        return Rank("dead", said, Message("its process ended without a final report"))
    age = time.time() - written.taken
    if word is not None and age > _MISSED * word.every + _LATE:
        return Rank("stale", said, Message("no report for {age} s", age=round(age)))
    if writes_on and not here:
        return Rank("answered", said)
    if not here:
        return Rank("unknown", said, Message("it answers only on {host}; query it there", host=written.host))
    if process == "unknown":
        return Rank("unknown", said, Message("its socket refuses connections; it is unknown whether its process is alive"))
    return Rank("unknown", said, Message("its socket refuses connections, but a process with its number exists"))


# A rank that writes from time to time has missed so many, and these seconds.
_MISSED, _LATE = 2, 1.0


def _word_end(word: LastWord) -> str:
    if word.how == "raised":
        return Message("raised {error}", error=word.error)
    if word.how == "terminated":
        return Message("ended by signal {name}", name=word.error)
    return Message("ended without an exception")


def _read_answer(known: RankReport, body: bytes) -> Rank:
    try:
        said = loads(body.decode())
    except ValueError as error:
        return Rank("busy", known, Message("cannot read its answer: {error}", error=error))
    if type(said) is not RankReport or said.rank != known.rank:
        return Rank("busy", known, Message("its answer is from another rank"))
    return Rank("answered", said)


def _judge_silence(path: pathlib.Path, known: RankReport, written: RankReport | None, silence: str) -> Rank:
    """Distinguish a stopped, ended or busy rank. Torch's own server answers even while Python holds the GIL."""
    started = 0
    if written is not None and written.pid == known.pid:
        started = written.started
    state: ProcessState = "unknown"
    if _is_here(written):
        state = read_process_state(known.pid, started)
    if state == "gone":
        return _judge_ended(known.rank, _load_report(file_of(path.parent, known.rank)))
    if state == "stopped":
        return Rank("stopped", known, Message("its process is stopped by a signal, as by Ctrl-Z"))
    try:
        Line(path, SECOND_WAIT).ask("ping")
    except (NoAnswer, OSError):
        if _is_refused_soon(path):
            return _judge_ended(known.rank, _load_report(file_of(path.parent, known.rank)))
        return Rank("busy", known, Message("{silence}; torch's own server gave none either", silence=silence))
    with contextlib.suppress(NoAnswer, OSError, ValueError, KeyError, TypeError):  # it is only more detail
        collective, groups = parse_progress(Line(path, SECOND_WAIT).ask("fr_trace_json").body)
        if groups:
            known = dataclasses.replace(known, taken=time.time(), collective=collective, groups=groups)
    return Rank("busy", known, Message("its process is alive and holds the GIL"))


def _is_refused_soon(path: pathlib.Path) -> bool:
    """Return whether a socket stops accepting: a process that ends closes its sockets one after the other."""
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


def judge_written(rank: int, written: RankReport | None) -> Rank:
    """Judge a rank with a file but no socket: the end of a recording, how it ended, or that it would answer."""
    if written is None:
        return Rank("unknown", silent_rank(rank), Message("cannot read its file"))
    if written.announced or written.last_word is not None:
        return _judge_ended(rank, written)
    return Rank("answered", written)


def mark_stale(heard: list[Rank]) -> list[Rank]:
    """Mark reports that are much older than the newest."""
    newest = max((rank.said.taken for rank in heard if not rank.said.announced), default=0.0)
    marked = []
    for rank in heard:
        age = newest - rank.said.taken
        if age > OLD and not rank.said.announced and rank.said.last_word is None and rank.state != "stale":
            note = Message("its file is {age} s older than the newest", age=round(age))
            rank = dataclasses.replace(rank, state="stale", note=note, hangs=False)
        marked.append(rank)
    return marked


def _load_report(path: pathlib.Path) -> RankReport | None:
    try:
        found = loads(read_regular(path, LARGEST_ANSWER).decode())
    except (OSError, ValueError):
        # There is no file, or it belongs to another user; the rank is reported as missing.
        return None
    return found if type(found) is RankReport else None


ProcessState = Literal["running", "stopped", "gone", "unknown"]


def read_process_state(pid: int, started: int = 0) -> ProcessState:
    """Return whether a process of this machine runs, is stopped or has ended; `unknown` without `/proc`.

    Its start in ticks tells it from a later process with the same number.
    """
    if pid <= 0 or not pathlib.Path("/proc/self").exists():
        return "unknown"
    found = read_process(pid)
    if found is None or found[0] in "ZX" or (started and found[1] != started):
        return "gone"
    if found[0] in "Tt":
        return "stopped"
    return "running"


def _is_here(report: RankReport | None) -> bool:
    """Return whether the pid in a report refers to a process of this machine."""
    if report is None:
        return True
    if report.machine and (machine := find_machine()):
        return report.machine == machine
    return report.host in ("", sockets.gethostname())


_SOURCES = Message("pass folders of ranks, their files, or saved jobs: devwidget.ranks('runs/today')")


def hear_ranks(source: Any, *, patience: float = LONG_IN_A_COLLECTIVE) -> Cluster:
    """Return all ranks of a source, as `devwidget.ranks` takes it."""
    asked = time.time()
    if source is None:
        source = _find_newest_job()
    if isinstance(source, str | os.PathLike) or not isinstance(source, Iterable):
        source = [source]
    newest: dict[int, Rank] = {}
    for rank in itertools.chain.from_iterable(_hear_source(each, patience) for each in source):
        # If two sources describe a rank, the more complete, then the newer one wins.
        if rank.number not in newest or _how_much(newest[rank.number]) < _how_much(rank):
            newest[rank.number] = rank
    if not newest:
        why = Message("no process called devwidget.serve() there or saved its report there")
        raise DevwidgetError(Message("no ranks found"), why=why, instead=_SOURCES)
    return merge(mark_stale(mark_hung(list(newest.values()), patience)), asked)


def _find_newest_job() -> pathlib.Path:
    folders = [entry for entry in owner_folder().glob("*/") if list(ranks_in(entry))]
    if not folders:
        raise DevwidgetError(
            Message("no job of yours answers on this machine"), instead=Message("call devwidget.serve() in the training script")
        )
    return max(folders, key=lambda folder: folder.stat().st_mtime)


def _how_much(rank: Rank) -> tuple[bool, float]:
    return rank.state != "unknown", rank.said.taken


def _hear_source(source: object, patience: float) -> list[Rank]:
    if isinstance(source, Cluster):
        return ranks_of_saved(source)
    if not isinstance(source, str | os.PathLike):
        raise DevwidgetError(Message("cannot query ranks from a {kind}", kind=type(source).__name__), instead=_SOURCES)
    path = pathlib.Path(source)
    if path.is_file():
        return _hear_file(path)
    return ask_folder(path, patience)


def _hear_file(path: pathlib.Path) -> list[Rank]:
    """Read the report of a rank, or a saved job. A rank that announced itself is queried."""
    try:
        said = load(path, LARGEST_ANSWER)
    except (OSError, ValueError) as error:
        raise DevwidgetError(Message("cannot read {name}: {error}", name=path.name, error=error)) from None
    if isinstance(said, Cluster):
        return ranks_of_saved(said)
    if not isinstance(said, RankReport):
        raise DevwidgetError(
            Message(
                "{name} contains a {kind}, neither a job nor a report of one rank", name=path.name, kind=type(said).__name__
            )
        )
    if not said.announced and said.last_word is None:
        return [judge_written(said.rank, said)]
    refuse_shared(path.absolute().parent)
    return [ask_rank(path.absolute().parent, said.rank)]
