"""A view -> a plotly figure, as plain JSON without plotly's default template.

Neutral colours (text, grid, paper) are left to the page, which knows the theme.
"""
