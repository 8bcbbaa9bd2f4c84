"""Panels leave nothing behind, and keep no model alive."""

import gc
import weakref

import comm
import pytest
import torch
from ipywidgets.widgets.widget import _instances
from torch import nn

import devwidget
from devwidget.panel.actions import TraceRequest


def counted():
    """Widgets, comms, and objects that Python tracks."""
    gc.collect()
    return len(_instances), len(getattr(comm.get_comm_manager(), "comms", ())), len(gc.get_objects())


def open_and_close_five(model):
    panels = [devwidget.show(model) for _ in range(5)]
    for panel in panels:
        panel.refresh()
        panel.refresh()
        panel.close()


def test_panels_opened_and_closed_leave_nothing():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for _ in range(2):
        open_and_close_five(model)
    widgets, comms, objects = counted()
    for _ in range(6):
        open_and_close_five(model)
    later = counted()
    assert later[:2] == (widgets, comms)
    assert later[2] < objects + 30  # thirty panels: not one object for each


def fail(panel):
    with pytest.raises(devwidget.BatchError):
        panel.run_trace(TraceRequest("1 / 0"))


LIFE = {
    "shown": lambda panel: None,
    "watched": lambda panel: [panel.refresh() for _ in range(3)],
    "traced": lambda panel: panel.run_trace(),
    "sampled": lambda panel: panel.sample_memory(),
    "printed": lambda panel: panel._repr_mimebundle_(),
    "saved": lambda panel: panel.control._handle_custom_msg({"id": 1, "ask": "export", "form": "html"}, []),
    "failed": fail,
    "closed": lambda panel: panel.close(),
}


@pytest.mark.parametrize("live", LIFE.values(), ids=LIFE)
def test_the_model_is_freed_by_del_at_any_time(live):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    panel = devwidget.show(model, torch.ones(1, 2), loss_fn=lambda out: out.sum())
    live(panel)
    gone = [weakref.ref(model), weakref.ref(model.weight)]
    del model, optimizer
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    panel.close()
