"""What a node keeps on disk: its journal, the tape of released frames, and the log of its releases.

Imports `wire`, `records` and, of `ring`, the values that go to disk (`order`, `effects`, `journal`) and the answer to
one who is behind (`catchup`). Imported by the drivers, by `edge` and `pipeline`, and by `cli`.
`levelcast.storage.receiver_store.ReceiverStore` is all of it together, as a driver uses it. The formats are in
`docs/tape.md`.
"""
