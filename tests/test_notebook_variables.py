"""A panel looks at the notebook's variables without running anything of theirs, and keeps none that has no name."""

import gc
import sys
import threading
import weakref
from collections import UserDict
from collections.abc import Mapping

import pytest
import torch
from torch import nn

import devwidget
from devwidget import live_model
from tests import hostile
from tests.hostile import calls


@pytest.fixture
def namespace(monkeypatch):
    """The variables of a notebook."""
    variables: dict = {}
    monkeypatch.setattr(live_model, "_user_namespace", lambda: variables)
    return variables


class Lazy(Mapping):
    """Loads what it is asked for."""

    asked = 0

    def __getitem__(self, key):
        self.asked += 1
        return torch.ones(2)

    def __iter__(self):
        self.asked += 1
        return iter(("a", "b"))

    def __len__(self):
        self.asked += 1
        return 2


class Encoding(UserDict):
    """As the tokenizers of transformers give it."""


def shown(model, *given):
    panel = devwidget.show(model, *given)
    panel.refresh()
    return panel


def test_a_mapping_that_is_no_dict_is_not_read(namespace):
    namespace["lazy"] = Lazy()
    panel = shown(nn.Linear(2, 2))
    assert namespace["lazy"].asked == 0
    assert panel.view.inputs["names"] == []
    panel.close()


def test_dicts_and_encodings_of_tensors_are_offered_as_batches(namespace):
    namespace |= {"batch": {"input": torch.ones(2)}, "encoding": Encoding(input=torch.ones(2)), "words": {"a": 1}}
    panel = shown(nn.Linear(2, 2))
    assert panel.view.inputs["names"] == ["batch", "encoding"]
    panel.close()


class Reader(nn.Linear):
    def forward(self, tokens):
        return super().forward(tokens)


def test_the_variable_that_sounds_like_the_batch_is_offered_first(namespace):
    namespace |= {name: torch.ones(1, 2) for name in ("weights", "train_batch", "labels", "tokens")}
    panel = shown(Reader(2, 2))
    assert panel.view.inputs["names"] == ["tokens", "train_batch", "weights", "labels"]
    panel.close()


@pytest.mark.parametrize("raises", [False, True])
def test_a_panel_runs_no_code_of_the_variables(namespace, raises):
    calls.clear()
    for base in (object, list, tuple, dict, UserDict, set, str, nn.Linear):
        kind = hostile.hostile(base, raises=raises, meta=True)
        namespace[base.__name__] = base.__new__(kind)
    model = nn.Linear(2, 2)
    panel = shown(model, torch.ones(1, 2))
    panel.run_trace()
    panel.close()
    assert calls == []


def test_a_batch_without_a_name_goes_with_its_panel():
    batch = torch.ones(1, 2)
    gone, model = weakref.ref(batch), nn.Linear(2, 2)
    panel = shown(model, batch)
    panel.run_trace()
    del batch
    assert gone() is not None
    panel.close()
    gc.collect()
    assert gone() is None


def test_a_batch_without_a_name_goes_with_the_model():
    batch, model = torch.ones(1, 2), nn.Linear(2, 2)
    gone = weakref.ref(batch)
    panel = shown(model, batch)
    del batch, model
    gc.collect()
    assert gone() is None
    panel.close()


def test_a_panel_that_is_shown_no_more_lets_go_of_its_batch_after_a_cell():
    batch, model = torch.ones(1, 2), nn.Linear(2, 2)
    gone = weakref.ref(batch)
    panel = shown(model, batch)
    del batch
    panel.after_cell()  # the cell that shows it: the page has not drawn it yet
    panel.view._view_count = 1
    panel.after_cell()
    assert gone() is not None
    panel.view._view_count = 0  # its cell ran again, and shows another panel
    panel.after_cell()
    gc.collect()
    assert gone() is None
    with pytest.raises(devwidget.api.DevwidgetError, match="no longer exists"):
        panel.run_trace()
    panel.close()


def test_an_optimizer_without_a_name_does_not_keep_the_parameters_of_a_dead_model():
    model = nn.Linear(2, 2)
    gone = weakref.ref(model.weight)
    panel = devwidget.show(model, optimizer=torch.optim.SGD(model.parameters()))
    del model
    gc.collect()
    assert gone() is None
    panel.close()


def test_a_model_that_another_thread_changes_is_read_all_the_same():
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(20)))
    panel, ended = devwidget.show(model), threading.Event()

    def change() -> None:
        at = 0
        while not ended.is_set():
            at += 1
            model.__dict__[f"extra_{at % 7}"] = [torch.ones(1)] * (at % 5)
            model.__dict__.pop(f"extra_{(at + 3) % 7}", None)
            model.add_module(f"more_{at % 5}", nn.Linear(2, 2))
            model._modules.pop(f"more_{(at + 2) % 5}", None)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=change)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(60):
            panel.refresh()
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(before)
        panel.close()
