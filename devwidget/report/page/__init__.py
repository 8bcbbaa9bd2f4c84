"""Records as a page draws them: cards, the module tree, and standalone HTML."""
