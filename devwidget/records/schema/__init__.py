"""Common parts of all records: bounds, how they are shown, and how they are written."""
