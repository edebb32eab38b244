"""Simulated wide-area groups: a fast loop for measurements, networks and loss models."""
