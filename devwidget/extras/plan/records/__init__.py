"""What a plan, a layout and the answers about them say."""
