"""How far plans were off: published figures beside their plans, and the bands that follow from them."""
