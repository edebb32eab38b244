"""Commands of a running network."""
