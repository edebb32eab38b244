"""`levelcast multicast --demo`: four members as processes, one of which lies, told as it happens."""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from levelcast.byzantine.digests import conflict, header_holds
from levelcast.byzantine.ed25519 import Ed25519Verifier
from levelcast.cli.output import print_json
from levelcast.network import Network, load_network
from levelcast.node.multicast_group import GroupEvent, MulticastProcesses, compare
from levelcast.runtime.multicast_node import group_record, read_keys
from levelcast.wire.chain_messages import ChainEvidence
from levelcast.wire.codec import decode

RUN_S = 6
LIAR = "dublin-1"
_HEAD = """\
[network]
name = "a group with a liar"
id = "{network:016x}"

[core]
address = "{group}"
port = {port}

[timing]
slot = "20ms"
hold = "2s"

[links]
delay = "1ms"

[[reformation]]
name = "reform-1"
id = 999
site = "{site}"

"""
_SITE = """\
[[site]]
name = "{site}"

[[receiver]]
name = "{site}-1"
id = {number}
site = "{site}"

"""
SITES = ("athens", "berlin", "cairo", "dublin")


def demo_file(group: str, port: int, names: Sequence[str] = SITES) -> str:
    """Return the network file of a member at each of these sites."""
    sites = (_SITE.format(site=site, number=number) for number, site in enumerate(names, 1))
    return _HEAD.format(group=group, port=port, network=port, site=names[0]) + "".join(sites)


def run_demo(*, as_json: bool) -> int:
    """Run the demo; return 0 if the honest members agree and have convicted the liar."""
    console = Console(stderr=as_json, quiet=as_json, highlight=False)

    def tell(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    with tempfile.TemporaryDirectory(prefix="levelcast-multicast-") as directory:
        file = Path(directory) / "network.toml"
        file.write_text(demo_file("239.77.77.26", 27_126), encoding="utf-8")
        subprocess.run(
            [sys.executable, "-m", "levelcast", "keys", "init", "--all", "--network", str(file)],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        network = load_network(file)
        names = [receiver.name for receiver in network.receivers]
        honest = [name for name in names if name != LIAR]
        tell(f"Four members, so one may lie. {LIAR} has three faces: it tells each of the others something else.")
        processes = MulticastProcesses(
            file, Path(directory) / "data", names, ["--for", f"{RUN_S}s", "--rate", "20", "--size", "100"]
        )
        try:
            for name in names:
                processes.start(name, ["--liar", "three-faced"] if name == LIAR else [])
            told: set[str] = set()
            for event in processes.events(RUN_S + 60.0):
                for text in _texts(event, honest):
                    if text not in told:
                        told.add(text)
                        tell(f"{event.at_s:6.1f} s  {text}")
        finally:
            processes.close()
        verdict = compare(processes.final, honest)
        proved = [name for name in honest if _is_proved(file, network, processes.final.get(name, {}))]
        if as_json:
            print_json({"delivered": verdict.delivered, "differences": verdict.differences, "proofs_of": proved})
        else:
            _tell_end(tell, verdict.delivered, verdict.differences, proved, honest)
    return 0 if verdict.identical and proved == honest else 1


def _texts(event: GroupEvent, honest: list[str]) -> list[str]:
    what, name = event.what, event.name
    if name not in honest or what["event"] != "change":
        return []
    texts = []
    if what.get("delivering"):
        texts.append(f"{name} delivers the first messages: three of four have acknowledged them")
    if what.get("conflicts"):
        texts.append(f"{name} receives a second version of a message; both carry the signature of their sender")
    if what.get("convicted"):
        texts.append(f"{name} convicts {', '.join(what['convicted'])} and sends the proof to all")
    if what.get("sent_again"):
        texts.append(f"{name} sends a message again, without its acknowledgements: it had acknowledged a lie (C-6)")
    if what.get("fetched"):
        texts.append(f"{name} has fetched what only others had received")
    return texts


def _is_proved(file: Path, network: Network, final: dict[str, object]) -> bool:
    """Return whether a member's proof convicts the liar: both signatures are checked here, with the public keys."""
    convicted = final.get("convicted")
    text = convicted.get(LIAR) if isinstance(convicted, dict) else None
    if not isinstance(text, str):
        return False
    domain, evidence = decode(base64.b64decode(text))
    if not isinstance(evidence, ChainEvidence) or not conflict(evidence.first, evidence.second):
        return False
    _, statement = read_keys(file, network, LIAR)
    verifier = Ed25519Verifier(group_record(network, statement).keys)
    return all(header_holds(each, domain, evidence.epoch, verifier) for each in (evidence.first, evidence.second))


def _tell_end(
    tell: object, delivered: dict[str, int], differences: list[str], proved: list[str], honest: list[str]
) -> None:
    assert callable(tell)
    for difference in differences:
        tell(difference)
    if not differences:
        counts = ", ".join(f"{count:,} of {sender}" for sender, count in delivered.items())
        tell(f"The three honest members have delivered the same packets: {counts}.")
    if proved == honest:
        tell(f"Each has two signed headers of {LIAR} that contradict each other; anybody can check them.")
