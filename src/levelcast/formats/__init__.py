"""Files of trades, quotes and orders that others made: CSV, Parquet, DBN, ITCH, IEX, LEAN, LOBSTER, pcap.

Imports `records`, `network` and `extras`. Imported by `client`, `pipeline` and `cli`.
"""
