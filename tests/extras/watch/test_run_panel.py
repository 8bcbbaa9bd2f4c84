"""A watched run in the panel: live with its model, or of a file, and the steps that it opens."""

import pytest
import torch

import devwidget
from devwidget.records.errors import DevwidgetError, UnknownNameError


def test_a_run_that_was_watched_has_its_tab_and_its_steps_open():
    model = torch.nn.Linear(2, 2)
    panel = devwidget.show(model)
    assert "summary" not in panel.view.watched
    with devwidget.watch(model) as run:
        for _ in range(12):
            model(torch.ones(1, 2)).sum().backward()
        panel.sample_memory()
        assert panel.live.watched["summary"] == "Watched run of Linear: 12 steps, no findings"
        assert panel.live.watched["over"] == panel.view.watched["drawn"]
    panel.refresh()
    assert [step["step"] for step in panel.view.watched["recorded"]] == [10]
    panel.show_recorded(10)
    assert panel.trace == run.recorded[10]
    assert panel.view.status["text"].startswith("step 10 was recorded: the first steps are over")
    with pytest.raises(UnknownNameError, match="step 11 was not recorded"):
        panel.show_recorded(11)
    panel.close()


def test_a_run_is_shown_live_with_its_model_and_from_its_file_without(tmp_path):
    model = torch.nn.Linear(2, 2)
    with devwidget.watch(model, path=tmp_path / "watch.jsonl") as run:
        for _ in range(12):
            model(torch.ones(1, 2)).sum().backward()
    for shown, facts in ((run, "24 B"), (devwidget.open(tmp_path / "watch.jsonl"), "12 steps")):
        panel = devwidget.show(shown)
        assert (panel.view.opens, panel.view.head["title"], panel.view.head["bytes"]) == ("Watch", "Linear", facts)
        panel.show_recorded(10)
        assert panel.trace == run.recorded[10]
        panel.close()
    with pytest.raises(DevwidgetError, match="has no model to trace"):
        devwidget.show(run.result).run_trace()
