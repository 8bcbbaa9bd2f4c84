"""Reading saved files: only records of the right types and sizes come out."""
