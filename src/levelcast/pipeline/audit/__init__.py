"""Audits: are all tapes the same, is anyone served better than others, are floors in time. `base` defines an audit."""
