"""Records as text, and the sentences that text and pages share."""
