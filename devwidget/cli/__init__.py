"""COMMAND LINE: `python -m devwidget`; what it does is in `api`, what it says in `report`."""
