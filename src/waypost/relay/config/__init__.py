"""Files an operator edits: settings and access rules, reloaded when they change."""
