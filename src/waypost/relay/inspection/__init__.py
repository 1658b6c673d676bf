"""Read-only access: statistics, search, histories, dead letters, snapshots of a data directory."""
