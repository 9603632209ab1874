# SPDX-License-Identifier: Apache-2.0
"""What a spec becomes on the wire, and what is refused before anybody is asked."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.opensandbox import CAPABILITIES
from livery.adapters.opensandbox.metadata import LABEL_VALUE, decoded, encoded
from livery.adapters.opensandbox.spec_terms import check_spec, spec_digest, to_body
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.required.sandbox_provider import (
    Capability,
    ClaimLabel,
    Mount,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)

SPEC = SandboxSpec(image="an-image:1")
LABEL = ClaimLabel(claim=ClaimId("claim/1"), owner=OwnerId("me"))
EVERYTHING = frozenset(Capability)
VOLUME = {"name": "v", "mountPath": "/mnt", "host": {"path": "/data"}}


def with_options(**options: object) -> SandboxSpec:
    return attrs.evolve(SPEC, provider_options=options)


REFUSED: list[tuple[str, SandboxSpec]] = [
    ("image", attrs.evolve(SPEC, image=None)),
    ("image", with_options(snapshot="s-1")),
    ("workdir", attrs.evolve(SPEC, workdir="relative")),
    ("workdir", attrs.evolve(SPEC, workdir="/")),
    ("env.EXECD_ACCESS_TOKEN", attrs.evolve(SPEC, env={"EXECD_ACCESS_TOKEN": "x"})),
    ("metadata.a b", attrs.evolve(SPEC, metadata={"a b": "x"})),
    ("metadata.team", attrs.evolve(SPEC, metadata={"team": "x" * 64})),
    (
        "metadata.opensandbox.io/id",
        attrs.evolve(SPEC, metadata={"opensandbox.io/id": "x"}),
    ),
    ("user", attrs.evolve(SPEC, user="")),
    ("cpus", attrs.evolve(SPEC, cpus=0.0)),
    ("memory_mib", attrs.evolve(SPEC, memory_mib=1)),
    ("ports[0]", attrs.evolve(SPEC, ports=(0,))),
    ("ports", attrs.evolve(SPEC, ports=(80, 80))),
    ("entrypoint", attrs.evolve(SPEC, entrypoint=())),
    ("mounts[0].source", attrs.evolve(SPEC, mounts=(Mount(source="a", target="/b"),))),
    ("workdir", attrs.evolve(SPEC, workdir="/\udcff")),
    ("env.A", attrs.evolve(SPEC, env={"A": "\ud800"})),
    ("user", attrs.evolve(SPEC, user="a\0b")),
    ("entrypoint[1]", attrs.evolve(SPEC, entrypoint=("run", "a\0b"))),
    ("provider_options.typo", with_options(typo=1)),
    ("provider_options.extensions.a", with_options(extensions={"a": "\udcff"})),
    ("provider_options.snapshot", with_options(snapshot="")),
    ("provider_options.extensions", with_options(extensions={"a": 1})),
    ("provider_options.volumes", with_options(volumes="v")),
    ("provider_options.volumes[0]", with_options(volumes=["v"])),
    ("provider_options.volumes[0].typo", with_options(volumes=[{**VOLUME, "typo": 1}])),
    ("provider_options.volumes[0].name", with_options(volumes=[{**VOLUME, "name": 1}])),
    ("provider_options.volumes[0]", with_options(volumes=[{**VOLUME, "pvc": {}}])),
]


@pytest.mark.parametrize(("field", "spec"), REFUSED)
def test_what_the_server_would_ignore_or_choke_on_is_refused_by_its_field(
    field: str, spec: SandboxSpec
) -> None:
    with pytest.raises(SpecRefused) as caught:
        check_spec(spec, provider="opensandbox", capabilities=EVERYTHING)

    assert caught.value.field == field


def test_what_is_the_servers_own_setting_is_not_supported() -> None:
    mount = Mount(source="/a", target="/b")
    for spec in (
        attrs.evolve(SPEC, processes_max=5),
        attrs.evolve(SPEC, mounts=(mount,)),
    ):
        with pytest.raises(Unsupported):
            check_spec(spec, provider="opensandbox", capabilities=CAPABILITIES)


def test_a_spec_becomes_a_request_with_everything_in_it() -> None:
    options: dict[str, Any] = {"volumes": [VOLUME], "extensions": {"a": "b"}}
    spec = attrs.evolve(
        SPEC,
        cpus=0.5,
        memory_mib=512,
        env={"A": "1"},
        metadata={"team": "red"},
        mounts=(Mount(source="/a", target="/b"),),
        entrypoint=("serve", "--all"),
        provider_options=options,
    )
    check_spec(spec, provider="opensandbox", capabilities=EVERYTHING)

    body = to_body(LABEL, spec, token="t-1")

    assert body["image"] == {"uri": "an-image:1"}
    assert body["resourceLimits"] == {"cpu": "500m", "memory": "512Mi"}
    assert body["entrypoint"] == ["serve", "--all"]
    assert body["extensions"] == {"a": "b"}
    assert body["volumes"] == [
        VOLUME,
        {
            "name": "livery-0",
            "host": {"path": "/a"},
            "mountPath": "/b",
            "readOnly": True,
        },
    ]
    assert isinstance(body["timeout"], int)
    assert body["timeout"] >= 60
    assert body["env"] == {
        "A": "1",
        "TMPDIR": "/opt/opensandbox",
        "EXECD_API_GRACE_SHUTDOWN": "10ms",
        "EXECD_ACCESS_TOKEN": "t-1",
    }
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["team"] == "red"
    assert decoded(metadata, "livery.claim") == "claim/1"
    assert all(LABEL_VALUE.fullmatch(value) for value in metadata.values())


def test_a_snapshot_takes_the_place_of_an_image() -> None:
    spec = attrs.evolve(with_options(snapshot="s-1"), image=None)
    check_spec(spec, provider="opensandbox", capabilities=CAPABILITIES)

    body = to_body(LABEL, spec, token="t")

    assert body["snapshotId"] == "s-1"
    assert "image" not in body


def test_equal_specs_share_a_digest_that_fits_a_label() -> None:
    one, other = (
        attrs.evolve(SPEC, env=dict(pairs))
        for pairs in ([("A", "1"), ("B", "2")], [("B", "2"), ("A", "1")])
    )

    assert spec_digest(one) == spec_digest(other) != spec_digest(SPEC)
    assert LABEL_VALUE.fullmatch(spec_digest(one))


@given(st.text(max_size=300))
def test_any_text_is_kept_in_legal_metadata(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    found = encoded("livery.claim", text)

    assert decoded(found, "livery.claim") == text
    assert all(LABEL_VALUE.fullmatch(value) for value in found.values())
    assert decoded({}, "livery.claim") is None
    assert decoded({"livery.claim": "b32.1"}, "livery.claim") is None
