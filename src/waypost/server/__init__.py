"""LISTENS: the relay as other processes see it, over HTTP and WebSocket.

Knows `relay` and below, never `client`. Agents prove who they are (`identity`); what they may do is
still the policy's to decide.
"""
