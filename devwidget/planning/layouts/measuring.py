"""What each block of a model takes, from one step on one virtual GPU of any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.planning.changes import Changed
from devwidget.planning.gpus import gpu
from devwidget.planning.layouts.blocks import BlockWatcher
from devwidget.planning.layouts.splits import Need
from devwidget.planning.placement import placed_copy
from devwidget.planning.rehearsal import rehearse
from devwidget.planning.watcher import Watcher
from devwidget.simulator.cluster import UNLIMITED, parse_cluster
from devwidget.simulator.devices.ledger_listeners import settle_accounts


def measure(model: nn.Module, inputs: Arguments, asked: dict[str, Any], paths: Sequence[str], lengths_stay: bool) -> Need:
    """What each of these blocks takes, from one step on one GPU of any size."""
    cluster = parse_cluster(1, UNLIMITED, False)
    watcher = Watcher(1)
    with placed_copy(model, "as is", cluster, watcher, Changed(prepare=_to_first)) as (copied, (account,)):
        blocks = BlockWatcher(account, settle_accounts)
        blocks.attach(copied.inner, paths)
        step = model, copied, inputs, asked["loss_fn"], asked["optimizer"], watcher
        phases = rehearse(*step, after_forward=blocks.detach, lengths_stay=lengths_stay)
        device = watcher.device(0, account, sum(block.weights for block in blocks.blocks.values()))
    found, trains = blocks.in_order(), "backward" in phases
    trained = sum(block.trained for block in found)
    state = watcher.optimizer.get(0, 0) / max(trained, 1)
    plain = Need(found, trains, state)
    more, phase = device.peak - plain.of(found), device.peak_at.phase if device.peak_at else ""
    if phase == "optimizer":
        return Need(found, trains, state, step=max(more, 0) / max(trained, 1))
    return Need(found, trains, state, backward=max(more, 0) if phase in ("backward", "loss") else 0)


def _to_first(model: nn.Module) -> None:
    """All of it on one GPU, wherever its parts are."""
    model.to(gpu(0))
