"""FIX 4.4 without I/O: tables of fields and messages, reader and writer, session, acceptor.

Imports no other package. Bytes and the time go in; effects (bytes to send, journal entries, messages) come out.
"""
