"""ACCOUNTING: records -> bytes per device and category; every storage counted once."""
