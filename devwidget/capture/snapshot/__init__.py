"""Read one module tree for a snapshot, without changing or loading anything."""
