"""WORDS: findings and views -> text, data frames and HTML, without any widget library."""
