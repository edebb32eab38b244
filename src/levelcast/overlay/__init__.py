"""Measurement of delay and loss between nodes, sans I/O."""
