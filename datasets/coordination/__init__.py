"""Fences, leases, a leader, permits: what several processes agree on by rows."""
