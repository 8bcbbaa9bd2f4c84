"""What every record is: its bounds, how it is shown, and how it is written."""
