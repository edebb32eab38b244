"""Commands of a trading floor: run it, operate it, keep its accounts, trade on it."""
