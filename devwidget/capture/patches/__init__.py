"""Places in torch that no mode or hook sees, patched while a recording runs and put back after it."""
