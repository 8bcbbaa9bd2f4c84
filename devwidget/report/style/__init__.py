"""How things are called and written: units, names, colours, columns, and texts made safe for where they go."""
