"""The operations, by what they are about. Each module ends with the list of its own."""
