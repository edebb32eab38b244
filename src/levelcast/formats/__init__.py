"""Read files of trades, quotes and orders from other programs: CSV, Parquet, DBN, ITCH, IEX, LEAN, LOBSTER, pcap.

Imports `records`, `network` and `extras`. Imported by `client`, `pipeline` and `cli`.
"""
