"""Periodic tasks: expiry, purging, checkpoints, sealing and deleting journal segments."""
