"""Channel plans computed on Spark."""
