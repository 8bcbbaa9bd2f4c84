"""The pytest plugin: tests on virtual GPUs, tests that fail on a misplaced tensor, and explained failures."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from devwidget.language.speaking import said, say
from devwidget.records.device import SIMULATE_VARIABLE
from devwidget.records.schema.message import Message

if TYPE_CHECKING:
    from devwidget.api import Recording

_MARKER = Message("fail the test if one of its tensors is misplaced; `allow` as in devwidget.check")
_SIMULATION = pytest.StashKey[Any]()
_EXPLAINER = "devwidget-explainer"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options. They load nothing unless you pass one."""
    add = parser.getgroup("devwidget", say("tensor placement")).addoption
    add("--devwidget-gpus", metavar="N", type=int, default=0, help=say("run the tests on N virtual GPUs, and explain failures"))
    add("--devwidget-memory", metavar="SIZE", help=say("memory of each virtual GPU, such as 16GiB"))
    add("--devwidget-card", metavar="NAME", help=say("type of each virtual GPU instead of its memory, such as A100-80GB"))
    add("--devwidget-sarif", metavar="FILE", help=say("explain failures, and write them as SARIF for a code host"))
    add(
        "--devwidget-explain",
        action="store_true",
        help=say("explain device-related failures on the real GPUs"),
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start before the tests are imported, which evaluates `skipif(not torch.cuda.is_available())`."""
    _start(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and start here if a conftest loaded the plugin late."""
    config.addinivalue_line("markers", f'placement(fail_on=("error", "warning"), allow=()): {said(_MARKER)}')
    _start(config, config.option)
    if config.option.devwidget_gpus or config.option.devwidget_explain or config.option.devwidget_sarif:
        _explain(config)


def _explain(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(_EXPLAINER):
        from devwidget.pytest_explainer import Explainer

        config.pluginmanager.register(Explainer(), _EXPLAINER)


def _start(config: pytest.Config, options: Any) -> None:
    if _SIMULATION in config.stash or not (options.devwidget_gpus or os.environ.get(SIMULATE_VARIABLE)):
        return
    from devwidget import api, gpus
    from devwidget.records.errors import DevwidgetError

    try:
        asked = gpus.inherited()
        if options.devwidget_gpus:
            asked = api.simulate(options.devwidget_gpus, options.devwidget_memory, card=options.devwidget_card)
        if asked is not None:
            config.stash[_SIMULATION] = asked.start()
    except DevwidgetError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the virtual GPUs."""
    if _SIMULATION in config.stash:
        config.stash[_SIMULATION].stop()


@pytest.fixture
def placement(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """Record the test. `placement.trace` is the trace so far; `placement.attach(model)` names the modules."""
    from devwidget import api

    hops, _ = api.parse_allowed(_marked(request.node).get("allow", ()))
    with api.record(allow=hops) as recording:
        yield recording


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give marked tests the fixture, and explain their failures."""
    functions = [item for item in items if isinstance(item, pytest.Function)]
    marked = [item for item in functions if item.get_closest_marker("placement")]
    for item in marked:
        if "placement" not in item.fixturenames:
            item.fixturenames.append("placement")
    if marked:
        _explain(config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Check a marked test when its body has ended."""
    __tracebackhide__ = True
    result = yield
    if isinstance(item, pytest.Function) and item.get_closest_marker("placement") is not None:
        from devwidget import api

        marked = _marked(item)
        recording: Any = item.funcargs["placement"]
        _, kinds = api.parse_allowed(marked.get("allow", ()))
        api.refuse_findings(recording.trace, fail_on=marked.get("fail_on", ("error", "warning")), kinds=kinds)
    return result


def _marked(node: pytest.Item) -> dict[str, Any]:
    """Return the arguments of the nearest marker."""
    marker = node.get_closest_marker("placement")
    if marker is not None:
        return dict(marker.kwargs)
    return {}
