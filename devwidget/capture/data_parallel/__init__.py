"""nn.DataParallel: whether it can run, its four steps while it runs, and what is known of each call."""

from devwidget.capture.data_parallel.constructions import first_misplaced, report_misplaced
from devwidget.capture.data_parallel.steps import watch_call

__all__ = ["first_misplaced", "report_misplaced", "watch_call"]
