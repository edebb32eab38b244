"""The demo, simulated and as processes."""
