"""The live model behind a panel: weakly held, its batch found in the notebook, bad input refused."""

import gc
import sys
import threading
import weakref

import pytest
import torch
from torch import nn

import devwidget
from devwidget import live_model
from devwidget.capture.step.batch import TARGET_LEFT_OUT
from devwidget.panel.actions import TraceRequest


@pytest.fixture
def namespace(monkeypatch):
    """The variables of a notebook."""
    variables: dict = {}
    monkeypatch.setattr(live_model, "_user_namespace", lambda: variables)
    return variables


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x, scale=1.0):
        return self.lin(x) * scale


def opened_on(model, expression="", batch=None, loss=None):
    engine = live_model.Engine(devwidget.snapshot, devwidget.trace, tuple)
    return live_model.Live(model, None, {"batch": batch, "loss": loss, "target": None}, expression, engine)


def test_the_model_is_freed_while_its_panel_is_shown():
    model = Net()
    gone = weakref.ref(model)
    with devwidget.simulate(gpus=1):
        model.to("cuda:0")
        panel = devwidget.show(model, torch.randn(3, 4, device="cuda:0"), loss_fn=lambda out: out.sum())
        panel.run_trace()
        panel._repr_mimebundle_()
        del model
        gc.collect()
        assert gone() is None
        panel.refresh()
        assert panel.view.gone
    panel.close()


def test_a_panel_takes_one_item_of_an_iterator_however_often_it_traces(namespace):
    namespace["rows"] = rows = (torch.full((3, 4), float(number)) for number in range(3))
    model = Net()
    panel = opened_on(model, "rows")
    first, second = (panel.trace_step(panel.request, print) for _ in range(2))
    assert next(rows)[0, 0] == 1
    assert (len(first.not_restored), second.not_restored) == (1, ())


def test_a_panel_holds_an_iterator_weakly_and_lets_go_of_its_item(namespace):
    row = torch.ones(3, 4)
    namespace["rows"] = (each for each in [row])
    model = Net()
    panel = opened_on(model, "rows")
    panel.trace_step(panel.request, print)
    gone = weakref.ref(row), weakref.ref(namespace.pop("rows"))
    panel.forget_batch()
    del row
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_expressions_are_evaluated_at_each_trace(namespace):
    model = Net()
    namespace |= {"model": model, "batch": torch.randn(3, 4), "loss": lambda out: out.sum()}
    opened = opened_on(model, batch=namespace["batch"], loss=namespace["loss"])
    assert (opened.request.batch, opened.request.loss, opened.request.target) == ("batch", "loss", "")
    first = opened.trace_step(opened.request, lambda phase: None)
    namespace["batch"] = torch.randn(7, 4)
    assert first.error == opened.trace_step(opened.request, lambda phase: None).error == ""


@pytest.mark.parametrize("batch", ["loader", "next(iter(loader))"])
def test_what_the_field_suggests_works_for_a_loader_of_pairs(namespace, batch):
    rows = torch.utils.data.TensorDataset(torch.randn(4, 3), torch.zeros(4, 1))
    namespace.update(net=nn.Linear(3, 1), loader=torch.utils.data.DataLoader(rows, batch_size=2), loss=nn.MSELoss())
    panel = devwidget.show(namespace["net"])
    for request in (TraceRequest(batch), TraceRequest(batch, "loss")):
        assert panel.run_trace(request).error == ""
    panel.close()


def test_variables_that_fit_forward_come_first(namespace):
    namespace |= {"words": ["a"], "wrong": {"picture": torch.ones(1)}, "x": torch.ones(2, 4), "n": 3}
    assert opened_on(Net()).find_batches() == ("x", "wrong")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / 0", "raised ZeroDivisionError"),
        ("bath", "raised NameError(.|\n)*did you mean 'batch'"),
        ("x =", "raised SyntaxError"),
        ("", "no batch to trace"),
        ("text", r"does not fit Net.forward(.|\n)*\(x, scale=1.0\)"),
    ],
)
def test_a_bad_batch_is_refused_with_a_reason(namespace, expression, message):
    namespace |= {"batch": torch.ones(2, 4), "text": {"words": torch.ones(2)}}
    model = Net()
    opened = opened_on(model, expression)
    with pytest.raises(devwidget.BatchError, match=message):
        opened.trace_step(opened.request, lambda phase: None)


def test_a_model_without_parameters_can_be_shown_and_traced():
    model = nn.Sequential(nn.ReLU())
    panel = devwidget.show(model, torch.ones(2))
    assert panel.run_trace().findings == ()
    assert devwidget.snapshot(model).modules[1].class_name == "ReLU"
    panel.close()


def test_main_is_the_namespace_without_ipython(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert live_model._user_namespace() is vars(sys.modules["__main__"])


def test_the_lines_below_a_batch_expression_are_told_and_its_exception_is_kept(namespace):
    def collate():
        raise KeyError("images")

    namespace |= {"collate": collate}
    model = Net()
    opened = opened_on(model, "collate()")
    with pytest.raises(devwidget.BatchError, match=r"raised KeyError: 'images'") as caught:
        opened.trace_step(opened.request, lambda phase: None)
    line = collate.__code__.co_firstlineno + 1
    assert caught.value.why == f'test_live_model.py:{line} in collate: raise KeyError("images")'
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_expression_whose_exception_cannot_be_written_is_still_refused(namespace):
    class Silent(Exception):
        def __str__(self):
            raise ValueError("no text")

    def collate():
        raise Silent

    namespace |= {"collate": collate}
    model = Net()
    opened = opened_on(model, "collate()")
    with pytest.raises(devwidget.BatchError, match="Silent"):
        opened.trace_step(opened.request, lambda phase: None)


def test_a_model_that_nobody_else_holds_lives_as_long_as_its_panel_is_shown(namespace):
    engine = live_model.Engine(devwidget.snapshot, devwidget.trace, tuple)
    opened = live_model.Live(Net(), None, {"batch": torch.randn(3, 4), "loss": None, "target": None}, "", engine)
    gc.collect()
    assert opened.take_snapshot() is not None
    opened.forget_batch()
    gc.collect()
    assert opened.take_snapshot() is None


def test_progress_names_the_module_and_its_share(monkeypatch):
    monkeypatch.setattr("devwidget.capture.recorder.EVERY_SECONDS", 0.0)
    said = []
    devwidget.trace(nn.Sequential(Net(), nn.ReLU()), torch.randn(3, 4), progress=said.append, verify=False)
    assert said == ["forward", "forward of 0, 50 %", "forward of 0.lin, 75 %", "forward of 1, 99 %", "loss"]


def test_gradients_are_read_in_the_thread_that_trains_and_never_where_they_are_asked_for(namespace, monkeypatch):
    def looking(model, optimizer):
        seen.append(threading.current_thread())
        return {"gpu": {}}

    seen, model = [], Net()
    monkeypatch.setattr("devwidget.capture.memory.training_state.training_bytes", looking)
    optimizer = torch.optim.SGD(model.parameters())
    opened = opened_on(model)
    training = threading.Thread(target=optimizer.step)
    assert opened.sum_training() == {}
    training.start()
    training.join()
    assert (opened.sum_training(), seen) == ({"gpu": {}}, [training])
    opened.forget_batch()


def test_a_step_of_another_model_is_not_looked_at(namespace):
    model, other = Net(), Net()
    opened = opened_on(model)
    opened.sum_training()
    other.lin.weight.grad = torch.ones_like(other.lin.weight)
    torch.optim.SGD(other.parameters()).step()
    assert opened.sum_training() == {}
    opened.forget_batch()


class Line(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)


def test_a_pair_in_the_batch_field_is_batch_and_target_and_without_a_loss_the_trace_says_what_is_left_out(namespace):
    namespace.update(x=torch.randn(6, 4), y=torch.randn(6, 2), loss=nn.MSELoss())
    model = Line()
    opened = opened_on(model)
    with_loss, without = (opened.trace_step(TraceRequest("(x, y)", loss), print) for loss in ("loss", ""))
    assert with_loss.phases == ("forward", "loss", "backward")
    assert TARGET_LEFT_OUT not in with_loss.not_checked
    assert TARGET_LEFT_OUT in without.not_checked


@pytest.mark.parametrize("batch", ["(x, y)", "loader"])
def test_a_trace_of_some_samples_takes_the_first_of_batch_and_target(namespace, batch):
    namespace.update(x=torch.randn(6, 4), y=torch.randn(6, 2), loss=nn.MSELoss())
    rows = torch.utils.data.TensorDataset(namespace["x"], namespace["y"])
    namespace["loader"] = torch.utils.data.DataLoader(rows, batch_size=6)
    model = Line()
    opened = opened_on(model)
    assert opened.trace_step(TraceRequest(batch, "loss", samples=2), print).samples == 2
    assert opened.trace_step(TraceRequest(batch, "loss"), print).samples == 6
