"""Mutations of chain multicast: each removes one clause, so that a random or a named history must fail.

The clauses that only cost time-outs (C-8, stale, requests of what one member withholds) are found by named histories
with counts, in `tests/test_byzantine_histories.py`.
"""

from __future__ import annotations

from typing import Any

from levelcast.byzantine import catchup, epochs, fetch, graph, member, multicast
from levelcast.byzantine.catchup import StatedDeliveries
from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.conviction import Convictions
from levelcast.byzantine.epochs import EpochMember
from levelcast.byzantine.fetch import Fetcher
from levelcast.byzantine.graph import Graph, VersionNode
from levelcast.byzantine.multicast import ChainMulticast
from levelcast.sim.mutations import Mutation, Patch


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _nothing(*_: object) -> None:
    return None


def _no_list(*_: object) -> list[Any]:
    return []


def _one_chain_less(self: Graph, node: VersionNode) -> bool:
    return node.chains.bit_count() >= self._config.quorum - 1


def _done_by_payload(graph: Graph, node: VersionNode) -> bool:
    return graph.is_delivered(node)


def _done_by_message(graph: Graph, node: VersionNode) -> bool:
    return node.this_delivered


def _one_is_enough(config: ChainConfig, supporters: set[int]) -> bool:
    return bool(supporters)


def _clause(name: str, history: str, rule: str, without: str, *patches: Patch) -> tuple[str, Mutation]:
    return name, Mutation(name, history, rule, without, patches)


CHAIN_MUTATIONS: dict[str, Mutation] = dict(
    (
        _clause("payload-settles", "B1", "C-4.1", "a candidate needs the payloads that it acknowledges delivered",
                (graph, "becomes_done", _done_by_payload)),
        _clause("message-settles", "B2", "C-4.1", "a candidate needs the very messages that it acknowledges delivered",
                (graph, "becomes_done", _done_by_message)),
        # With a conflict at hand C-8 forbids the acknowledgement as well: each clause alone keeps agreement.
        _clause("every-version-direct", "M1a", "C-3.1", "a conflicting second version is kept and becomes direct",
                (multicast, "becomes_direct", _always), (multicast, "keeps_shadow", _always),
                (ChainMulticast, "is_convicted", _never)),
        _clause("shadows-acknowledged", "M1b", "C-3.4", "what a message reaches need not be direct",
                (multicast, "is_direct", _always)),
        _clause("quorum-less-one", "M1c", "C-4.1", "a delivering set has Q − 1 members",
                (Graph, "has_delivering_set", _one_chain_less)),
        _clause("no-resend", "B5", "C-6", "a message that is not a candidate is not sent again",
                (ChainMulticast, "resend", _nothing)),
        _clause("resent-with-acknowledgements", "B7", "C-6", "a message is sent again with what κ holds",
                (ChainMulticast, "acks_of_resent", lambda self: self.acknowledgements())),
        _clause("no-late-acknowledgement", "B6", "C-7", "a message is acknowledged once, directly or not",
                (ChainMulticast, "overdue", _no_list)),
        _clause("reserve-unused", "W1", "C-5", "a member whose window is half full sends nothing more",
                (ChainMulticast, "is_next", _never)),
        _clause("empty-queue-silent", "W2", "C-5", "a member without packets sends nothing",
                (member, "sends_without_packets", _never)),
        _clause("stale-acknowledged", "B3", "C-3.4", "what an own message waited for in vain is acknowledged",
                (multicast, "is_stale", _never)),
        _clause("nobody-convicted", "B3", "C-8", "conflicting headers have no consequence",
                (Convictions, "convict", _nothing)),
        _clause("gaps-acknowledged", "B14", "C-3.4", "a message after a gap in its sender's numbers is acknowledged",
                (ChainMulticast, "follows", _always)),
        _clause("never-requested", "B4", "C-3.2", "what is cited and unknown is not requested",
                (Fetcher, "_wanted", lambda *_: {})),
        _clause("requested-once", "B9", "C-3.2", "what is cited and unknown is requested once",
                (fetch, "may_ask", lambda attempts: attempts == 0)),
        _clause("nothing-pulled", "B12", "C-4.2", "a member does not request what others have delivered",
                (Fetcher, "_pull", lambda *_: set())),
        _clause("one-statement-enough", "B11", "C-9", "what one member states as delivered is delivered",
                (catchup, "is_enough", _one_is_enough)),
        _clause("nothing-stated", "B13", "C-9", "statements have no consequence",
                (StatedDeliveries, "note", _no_list)),
        _clause("digests-discarded", "B8", "C-10", "the digest of a discarded message is discarded too",
                (graph, "is_settled_for", _never)),
        _clause("old-versions-refused", "B10", "C-10", "a second version of what is delivered is not looked at",
                (member, "is_looked_at", _never)),
        _clause("citations-unlimited", "G1", "C-10", "a member keeps whatever versions a message cites",
                (graph, "has_cited_enough", _never)),
        _clause("acknowledged-not-journaled", "J1", "C-2", "what a message acknowledges is not journaled before it",
                (ChainMulticast, "_journal_acknowledged", _nothing)),
        # A sender outside the group has no bit of its own, so this one takes that of nobody.
        _clause("outsider-counts", "X1", "MR §3", "what a sender outside the group acknowledges counts as a chain",
                (Graph, "_own_bit", lambda self, sender: self._bit.get(sender, 1 << 62)),
                (member, "is_from_outside", _always)),
        _clause("outsider-acknowledges", "X2", "MR §3", "a sender outside the group may acknowledge messages",
                (member, "is_from_outside", _always)),
        _clause("fewer-votes", "E1", "E-1", "a record is in force with Q − 1 votes",
                (epochs, "is_in_force", lambda votes, quorum: votes >= quorum - 1)),
        _clause("second-successor", "E1", "E-2", "a member signs every record that is proposed",
                (epochs, "may_sign", _always)),
        _clause("votes-unchecked", "E1", "E-1", "the signatures of a succession are not checked",
                (EpochMember, "_holds", _always)),
        _clause("prior-unproved", "E3", "E-4", "a first message may name any message of an epoch before",
                (EpochMember, "is_proved", _always)),
        _clause("epochs-unordered", "E4", "E-5", "a first message is delivered before the one that it names",
                (epochs, "is_ordered_by_epoch", _never)),
        _clause("signature-unchecked", "F1", "C-1", "the signature of a message is not checked",
                (member, "signature_holds", _always)),
        _clause("content-unsigned", "F2", "C-1", "the signature does not cover the content",
                (member, "is_content_signed", _always)),
        _clause("statement-unchecked", "F3", "C-9", "the signature of a statement is not checked",
                (member, "statement_holds", _always)),
    )
)  # fmt: skip
"""By name. The histories of the design notes have their numbers; others are told where they are tested."""
