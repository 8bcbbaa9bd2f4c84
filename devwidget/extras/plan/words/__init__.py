"""Plans, layouts and answers as parts, which text and pages draw."""
