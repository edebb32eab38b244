"""The command `levelcast keys`. Only `levelcast.cli` imports it."""
