"""What is written down: the journal, how it becomes durable, and how it is read back."""
