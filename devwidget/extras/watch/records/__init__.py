"""Records of a watched run and of the runs of a job."""
