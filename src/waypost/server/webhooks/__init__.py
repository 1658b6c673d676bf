"""Webhooks: notices to agents that are not connected, posted to their own URLs."""
