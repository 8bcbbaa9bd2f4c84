"""What people record a model with, each as a context around its passes and as one whole call that reads the results too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bare_facts import bare_facts
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from workloads import Workload

import devwidget

Pass = Callable[[], object]


@dataclass(frozen=True)
class Recorder:
    """One tool.

    Attributes:
        tells: what it writes down of each operator.
        opened: a context in which it records; None for a tool that runs the model itself.
        read: takes what the context gave, and makes of it what a user looks at.
        call: the whole call, for a tool that runs the model itself; a forward pass alone.
        several: one context bears more than one pass.
        words: all that its results say, as text.
    """

    tells: str
    opened: Callable[[Workload], contextlib.AbstractContextManager[Any]] | None = None
    read: Callable[[Any], object] = lambda recorded: recorded
    call: Callable[[Workload], object] | None = None
    several: bool = True
    words: Callable[[Any], str] = str

    def result(self, load: Workload) -> Any:
        """What a user looks at after one forward."""
        if self.call is not None:
            return self.call(load)
        with self.opened(load) as recorded:
            load.forward()
        return self.read(recorded)

    def whole(self, load: Workload, run: Pass) -> Pass:
        """Set-up, pass and results."""
        if self.call is not None:
            return lambda: self.call(load)

        def whole() -> object:
            with self.opened(load) as recorded:
                run()
            return self.read(recorded)

        return whole


class _NoFunction(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _NoDispatch(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _bare(load: Workload) -> Iterator[None]:
    hooks = register_module_forward_pre_hook(lambda *_: None), register_module_forward_hook(lambda *_: None)
    try:
        with _NoFunction(), _NoDispatch():
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _debug_mode(**facts: bool) -> Callable[[Workload], contextlib.AbstractContextManager[Any]]:
    def opened(load: Workload) -> contextlib.AbstractContextManager[Any]:
        from torch.utils._debug_mode import DebugMode

        return DebugMode(**facts)

    return opened


def _profiler(load: Workload) -> contextlib.AbstractContextManager[Any]:
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU], with_stack=True, record_shapes=True, profile_memory=True)


@contextlib.contextmanager
def _mem_tracker(load: Workload) -> Iterator[Any]:
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(load.model, load.optimizer)
    with tracker:
        yield tracker


def _torchlens(load: Workload) -> object:
    import torchlens

    return torchlens.trace(load.model, load.batch[0])


def _of_each(found: Iterable[Any]) -> str:
    """Every field of every record."""
    return "\n".join(f"{each} {getattr(each, '__dict__', '')}" for each in found)


RECORDERS = {
    "bare modes and hooks": Recorder("nothing: the floor of every recorder in Python", _bare),
    "bare, same facts": Recorder(
        "device, module, line, birth, and nothing else: the floor of these facts", lambda load: bare_facts()
    ),
    "devwidget.record": Recorder(
        "device, module, line, birth, transfers, findings",
        lambda load: devwidget.record(),
        lambda recording: recording.trace,
        words=lambda trace: _of_each(trace.ops),
    ),
    "devwidget.trace": Recorder(
        "the same, a step of its own, all put back",
        call=lambda load: devwidget.trace(load.model, load.batch[0]),
        words=lambda trace: _of_each(trace.ops),
    ),
    "DebugMode": Recorder("name, dtypes, shapes", _debug_mode(), lambda mode: mode.debug_string()),
    "DebugMode, all facts": Recorder(
        "the same with stacks, modules and ids",
        _debug_mode(record_nn_module=True, record_stack_trace=True, record_ids=True),
        lambda mode: mode.debug_string(),
    ),
    "torch.profiler": Recorder(
        "times, with stacks, shapes and memory",
        _profiler,
        lambda profile: profile.key_averages(),
        words=_of_each,
    ),
    "MemTracker": Recorder(
        "bytes by category and module", _mem_tracker, lambda tracker: tracker.get_tracker_snapshot("peak"), several=False
    ),
    "torchlens": Recorder(
        "every tensor's graph, line and value",
        call=_torchlens,
        words=lambda log: "\n".join(f"{op.module} {op.code_context}" for op in log.layer_list),
    ),
}
