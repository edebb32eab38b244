"""The demo, simulated or as processes."""
