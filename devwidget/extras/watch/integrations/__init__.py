"""Trainers of other libraries, watched; each library is loaded when its name is asked for in `devwidget.integrations`."""
