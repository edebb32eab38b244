"""Jobs: a batch run and a stream."""
