"""Sweeps over simulator parameters on Spark."""
