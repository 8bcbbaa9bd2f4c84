"""The language of reports, and the catalogues of translations."""
