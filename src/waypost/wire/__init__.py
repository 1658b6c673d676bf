"""Formats shared by processes: what lies on disk and what crosses a socket. Still pure."""
