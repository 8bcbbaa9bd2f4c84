"""SCREEN: the only code that imports ipywidgets, anywidget and plotly."""
