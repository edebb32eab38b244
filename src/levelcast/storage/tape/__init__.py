"""The tape of a receiver on disk: `directory` and `index` define the files, `writer`, `reader` and `cursor` use them.

`compare`, `segment_check` and `explain` verify tapes, `certificate` certifies them. Imports `protocol` and below.
"""
