"""A view -> a plotly figure, as plain JSON without plotly's default template.

Neutral colours (text, grid, paper) are left to the page, which knows the theme.
"""

from devwidget.report.figures.frame import Figure
from devwidget.report.figures.memory import memory_figure, memory_steps_figure
from devwidget.report.figures.timeline import timeline_figure

__all__ = ["Figure", "memory_figure", "memory_steps_figure", "timeline_figure"]
