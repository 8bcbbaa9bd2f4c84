"""Text of every record; importing this registers how they print."""

from devwidget.report.explanation_text import explanation_text
from devwidget.report.finding_text import finding_text
from devwidget.report.plan_text import plan_text
from devwidget.report.snapshot_text import snapshot_text
from devwidget.report.trace_text import trace_text

__all__ = ["explanation_text", "finding_text", "plan_text", "snapshot_text", "trace_text"]
