"""Text of every record; importing this registers how they print."""

from devwidget.report.text.answers.generation_text import generation_text
from devwidget.report.text.answers.layout_text import layout_text
from devwidget.report.text.answers.parallel_plan_text import parallel_plan_text
from devwidget.report.text.answers.what_if_text import what_if_text
from devwidget.report.text.cluster_text import cluster_text, report_text
from devwidget.report.text.comparison_text import comparison_text
from devwidget.report.text.explanation_text import explanation_text
from devwidget.report.text.finding_text import finding_text
from devwidget.report.text.pipeline_text import pipeline_text
from devwidget.report.text.plan_text import plan_text
from devwidget.report.text.snapshot_text import snapshot_text
from devwidget.report.text.trace_text import trace_text

__all__ = [
    "cluster_text",
    "comparison_text",
    "explanation_text",
    "finding_text",
    "generation_text",
    "layout_text",
    "parallel_plan_text",
    "pipeline_text",
    "plan_text",
    "report_text",
    "snapshot_text",
    "trace_text",
    "what_if_text",
]
