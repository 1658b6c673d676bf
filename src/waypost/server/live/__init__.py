"""Live statistics for the dashboard: sampled once a second, sent as server-sent events."""
