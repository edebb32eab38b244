"""The journal of a node on disk: entries, append-only segments, the marker of an open directory."""
