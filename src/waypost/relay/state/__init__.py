"""The state that the journal's events produce, its index on disk, and recovery."""
