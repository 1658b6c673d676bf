"""The operations of commands on a served relay: over HTTP, and as a connected agent."""
