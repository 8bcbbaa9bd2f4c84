"""What `portable=True` adds to a trace."""

from devwidget.extras import Extra

EXTRA = Extra(rules={"portable": "verified_edits"})
