"""A tensor or a module is where the step cannot use it."""
