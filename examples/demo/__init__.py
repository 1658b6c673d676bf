"""`./run demo`: two dozen agents on one relay, some of them faulty or hostile, and the results."""
