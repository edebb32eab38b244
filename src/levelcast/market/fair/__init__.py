"""Fair order entry (MS §7.2; E1 to E9): stamps at the gateways, and one order of all commands from the tape.

`stamps` stamps orders and makes beats; `fair_order` computes the sequence from released frames; `eras` has the rules
in force and the buckets; `stripes` merges several order stripes. Nothing here does I/O.
"""
