"""What other tools wrote: memory snapshots, traces of the profiler, stacks."""
