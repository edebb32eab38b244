"""Commands that run a network or use a running one."""
