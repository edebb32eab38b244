"""A small network's holders and statements for tests of keys."""

from __future__ import annotations

from levelcast.keys.authority import first_statement
from levelcast.keys.identity import Identity
from levelcast.keys.keyring import Keyring, open_keyring
from levelcast.keys.statement import Holder, KeyStatement, parse_statement, statement_text

NETWORK = 0x0123_4567_89AB_CDEF
NOW = 1_800_000_000_000_000_000
S = 1_000_000_000
ROLES = {
    "operator": (0, "operator"),
    "tokyo-1": (101, "receiver"),
    "london-1": (102, "receiver"),
    "oslo-1": (103, "receiver"),
    "osaka-1": (301, "secondary"),
    "reform": (201, "reformation"),
    "XTKS": (1, "floor"),
    "XLON": (2, "floor"),
}


class KeyedNetwork:
    """An authority with its newest statement, and an identity of every holder."""

    def __init__(
        self, network: int = NETWORK, now_ns: int = NOW, extra: dict[str, tuple[int, str]] | None = None
    ) -> None:
        self.authority = Identity.new("authority")
        roles = ROLES | (extra or {})
        self.identities = {name: Identity.new(name) for name in roles}
        holders = [Holder(*roles[name], each.public) for name, each in self.identities.items()]
        self.statement = first_statement(self.authority, network, holders, now_ns)

    @property
    def content(self) -> bytes:
        return statement_text(self.statement, self.authority).encode()

    def parsed(self, now_ns: int | None = NOW) -> KeyStatement:
        """Return the statement as a node reads it."""
        return parse_statement(self.content, self.authority.public.sign_text, self.statement.network, now_ns)

    def keyring(self, name: str) -> Keyring:
        return open_keyring(self.identities[name], self.statement)
