"""Convert prices between decimal text and integers in units of 1e-9, exactly or not at all."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from levelcast.records.codes import UNDEF_PRICE

__all__ = ["PRICE_DECIMALS", "price_from_decimal", "price_to_decimal"]

PRICE_DECIMALS = 9


def price_from_decimal(price: str | Decimal) -> int:
    """Return the exact number of 1e-9; raises ValueError if none exists."""
    try:
        value = Decimal(price)
    except InvalidOperation:
        raise ValueError(f'price "{price}" is not a decimal number') from None
    if not value.is_finite():
        raise ValueError(f"price {price} is not a finite number")
    if not value:
        return 0
    # By digits, not by arithmetic: a Decimal context rounds, and an exponent may be too large to expand.
    if value.adjusted() > 9:
        raise ValueError(f"price {price} does not fit into 64 bits of 1e-9")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(significant) + PRICE_DECIMALS
    if exponent < 0:
        raise ValueError(f"price {price} has more than {PRICE_DECIMALS} decimals")
    magnitude: int = int(significant) * 10**exponent
    scaled = -magnitude if sign else magnitude
    if not -(2**63) <= scaled < UNDEF_PRICE:
        raise ValueError(f"price {price} does not fit into 64 bits of 1e-9")
    return scaled


def price_to_decimal(price: int) -> Decimal:
    """Return the exact price with nine decimals; raises ValueError for `UNDEF_PRICE`."""
    price = int(price)
    if price == UNDEF_PRICE:
        raise ValueError("the price is undefined")
    return Decimal((int(price < 0), tuple(map(int, str(abs(price)))), -PRICE_DECIMALS))
