"""Functions that have returned: what their source, their arguments and their branches tell of the values they made."""
