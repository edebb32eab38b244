"""The fixed-width records that floors send, the ring carries, tapes keep and subscribers read.

Imports `native` and `errors`; every package may import it, from here. A packet's payload is an array of records
with nothing between them. `walk` finds their borders, `system` encodes Levelcast's own messages. The rules:

1. A record is a DBN (Databento Binary Encoding) version 3 record, little-endian, then a *tail* of ours.
   Byte 0 is the total length in 4-byte words, so a reader that steps by it skips the tail, and a record has
   at most 255 words, 1020 bytes. Byte 1 is the rtype. For readers with a fixed size, `publishers` and
   `trades_metadata` serve exports without tails.
2. Only the rtypes of `RECORD_TYPES` may occur. A DBN reader stops at one that it does not know, so a single
   bad record would make the rest of every tape unreadable: `count_records` rejects such a payload.
3. A record may be longer than its type (the tail of a later version) or as short as the bare DBN record (of
   another program). `split` hides the difference: its arrays always have all fields of the type.
4. `publisher_id` is the floor. `instrument_id` is the directory's; its definition is on the tape before
   the first record that uses it.
5. Floors send `sequence` = `ts_recv` = 0. On release `stamp` writes the low 32 bits of the record's global
   sequence and the acknowledgement's timestamp, both the same at every receiver. Every record counts, also
   one without such a field; the frame has all 64 bits. `ts_in_delta` overflows at 2.1 s: unused.
6. A price is an integer multiple of 1e-9; a time is nanoseconds UTC. What is undefined has the largest value of
   its field: `UNDEF_PRICE`, `UNDEF_TIMESTAMP`, and likewise in narrower ones.
7. A trade's action is T for a trade, C for the cancel (bust) of one and M for its correction; C and M name
   the trade by floor and `trade_id`.
8. Every tape starts with the same `dbn_metadata()`: what could differ between receivers is left undefined.

    >>> batch = trades(2)
    >>> batch["price"] = [price_from_decimal("101.25"), price_from_decimal("101.5")]
    >>> count_records(stamp(batch.tobytes(), first_sequence=7, ts_recv_ns=1_700_000_000_000_000_000))
    2
"""

# ruff: noqa: F403 - a package of constants and small functions, each module with its list of what is public
from levelcast.records.codes import *
from levelcast.records.layout import *
from levelcast.records.metadata import *
from levelcast.records.payload import *
from levelcast.records.prices import *
from levelcast.records.publishers import *
from levelcast.records.system import *
from levelcast.records.walk import *
