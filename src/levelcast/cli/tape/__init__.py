"""Commands that read tapes."""
