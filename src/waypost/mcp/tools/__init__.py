"""The nine tools: arguments, structured results, and what each does."""
