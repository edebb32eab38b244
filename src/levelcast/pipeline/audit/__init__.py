"""Audits: are all tapes the same, is anyone served better than others, are floors in time. `frame` says what one is."""
