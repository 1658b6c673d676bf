"""The journal: appending events, making them durable, reading them back."""
