"""Table storage: versions, atomic commits, and the schema of `events`."""
