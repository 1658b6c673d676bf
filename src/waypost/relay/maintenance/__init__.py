"""Periodic tasks: expiry, purging, checkpoints, sealing and dropping journal segments."""
