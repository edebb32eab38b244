"""A node that already runs is found before a second process under its name does anything."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from threading import Thread

import pytest

from levelcast.errors import NetError
from levelcast.runtime.namesake import claim_name, require_no_namesake
from levelcast.runtime.sockets import CoreSockets
from levelcast.wire.codec import decode, encode
from levelcast.wire.header import domain_of
from levelcast.wire.messages import Echo, Probe
from tests.network_parts import free_group, free_port

DOMAIN = domain_of(0xC0FFEE, 0)


def test_a_name_is_claimed_once_and_free_again_afterwards() -> None:
    place = (DOMAIN, free_group(), free_port())
    with claim_name("tokyo-1", 101, *place):
        with pytest.raises(NetError, match="tokyo-1 is already running on this machine; stop it first"):
            claim_name("tokyo-1", 101, *place)
        claim_name("london-1", 102, *place).close()
        claim_name("tokyo-1", 101, domain_of(1, 0), *place[1:]).close()
    claim_name("tokyo-1", 101, *place).close()


def test_the_process_that_has_the_name_is_told() -> None:
    group, port = free_group(), free_port()
    code = (
        "from levelcast.runtime.namesake import claim_name\n"
        f"claim = claim_name('tokyo-1', 101, {DOMAIN}, '{group}', {port})\nprint('claimed', flush=True)\ninput()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"claimed\n"
        with pytest.raises(NetError, match=rf"on this machine, as process {other.pid}; stop it first"):
            claim_name("tokyo-1", 101, DOMAIN, group, port)
        assert other.pid != os.getpid()
        other.communicate(b"\n", timeout=30)


@pytest.mark.parametrize(("domain", "found"), [(DOMAIN, True), (domain_of(1, 0), False)])
def test_a_namesake_on_another_machine_answers_the_probe(domain: int, found: bool) -> None:
    group, port = free_group(), free_port()
    with closing(CoreSockets(group, port)) as here, closing(CoreSockets(group, port)) as there:

        def answer() -> None:
            while there.wait(0.5)[0]:
                for datagram, source, _ in there.drain():
                    assert isinstance(datagram, bytes)
                    probe = decode(datagram).message
                    assert isinstance(probe, Probe)
                    there.learn(101, source)
                    there.send(101, [b"noise", encode(Echo(101, 101, probe.number, probe.sent_ns, 1, 1), domain)])

        answering = Thread(target=answer)
        answering.start()
        if found:
            with pytest.raises(NetError, match=r"tokyo-1 is already running at 127\.0\.0\.1; stop it first"):
                require_no_namesake("tokyo-1", 101, DOMAIN, here)
        else:
            require_no_namesake("tokyo-1", 101, DOMAIN, here)
        answering.join()
