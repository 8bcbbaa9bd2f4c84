"""Records as a page draws them: cards, packed tables, and standalone HTML."""
