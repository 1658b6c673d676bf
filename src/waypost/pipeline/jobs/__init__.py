"""Jobs besides ingest, build, backtest and report: stream, restore, synthesize, import-trace."""
