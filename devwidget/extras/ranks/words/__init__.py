"""All ranks of a job as text and data frames."""
