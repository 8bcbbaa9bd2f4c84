"""Classes whose metaclass raises where classes are compared, or has no hash: nobody asks it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import devwidget


class Quarrelsome(type):
    def __eq__(cls, other: object) -> bool:
        raise ValueError("classes are not compared")

    def __hash__(cls) -> int:
        return 7


class Unhashable(type):
    def __eq__(cls, other: object) -> bool:
        raise ValueError("classes are not compared")

    __hash__ = None  # type: ignore[assignment]


def parts(metaclass: type) -> tuple[nn.Module, Any, Any]:
    """A model of two classes that holds helpers, its optimizer, and a batch and a loss of such classes."""

    class Helper(metaclass=metaclass):
        def __init__(self) -> None:
            self.mask = torch.ones(2)

    class Inner(nn.Module, metaclass=metaclass):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2))

        def forward(self, x: Any) -> Any:
            return x * self.scale

    class Net(nn.Module, metaclass=metaclass):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.inner, self.helper, self.helpers = nn.Linear(2, 2), Inner(), Helper(), [Helper(), {"a": Helper()}]

        def forward(self, x: Any, helper: Any = None) -> Any:
            return self.inner(self.layer(x))

    class Optimizer(torch.optim.SGD, metaclass=metaclass):
        pass

    class Loss(metaclass=metaclass):
        def __call__(self, out: Any) -> Any:
            return out.sum()

    class Batch(dict, metaclass=metaclass):
        pass

    model = Net()
    optimizer = Optimizer(model.parameters(), lr=0.1)
    holder = Helper()
    holder.model = model  # type: ignore[attr-defined]
    return model, Batch(x=torch.ones(1, 2), helper=holder), {"loss_fn": Loss(), "optimizer": optimizer}


@pytest.fixture(params=[Quarrelsome, Unhashable])
def made(request: pytest.FixtureRequest) -> Any:
    return parts(request.param)


def test_a_model_of_such_classes_is_read_and_traced(made: Any) -> None:
    model, batch, step = made
    assert len(devwidget.snapshot(model, optimizer=step["optimizer"]).modules) == 3
    for _ in range(2):
        trace = devwidget.trace(model, batch, **step)
        assert trace.ops
        assert not any(reason.startswith("recorder") for reason in trace.not_checked)


def test_a_step_with_such_classes_is_recorded(made: Any) -> None:
    model, batch, step = made
    with devwidget.record() as recording:
        step["loss_fn"](model(**batch)).backward()
        step["optimizer"].step()
    assert not any(reason.startswith("recorder") for reason in recording.trace.not_checked)


def test_a_panel_opens_on_such_a_model_and_traces_it(made: Any) -> None:
    model, batch, step = made
    panel = devwidget.show(model, batch, **step)
    panel.run_trace()
    panel.refresh()
    panel.close()


def test_a_fault_among_such_classes_is_explained(made: Any) -> None:
    model, batch, _ = made
    with devwidget.simulate(1):
        with pytest.raises(RuntimeError) as raised:
            model.cuda()(**batch)
        assert str(devwidget.explain(raised.value))
        assert devwidget.trace(model, batch).findings
