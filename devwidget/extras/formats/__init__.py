"""Findings for other programs: SARIF for forges and editors, JSON for scripts and agents."""
