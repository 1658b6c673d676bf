"""Journals as files: which to read, their segments, and their lines as Arrow columns."""
