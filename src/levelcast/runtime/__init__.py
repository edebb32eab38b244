"""The real-time driver of a protocol: sockets, clocks, added delay and loss, scheduling priority."""
