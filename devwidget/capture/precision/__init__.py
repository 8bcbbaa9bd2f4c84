"""Failed calls about dtypes, and the autocast regions behind them."""
