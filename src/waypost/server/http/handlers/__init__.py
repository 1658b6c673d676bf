"""The operations by subject; each module ends with the list of its own."""
