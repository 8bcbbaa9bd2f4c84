"""Functions and classes of the program, and the global variables that they use."""
