"""Commands that run the matching engine."""
