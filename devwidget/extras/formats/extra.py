"""In which formats findings are written for other programs."""

from devwidget.extras import Extra

EXTRA = Extra(
    formats={"json": "findings_json", "brief": "findings_json", "sarif": "sarif", "perfetto": "perfetto"},
    commands=("commands",),
)
