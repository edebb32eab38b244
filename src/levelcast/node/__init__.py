"""Drivers over real sockets: the protocol classes of `ring` as processes on UDP multicast, on disk and on the clock.

| what                         | modules                                                                          |
|------------------------------|----------------------------------------------------------------------------------|
| the loop and what it runs on | `driver`, `sockets`, `impair`, `punctual`, `keeper`, `disk`, `retention`         |
| a node, and many             | `node`, `floor`, `cluster`, `verdict`                                            |
| customers                    | `edge` at a receiver, `subscriber` in their programs                             |
| floors in their own programs | `publisher`, `packing`, `progress`, `replay`                                     |
| seeing inside                | `status`, `responder`, `metrics`, `kernel_clock`, `ask`                          |
| changing the configured set  | `operator`                                                                       |
| the demonstration            | `demo/`                                                                          |

Imports everything below; imported by `cli`, and by the package itself for `Publisher` and `Subscriber`.
"""
