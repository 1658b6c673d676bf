"""TCP connections of a served relay: accepted up to a limit, bounded in bytes and in time."""
