"""What the journal adds up to: the state, its index on disk, and opening it again."""
