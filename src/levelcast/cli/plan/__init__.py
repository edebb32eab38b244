"""Commands of the channel planner."""
