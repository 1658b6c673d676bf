"""Read-only views of a relay: statistics, search, and snapshots of a data directory."""
