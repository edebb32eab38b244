"""The files of a node: its journal, the tape of released frames, the log of its releases, published positions.

Imports `records`, `wire` and `protocol`. Imported by `runtime`, `client`, `node`, `pipeline` and
`cli`.
`levelcast.storage.receiver_store.ReceiverStore` combines all parts for a driver. The formats are described in
`docs/tape.md`.
"""
