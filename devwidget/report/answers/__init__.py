"""Answers to questions about a plan, comparisons and schedules: each as parts, which text and pages draw."""
