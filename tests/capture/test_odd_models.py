"""Models that run plain are read and recorded too, whatever their classes override."""

import sys
import weakref

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.source_code.stack import locals_of
from tests import hostile

copied_by_python = pytest.mark.skipif(sys.version_info >= (3, 13), reason="each `locals()` is a copy from Python 3.13 on")


class Overriding(nn.Module):
    """Answers none of the questions that a walk over modules would ask."""

    __hash__ = None

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def __eq__(self, other):
        raise ZeroDivisionError

    def modules(self):
        raise ZeroDivisionError

    parameters = named_modules = named_parameters = buffers = named_buffers = children = state_dict = modules

    def __len__(self):
        raise ZeroDivisionError

    __iter__ = __bool__ = __str__ = __repr__ = __len__

    def forward(self, x):
        return self.inner(x)


class NoSuchName(nn.Module):
    """Refuses every name that is not there."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def __getattr__(self, name):
        if name in self.__dict__["_modules"]:
            return self.__dict__["_modules"][name]
        raise ZeroDivisionError(name)

    def forward(self, x):
        return self.inner(x)


class Refusing(torch.Tensor):
    """Answers no question."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise ZeroDivisionError(func)


class Holding(nn.Module):
    """Has a tensor in a plain attribute, and in a buffer if it can be registered."""

    def __init__(self, tensor):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.__dict__["held"] = tensor
        self._buffers["kept"] = tensor

    def forward(self, x):
        return self.inner(x)


class HostileEq(type(nn.Module)):
    def __eq__(cls, other):
        raise ZeroDivisionError

    __hash__ = None


class OddClass(Overriding, metaclass=HostileEq):
    pass


def freed():
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


def inference():
    with torch.inference_mode():
        return torch.ones(2)


TENSORS = {
    "inference": inference,
    "freed": freed,
    "expanded": lambda: torch.ones(1).expand(10**12),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "int4": lambda: torch.empty(4, dtype=torch.int4),
    "refusing": lambda: torch.ones(2).as_subclass(Refusing),
    "meta": lambda: torch.ones(2, device="meta"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_any_kind_in_a_model_is_read_and_recorded_over(name):
    model = Holding(TENSORS[name]())
    found = devwidget.snapshot(model)
    assert {each.name for each in found.modules[0].tensors} >= {"held", "kept"}
    with devwidget.record() as recording:
        recording.attach(model)
        model(torch.ones(1, 2))
    assert len(recording.trace.modules) == 2
    assert not [line for line in recording.trace.not_checked if line.startswith("recorder:")]
    panel = devwidget.show(model)
    panel.refresh()
    panel.refresh()
    panel.close()


@pytest.mark.parametrize("kind", [Overriding, NoSuchName, OddClass])
def test_a_module_that_overrides_what_is_asked_of_modules_is_read_and_recorded(kind):
    model = kind()
    assert [module.path for module in devwidget.snapshot(model).modules] == ["", "inner"]
    with devwidget.record(heal=True) as recording:
        recording.attach(model)
        model(torch.ones(1, 2))
    assert {module.path for module in recording.trace.modules} == {"", "inner"}
    assert not [line for line in recording.trace.not_checked if line.startswith("recorder:")]
    panel = devwidget.show(model)
    panel.refresh()
    panel.close()


class Unspeakable(RuntimeError):
    def __str__(self):
        raise ZeroDivisionError

    __repr__ = __len__ = __bool__ = __hash__ = __str__

    def __eq__(self, other):
        raise ZeroDivisionError


class Failing(nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.args = args

    def forward(self, x):
        raise Unspeakable(*self.args)


HOSTILE = hostile.hostile(object, raises=True)()


@pytest.mark.parametrize(
    ("args", "text"), [(("on cuda:0",), "on cuda:0"), ((), ""), ((1, "a"), "(1, a)"), ((HOSTILE,), "<Hostileobject>")]
)
def test_an_exception_that_cannot_be_written_stays_itself(args, text):
    model, recording = Failing(*args), devwidget.record()
    assert escapes(lambda: recorded(recording, model)) is Unspeakable
    assert recording.trace.error == f"Unspeakable: {text}"
    assert devwidget.trace(model, torch.ones(1)).error == f"Unspeakable: {text}"
    assert escapes(lambda: devwidget.check(model, torch.ones(1))) is devwidget.api.PlacementError
    given, last, asked = explained(model)
    assert given == last == f"Unspeakable: {text}"
    assert asked == ("cuda" in text)


def recorded(recording, model):
    with recording:
        model(torch.ones(1))


def explained(model):
    """What is said of the exception that a model raises: of itself, of the last one, and whether it is about devices."""
    try:
        return model(torch.ones(1))
    except Unspeakable as error:
        return devwidget.explain(error).error, devwidget.explain().error, devwidget.api.is_about_placement(error)


def escapes(run):
    """The class of what a call raises; pytest itself cannot write such an exception."""
    try:
        run()
    except Exception as error:
        return type(error)


def test_reading_variables_keeps_no_object_alive():
    def reads():
        thing = nn.Linear(1, 1)
        gone = weakref.ref(thing)
        assert locals_of(frame())["thing"] is thing
        del thing
        assert gone() is None

    frame = lambda: sys._getframe(1)
    reads()


@copied_by_python
def test_a_variable_that_exec_made_stays():
    def writes():
        exec("made = 5")
        locals_of(sys._getframe())
        return locals()["made"]

    assert writes() == 5
