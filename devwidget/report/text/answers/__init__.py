"""Answers to questions about a plan, as text."""
