"""Plans and layouts as widgets."""
