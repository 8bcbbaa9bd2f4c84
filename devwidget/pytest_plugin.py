"""The pytest plugin: a suite on virtual GPUs, tests that fail on a misplaced tensor, and the reason behind a failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from devwidget.api import Recording
    from devwidget.records.finding import Finding

_MARKER = """placement(fail_on=("error", "warning"), allow=()): watch the test, which fails if a tensor of it is in the wrong \
place; `allow` as for devwidget.check"""
_SIMULATION = pytest.StashKey[Any]()
_PROPERTY, _EXPLAINER = "devwidget", "devwidget-explainer"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that do nothing, and load nothing, unless they are given."""
    add = parser.getgroup("devwidget", "placement of tensors").addoption
    add("--devwidget-gpus", metavar="N", type=int, default=0, help="run the suite on N virtual GPUs, and explain failures")
    add("--devwidget-memory", metavar="SIZE", help="of each virtual GPU, such as 16GiB")
    add("--devwidget-card", metavar="NAME", help="in its place the kind of card that each is, such as A100-80GB")
    add("--devwidget-explain", action="store_true", help="explain failures that are about devices, on the GPUs that there are")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start before anything of the suite is imported: `skipif(not torch.cuda.is_available())` is asked then."""
    _start(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker; start here where the plugin was loaded late, by a conftest."""
    config.addinivalue_line("markers", _MARKER)
    _start(config, config.option)
    if config.option.devwidget_gpus or config.option.devwidget_explain:
        _explain(config)


def _explain(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(_EXPLAINER):
        config.pluginmanager.register(_Explainer(), _EXPLAINER)


def _start(config: pytest.Config, options: Any) -> None:
    if _SIMULATION in config.stash or not options.devwidget_gpus:
        return
    from devwidget import api
    from devwidget.records.errors import DevwidgetError

    try:
        asked = api.simulate(options.devwidget_gpus, options.devwidget_memory, card=options.devwidget_card)
        config.stash[_SIMULATION] = asked.start()
    except DevwidgetError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the virtual GPUs."""
    if _SIMULATION in config.stash:
        config.stash[_SIMULATION].stop()


@pytest.fixture
def placement(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """Watches the test: `placement.trace` is what was seen so far, `placement.attach(model)` names the modules."""
    from devwidget import api

    hops, _ = api.allowed(_marked(request.node).get("allow", ()))
    with api.record(allow=hops) as recording:
        yield recording


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that is marked has the fixture, whether or not it names it, and is explained where it fails."""
    marked = [item for item in items if item.get_closest_marker("placement") and isinstance(item, pytest.Function)]
    for item in marked:
        if "placement" not in item.fixturenames:
            item.fixturenames.append("placement")
    if marked:
        _explain(config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Judge a marked test when its body has ended."""
    __tracebackhide__ = True
    result = yield
    if isinstance(item, pytest.Function) and item.get_closest_marker("placement") is not None:
        from devwidget import api

        marked = _marked(item)
        recording: Any = item.funcargs["placement"]
        _, kinds = api.allowed(marked.get("allow", ()))
        api.refuse_findings(recording.trace, fail_on=marked.get("fail_on", ("error", "warning")), kinds=kinds)
    return result


def _marked(node: pytest.Item) -> dict[str, Any]:
    """What the marker says; the nearest one counts."""
    marker = node.get_closest_marker("placement")
    return dict(marker.kwargs) if marker is not None else {}


class _Explainer:
    """Says below a failure which tensor was in the wrong place, and what to write."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the explanation, and properties that JUnit files carry."""
        findings, text = _explained(call.excinfo.value) if call.excinfo is not None else ((), "")
        item.user_properties.extend(_properties(findings))
        report = yield
        if text and report.failed:
            report.sections.append(("devwidget", text))
        return report

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """One line."""
        failed = [report for outcome in ("failed", "error") for report in terminalreporter.stats.get(outcome, ())]
        kinds = [[value.partition(" ")[0] for name, value in report.user_properties if name == _PROPERTY] for report in failed]
        counts = Counter(kind for of_one in kinds for kind in of_one)
        gpus = config.option.devwidget_gpus
        parts = [f"{gpus} virtual GPU{'s' if gpus > 1 else ''}"] if gpus else []
        if failed:
            parts.append(f"{sum(map(bool, kinds))} of {len(failed)} failures explained")
        parts += [", ".join(f"{count} {kind}" for kind, count in counts.most_common())] if counts else []
        terminalreporter.write_line(f"devwidget: {' · '.join(parts) or 'no failures'}")


def _explained(error: BaseException) -> tuple[tuple[Finding, ...], str]:
    """Findings behind an exception, and words where its own message does not have them."""
    from devwidget import api
    from devwidget.records.errors import PlacementError

    if isinstance(error, PlacementError):
        return (error.trace.findings if error.trace is not None else ()), ""
    if not api.is_about_placement(error):
        return (), ""
    told = api.explain(error)
    return told.findings, str(told) if told.findings else ""


def _properties(findings: Iterable[Finding]) -> Iterator[tuple[str, str]]:
    for finding in findings:
        yield _PROPERTY, f"{finding.kind} {finding.birth or finding.fault or ''}: {finding.headline}"
        if finding.fixes and finding.fixes[0].edits:
            yield f"{_PROPERTY}-fix", finding.fixes[0].diff()
