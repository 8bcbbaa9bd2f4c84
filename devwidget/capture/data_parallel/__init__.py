"""nn.DataParallel: whether it can run, its four steps while it runs, and what is known of each call."""
