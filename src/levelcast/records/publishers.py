"""Publisher ids of exported files: Databento's for the venues that it has, a private range for all others.

A publisher of Databento is a venue in one of its datasets. A venue has the publisher of its own dataset (XNYS is 9,
`XNYS.PILLAR.XNYS`), or without one, the publisher with the lowest id. Indices and consolidated feeds are not venues.
"""

from __future__ import annotations

__all__ = ["PRIVATE_PUBLISHERS", "VENUE_PUBLISHERS", "export_publisher", "venue_of_publisher"]

PRIVATE_PUBLISHERS = 0x8000
"""Floors that are not venues of Databento have 32768 + their number. Databento assigns ids from 1 on, so far to 153."""

# fmt: off
VENUE_PUBLISHERS = {
    "GLBX": 1, "XNAS": 2, "XBOS": 3, "XPSX": 4, "BATS": 5, "BATY": 6, "EDGA": 7, "EDGX": 8, "XNYS": 9, "XCIS": 10,
    "XASE": 11, "XCHI": 12, "MEMX": 15, "EPRL": 16, "FINN": 17, "FINC": 18, "FINY": 19, "AMXO": 20, "XBOX": 21,
    "XCBO": 22, "EMLD": 23, "EDGO": 24, "GMNI": 25, "XISX": 26, "MCRY": 27, "XMIO": 28, "ARCO": 29, "MPRL": 31,
    "XNDQ": 32, "XBXO": 33, "C2OX": 34, "XPHL": 35, "BATO": 36, "MXOP": 37, "IEXG": 38, "ARCX": 43, "IFEU": 57,
    "NDEX": 58, "SPHR": 61, "LTSE": 80, "IFUS": 97, "IFLL": 99, "XEUR": 101, "XEEE": 102, "XCBF": 105, "OCEA": 107,
    "MXTO": 108, "IEXO": 109, "TXSE": 114, "24EQ": 115, "XTKS": 143, "XTKT": 144, "XOSE": 145,
}
# fmt: on
"""Databento's publisher of each venue, by market identifier code (ISO 10383)."""
_VENUES = {number: venue for venue, number in VENUE_PUBLISHERS.items()}


def export_publisher(venue: str | None, floor: int) -> int:
    """Return the publisher id of a floor with this name and `publisher_id`.

    >>> export_publisher("XNYS", 1), export_publisher("FINR", 3)
    (9, 32771)
    """
    return VENUE_PUBLISHERS.get(venue or "", floor | PRIVATE_PUBLISHERS)


def venue_of_publisher(publisher: int) -> str | None:
    """Return the venue of an id of Databento; None for ids of the private range and unknown ones."""
    return _VENUES.get(publisher)
