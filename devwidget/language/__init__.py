"""WORDS: the language in which reports speak, and the catalogues of translations."""
