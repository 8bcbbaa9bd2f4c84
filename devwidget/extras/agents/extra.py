"""What assistants get."""

from devwidget.extras import Extra

EXTRA = Extra(
    names={"Evidence": "records.evidence", "try_edit": "try_edit"},
    records={"Evidence": "records.evidence"},
    words=("words",),
)
