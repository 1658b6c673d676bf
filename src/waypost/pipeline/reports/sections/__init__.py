"""The parts of a report: what is said about the facts, and with which charts and tables."""
