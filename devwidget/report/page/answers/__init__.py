"""Answers as pages without script: a plan, a comparison, what would fit."""
