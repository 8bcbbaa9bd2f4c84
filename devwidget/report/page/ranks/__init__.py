"""What a page needs to draw all ranks of a job."""
