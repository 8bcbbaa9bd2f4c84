"""The relay of a node: who has its key hears the ranks of that node, and nobody else does."""

from __future__ import annotations

import json
import pathlib

import pytest
import torch.distributed as dist

from devwidget.distributed.job import make_private
from devwidget.distributed.nodes.ask import ask_other_nodes, write_heard
from devwidget.distributed.nodes.key import KEY_VARIABLE, make_key
from devwidget.distributed.nodes.relay import NODES_FILE, Relay, read_nodes
from devwidget.records.ranks.merging import Heard
from tests.distributed.jobs import wait_for
from tests.records.ranks.made_up import reports

HEARD = [Heard(number, "answered", each) for number, each in enumerate(reports((("dp", 2),), layers=2))]
RANK = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


def test_who_has_the_key_hears_the_ranks_of_another_node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in (RANK | {KEY_VARIABLE: str(tmp_path / "key")}).items():
        monkeypatch.setenv(name, value)
    there, here = (make_private(tmp_path / name, for_sockets=False) for name in ("there", "here"))
    relay = Relay(there, make_key(), dist.HashStore(), lambda: write_heard(HEARD))
    relay.begin()
    try:
        (own,) = wait_for(lambda: read_nodes(there), pause=0.01)
        (here / NODES_FILE).write_text(json.dumps([own._replace(host="far", machine="another")]), encoding="utf-8")
        assert ask_other_nodes(here) == HEARD
        monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "another"))
        make_key()
        assert [(each.state, each.report) for each in ask_other_nodes(here)] == [("unknown", None)] * 2
    finally:
        relay.end()
