"""Programs with one bug each, an edit that is right, and one that looks right."""
