"""Fences, leases, a leader, permits: agreement of several processes through rows."""
