"""Callbacks for trainers of other libraries. Each library is loaded when you use its name in `devwidget.integrations`."""
