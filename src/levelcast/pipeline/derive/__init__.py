"""Derived tables: bars, best bid and offer, rates, corrections."""
