"""WebSocket connections: `connection` does the I/O, `session` holds the protocol without it."""
