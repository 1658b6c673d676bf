"""WebSocket sessions without I/O; `session` is one agent, `hub` are all that are connected."""
