"""The sending side of an edge: packets, sessions, plans, retransmission."""
