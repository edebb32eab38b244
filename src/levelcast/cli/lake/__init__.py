"""Commands of the lake."""
