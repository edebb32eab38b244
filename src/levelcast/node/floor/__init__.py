"""The process of a trading floor: `levelcast floor run`.

`process` runs the loop. `connections` has the sockets and TLS, `entry_journal` and the tape the disk, `accounts` the
database of identities, `passwords` the checks of passwords, `operator` the operator's commands, `feed` the public data,
`tables` the tables of orders and fills. Protocol code is in `levelcast.market`.
"""
