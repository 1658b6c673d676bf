"""What keeps a relay in order: housekeeping, watched files, settings, rules, numbers."""
