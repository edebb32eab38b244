"""Commands that use the lake."""
