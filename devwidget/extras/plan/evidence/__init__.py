"""How far plans were off: published figures next to their plans, and the bands that follow from them."""
