"""What a trial of an edit has shown."""
