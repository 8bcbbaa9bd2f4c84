"""SCREEN: the only code that imports ipywidgets and anywidget."""

from devwidget.records.errors import require_package
from devwidget.records.schema.message import Message

for _package in ("ipywidgets", "anywidget"):
    require_package(_package, Message("a panel"))
