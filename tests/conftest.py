"""For every test: one thread, and proof that no hook, mode or patch is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_PATCHABLE = {
    "torch.Tensor.to": lambda: torch.Tensor.to,
    "torch.Tensor.device": lambda: torch.Tensor.device,
    "torch.Tensor.cuda": lambda: torch.Tensor.cuda,
    "nn.Module.to": lambda: nn.Module.to,
    "nn.Module.__call__": lambda: nn.Module.__call__,
    "torch.cuda.is_available": lambda: torch.cuda.is_available,
    "torch.cuda.device_count": lambda: torch.cuda.device_count,
    "torch.accelerator.is_available": lambda: torch.accelerator.is_available,
}
_GLOBAL_HOOKS = [name for name, value in vars(module_hooks).items() if name.startswith("_global_") and isinstance(value, dict)]


def _global_state() -> dict[str, object]:
    """What devwidget may change while it works and must have put back afterwards."""
    return {
        **{name: read() for name, read in _PATCHABLE.items()},
        **{name: tuple(getattr(module_hooks, name)) for name in _GLOBAL_HOOKS},
        "function modes": tuple(map(id, _get_current_function_mode_stack())),
        "dispatch modes": tuple(map(id, _get_current_dispatch_mode_stack())),
        "grad mode": torch.is_grad_enabled(),
    }


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the files under golden/ anew from what is printed now")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Compare what prints as text with `golden/<name>` beside the test; `--update-golden` writes it first."""

    def compare(name: str, shown: object) -> None:
        file = request.path.parent / "golden" / name
        text = f"{shown}\n"
        if request.config.getoption("update_golden"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"run pytest --update-golden {request.path}, and read what it writes"
        assert text == file.read_text(encoding="utf-8")

    return compare


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no process waits for another at the end."""
    slow = {item.path for item in items if "browser" in item.path.parts or item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """With two intra-op threads and other load the zoo takes 10 to 50 times as long."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    before = _global_state()
    yield
    after = _global_state()
    assert {name: after[name] for name in before if after[name] != before[name]} == {}
