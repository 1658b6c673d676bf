"""The client without I/O: frames to write, events to emit, delays to wait. Time is an argument."""
