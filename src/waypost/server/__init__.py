"""LISTENS: serves the relay to other processes, over HTTP and WebSocket.

Imports `relay` and below, never `client`. It authenticates agents (`identity`); the policy decides
what they may do.
"""
