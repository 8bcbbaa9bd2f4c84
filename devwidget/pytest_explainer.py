"""The part of the pytest plugin that explains failures; loaded on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Any

import pytest

from devwidget import api
from devwidget.language.speaking import say
from devwidget.records.errors import PlacementError
from devwidget.records.finding import Finding
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.trace import Trace
from devwidget.report.style.units import count_words
from devwidget.report.writers import find_writer


class Explainer:
    """Print below a failure which tensor is misplaced, and the fix."""

    def __init__(self) -> None:
        self._findings: list[tuple[Finding, ...]] = []
        self._any_ran = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the explanation, and properties that JUnit files carry."""
        report = yield
        item.user_properties.extend(_properties(_explain(report, call)))
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add the explanation for a file that cannot be imported."""
        report = yield
        _explain(report, report.__dict__.get("call"))  # pytest takes it away again once the report is made
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the findings of a file that cannot be imported."""
        self._keep(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the findings of a test, in the process that reports."""
        self._any_ran = True
        self._keep(report)

    def _keep(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self._findings.append(tuple(map(loads, getattr(report, "devwidget", ()))))

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Print one line of summary."""
        gpus, parts = config.option.devwidget_gpus, []
        if gpus:
            parts.append(count_words(gpus, "virtual GPU"))
        if self._findings:
            explained = sum(map(bool, self._findings))
            parts.append(say("{count} of {all} failures explained", count=explained, all=len(self._findings)))
        elif self._any_ran:
            parts.append(say("no failures"))
        else:
            parts.append(say("no tests ran"))
        counts = Counter(finding.kind for finding in chain.from_iterable(self._findings))
        if counts:
            parts.append(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
        terminalreporter.write_line(f"devwidget: {' · '.join(parts)}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the SARIF file, in the process that reports."""
        file = session.config.option.devwidget_sarif
        if file and not hasattr(session.config, "workerinput"):
            trace = Trace(findings=tuple(chain.from_iterable(self._findings)))
            path = session.config.invocation_params.dir / file
            path.write_text(find_writer("sarif").write(trace, session.config.rootpath), encoding="utf-8")


def _explain(report: pytest.TestReport | pytest.CollectReport, call: pytest.CallInfo[Any] | None) -> tuple[Finding, ...]:
    """Add the explanation to the report of a failure."""
    if not report.failed or call is None or call.excinfo is None:
        return ()
    findings, text = _explained(call.excinfo.value)
    report.sections += [("devwidget", text)] if text else []
    report.devwidget = list(map(dumps, findings))  # type: ignore[union-attr]  # as texts: processes of xdist send it
    return findings


def _explained(error: BaseException) -> tuple[tuple[Finding, ...], str]:
    """Return the findings for an exception, and a text that its own message lacks."""
    if isinstance(error, PlacementError):
        return (error.trace.findings if error.trace is not None else ()), ""
    if not api.is_about_placement(error):
        return (), ""
    told = api.explain(error)
    return told.findings, str(told) if told.findings else ""


def _properties(findings: Iterable[Finding]) -> Iterator[tuple[str, str]]:
    for finding in findings:
        yield "devwidget", f"{finding.kind} {finding.birth or finding.fault or ''}: {finding.headline}"
        if finding.fixes and finding.fixes[0].edits:
            yield "devwidget-fix", finding.fixes[0].diff()
