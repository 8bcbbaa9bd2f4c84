"""Run one step on a batch, and restore everything."""
