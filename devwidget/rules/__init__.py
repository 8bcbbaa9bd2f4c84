"""JUDGING: one kind of finding per file; never imports torch."""
