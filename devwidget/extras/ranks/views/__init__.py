"""All ranks of a job as rows, cells and sums."""
