"""The log of a member of a multicast group: what was committed is there after a restart, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.byzantine.digests import Author, cite
from levelcast.byzantine.image import EpochsImage
from levelcast.byzantine.signatures import KeyedHash
from levelcast.protocol.effects import ChainDeliver, ChainDirect, ChainSettled, EpochBegun, EpochEnded, EpochSigned
from levelcast.storage.append_file import TapeError
from levelcast.storage.chain_store import NAME, ChainStore, Confirmed
from levelcast.wire.chain_codec import pack_content
from levelcast.wire.chain_messages import ChainContent, ChainMessage, DeliveredRow
from tests.epoch_parts import record, succession, vote

DOMAIN = 0
FIRST, SECOND = record(1, (1, 2, 3, 4)), record(2, (1, 2, 3, 5))


def message(seq: int, packet: bytes = b"packet", epoch: int = 1, sender: int = 2) -> ChainMessage:
    content = pack_content(ChainContent((0, 0, 0, 0), (), (packet,)))
    return Author(sender, DOMAIN, epoch, KeyedHash(sender)).message(seq, seq, content, ())


def delivery(of: ChainMessage) -> ChainDeliver:
    return ChainDeliver(of, DeliveredRow(*cite(of.header, DOMAIN, of.epoch), of.header.content_digest), (b"packet",))


def reopened(directory: Path) -> ChainStore:
    return ChainStore(directory, DOMAIN)


def test_everything_committed_is_restored(tmp_path: Path) -> None:
    store = ChainStore(tmp_path, DOMAIN)
    store.begin(FIRST)
    one, two, other = message(1), message(2), message(1, b"other")
    store.record(ChainDirect(one))
    store.record(ChainDirect(two))
    assert store.deliver(delivery(one)) == 1
    row = delivery(other).row
    store.record(ChainSettled(1, (row,), (other,)))
    store.record(EpochSigned(SECOND, vote(1, SECOND)))
    store.record(EpochBegun(succession(SECOND, 1, 2, 3), 7))
    store.record(EpochEnded(9, (4, 5)))
    store.confirm(Confirmed(1, 2))
    store.close()
    again = reopened(tmp_path)
    assert again.first == FIRST
    assert again.confirmed == Confirmed(1, 2)
    assert again.deliveries == [(1, delivery(one).row)]
    assert again.delivered == 1
    direct = [entry.message for entry in again.entries if isinstance(entry, ChainDirect)]
    assert direct == [two]
    image = EpochsImage()
    for entry in again.entries:
        image.apply(entry)
    assert image.chain(1).settled == [row]
    assert image.signed[1].record == SECOND
    assert image.begun == [EpochBegun(succession(SECOND, 1, 2, 3), 7)]
    assert image.ended == {9: (4, 5)}
    again.close()


def test_messages_are_served_from_the_file_by_version(tmp_path: Path) -> None:
    for restarted in (False, True):
        store = ChainStore(tmp_path, DOMAIN)
        one, other, two = message(1), message(1, b"other"), message(2)
        if not restarted:
            store.record(ChainDirect(one))
            store.deliver(delivery(one))
            store.record(ChainSettled(1, (delivery(other).row,), (other,)))
            store.deliver(delivery(two))  # caught up: it is nowhere else in the file
        refs = [cite(each.header, DOMAIN, 1) for each in (one, other, two)]
        assert list(store.messages(1, refs)) == [one, other, two]
        unknown = refs[2]._replace(digest=b"x" * 32)
        assert list(store.messages(1, [unknown])) == [two]  # another version of the same message
        assert list(store.messages(1, [refs[2]._replace(seq=9)])) == []
        assert list(store.messages(2, refs)) == []
        assert [(each.number, each.message) for each in store.after(1)] == [(2, two)]
        store.close()


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_end_is_cut_off_and_kept(tmp_path: Path, cut: int) -> None:
    store = ChainStore(tmp_path, DOMAIN)
    store.record(ChainDirect(message(1)))
    store.commit()
    store.record(ChainDirect(message(2)))
    store.close()
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes()[:-cut])
    again = reopened(tmp_path)
    assert [entry.message.header.seq for entry in again.entries if isinstance(entry, ChainDirect)] == [1]
    assert len(again.notices) == 1
    again.record(ChainDirect(message(3)))
    again.close()
    last = reopened(tmp_path)
    assert sorted(entry.message.header.seq for entry in last.entries if isinstance(entry, ChainDirect)) == [1, 3]
    last.close()


def test_an_entry_that_was_never_committed_is_not_there(tmp_path: Path) -> None:
    store = ChainStore(tmp_path, DOMAIN)
    store.record(ChainDirect(message(1)))
    size = (tmp_path / NAME).stat().st_size
    store.commit()
    assert (tmp_path / NAME).stat().st_size > size
    store.close()


def test_files_that_are_not_this_members_are_refused(tmp_path: Path) -> None:
    store = ChainStore(tmp_path, DOMAIN)
    with pytest.raises(TapeError, match="another process"):
        ChainStore(tmp_path, DOMAIN)
    store.close()
    with pytest.raises(TapeError, match="another network"):
        ChainStore(tmp_path, DOMAIN + 1)
    (tmp_path / NAME).write_bytes(b"something else, which is longer than a header")
    with pytest.raises(TapeError, match="not a multicast log"):
        ChainStore(tmp_path, DOMAIN)
