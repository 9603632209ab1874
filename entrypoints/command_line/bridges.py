# SPDX-License-Identifier: Apache-2.0
"""Docker's bridges whose hardware address moves with the containers.

A bridge that was never given an address takes the lowest of those that are plugged
into it, so it has another one whenever a container comes or goes. Containers that
knew the old one answer to nobody until they ask anew, up to half a minute later: a
server in a sandbox, OpenSandbox's execd among them, seems to hang. dockerd 20.10 on
Linux 6.18 was seen to leave its bridge so.
"""

from pathlib import Path
from typing import Final

DEVICES: Final = Path("/sys/class/net")
ADDRESS_WAS_SET: Final = "3"
"""NET_ADDR_SET in Linux's `netdevice.h`."""
DOCKERS: Final = ("docker0", "br-")
"""How the names of Docker's own bridges begin."""


def moving_bridges(devices: Path = DEVICES) -> tuple[str, ...]:
    """Return the names of Docker's bridges on this host whose address may move."""
    found = list[str]()
    for bridge in sorted(devices.glob("*/bridge")):
        device = bridge.parent
        try:
            assigned = (device / "addr_assign_type").read_text(encoding="ascii")
        except OSError:
            continue  # It went away while it was looked at.
        if device.name.startswith(DOCKERS) and assigned.strip() != ADDRESS_WAS_SET:
            found.append(device.name)
    return tuple(found)
