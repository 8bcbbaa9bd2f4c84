"""Command line of devwidget: `python -m devwidget`."""
