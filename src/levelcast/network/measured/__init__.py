"""The measured network: matrix of delay and loss, the timing that follows, and the file to include."""
