"""Jobs beside build and backtest: stream, restore, synthesize, import-trace."""
