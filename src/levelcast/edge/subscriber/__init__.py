"""The receiving side of an edge: sessions, repair, plans, merging of stripes."""
