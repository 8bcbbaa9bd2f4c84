"""Answers to questions about a plan, and comparisons: each as parts, which text and pages draw."""
