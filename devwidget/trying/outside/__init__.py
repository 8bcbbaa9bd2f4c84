"""Outside: what a step touches beyond what is put back, and who else could notice that it runs once more."""
