"""Commands that write or explain a network file."""
