"""The functions of a class as its author wrote them: a decorator of a library may have put others in their place."""

import functools

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.source_code.classes import functions_of

SOURCE = """
def registered(kind):
    original_init, original_forward = kind.__init__, kind.forward

    @wraps(original_init)
    def __init__(self, *args, **kwargs):
        original_init(self, *args, **kwargs)

    def forward(self, *args, **kwargs):
        return original_forward(self, *args, **kwargs)

    kind.__init__, kind.forward = __init__, forward
    return kind
"""
library = {"wraps": functools.wraps}
exec(compile(SOURCE, "<__a library>", "exec"), library)  # names like this one are code that nobody of the project wrote
registered = library["registered"]


@registered
class Experts(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.projection = torch.rand(experts, 4, 4)

    def forward(self, rows):
        return torch.bmm(rows, self.projection.transpose(-2, -1))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = Experts(2)

    def forward(self, rows):
        return self.experts(rows)


@pytest.fixture
def gpu():
    with devwidget.simulate(gpus=1):
        yield


def test_behind_wrappers_of_a_library_the_functions_of_the_author_are_found():
    assert {f.__qualname__ for f in functions_of(Experts)} == {"Experts.__init__", "Experts.forward"}


def test_the_functions_of_an_ordinary_class_and_of_its_bases_are_its_own():
    class Child(Layer):
        @staticmethod
        def helper():
            return None

        @property
        def width(self):
            return 4

    assert [f.__name__ for f in functions_of(Child)] == ["helper", "width", "__init__", "forward"]


def test_what_a_decorated_class_does_not_register_is_born_in_its_constructor(gpu):
    model = Layer().to("cuda:0")
    (found,) = devwidget.trace(model, torch.ones(2, 3, 4, device="cuda:0")).findings
    assert (found.kind, found.birth.text) == ("unregistered-tensor", "self.projection = torch.rand(experts, 4, 4)")
    edits = [fix.edits[0].text.strip() for fix in found.fixes if fix.edits]
    assert "self.projection = nn.Parameter(torch.rand(experts, 4, 4))" in edits


def test_an_explanation_knows_the_owner_of_a_view(gpu):
    model = Layer().to("cuda:0")
    with pytest.raises(RuntimeError) as caught:
        model(torch.ones(2, 3, 4, device="cuda:0"))
    (found,) = devwidget.explain(caught.value).findings
    assert (found.kind, found.birth.text) == ("unregistered-tensor", "self.projection = torch.rand(experts, 4, 4)")
