"""Agents that are connected: their mail goes out as it comes, and leaves when they confirm it."""
