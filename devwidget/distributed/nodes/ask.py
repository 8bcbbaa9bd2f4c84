"""Asks the relays of the other nodes of a job, and writes what the ranks of this one say for them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import socket
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from devwidget.distributed.job import find_machine
from devwidget.distributed.nodes.key import key_of_line, read_key
from devwidget.distributed.nodes.line import REFUSED, NodeLine
from devwidget.distributed.nodes.relay import Node, read_nodes
from devwidget.distributed.unix_http import LARGEST_ANSWER
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading.alike_files import AlikeFiles
from devwidget.records.loading.json_io import loads
from devwidget.records.ranks.merging import Heard
from devwidget.records.ranks.rank import RankReport
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import dumps

_CONNECT_S, _ANSWER_S = 1.0, 5.0
_MOST_AT_ONCE = 32


def ask_other_nodes(folder: pathlib.Path) -> list[Heard]:
    """Ask the relays of which the one of a folder has heard; ranks whose node does not answer are unknown."""
    others = [node for node in read_nodes(folder) if node.machine != find_machine()]
    if not others:
        return []
    try:
        key = read_key()
    except DevwidgetError as error:
        return [heard for node in others for heard in _hear_nothing(node, error.what)]
    alike = AlikeFiles()
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(others))) as pool:
        return [heard for found in pool.map(lambda node: _ask_node(node, key, alike), others) for heard in found]


def _ask_node(node: Node, key: bytes, alike: AlikeFiles) -> list[Heard]:
    try:
        with NodeLine(socket.create_connection((node.address, node.port), _CONNECT_S), _ANSWER_S) as line:
            line.check_called(key_of_line(key, node.address, node.port))
            return list(read_heard(_unpack(line.recv_bytes()), alike))
    except REFUSED as error:
        why = Message("{host} has another key, or sent what is no answer ({error})", host=node.host, error=type(error).__name__)
    except OSError as error:
        why = Message("nobody answers for the ranks of {host}: {error}", host=node.host, error=error.strerror or str(error))
    return list(_hear_nothing(node, why))


def _hear_nothing(node: Node, why: str) -> Iterator[Heard]:
    for rank in range(node.first, node.first + node.size) if node.first >= 0 else ():
        yield Heard(rank, "unknown", host=node.host, note=why)


def _unpack(answer: bytes) -> str:
    """Unpack so much and no more: a few bytes may stand for many."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(answer, LARGEST_ANSWER)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof:
        raise ValueError("the answer is too long, or was cut")
    return text.decode()


def write_heard(heard: Iterable[Heard]) -> str:
    """Write what was heard of some ranks; each report by itself, so that who reads many reads once what they share."""
    return json.dumps([_write_parts(each) for each in heard])


_PARTS = "heard", "report", "announced"


def _write_parts(heard: Heard) -> list[str]:
    reports = [dumps(said) if said is not None else "" for said in (heard.report, heard.announced)]
    return [dumps(dataclasses.replace(heard, report=None, announced=None)), *reports]


def read_heard(text: str, alike: AlikeFiles) -> Iterator[Heard]:
    """Yield the same again; raise ValueError for what is none of it."""
    parts = json.loads(text)
    if not isinstance(parts, list) or not all(isinstance(each, list) and len(each) == len(_PARTS) for each in parts):
        raise ValueError("no list of what was heard of ranks")
    for each in parts:
        heard = loads(str(each[0]), {"Heard": Heard})
        report, announced = (alike.loads(str(part)) if part else None for part in each[1:])
        said = [part for part in (report, announced) if part is not None]
        if any(not isinstance(part, RankReport) or part.rank != heard.rank for part in said):
            raise ValueError("neither what was heard of a rank nor what it said")
        yield dataclasses.replace(heard, report=report, announced=announced)
