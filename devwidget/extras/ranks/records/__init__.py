"""Reports of the ranks of a job, and the cluster that combines them."""
