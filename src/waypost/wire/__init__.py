"""Formats shared by processes: journal, files, frames, HTTP bodies. Pure, like the policy."""
