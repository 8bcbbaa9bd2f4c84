"""What a watched run and the runs of a job say."""
