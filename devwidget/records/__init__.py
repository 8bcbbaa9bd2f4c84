"""Facts: frozen dataclasses that hold no live tensor, module or widget, and import nothing but the standard library."""
