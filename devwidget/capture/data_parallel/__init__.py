"""nn.DataParallel: check whether it can run, watch its four steps, and record each call."""
