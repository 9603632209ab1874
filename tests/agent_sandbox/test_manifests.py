# SPDX-License-Identifier: Apache-2.0
"""What no claim can be made from is refused by its field, and names are legal."""

from typing import cast

import attrs
import pytest

from livery.adapters.agent_sandbox.claim_facts import to_claim
from livery.adapters.agent_sandbox.manifests import (
    Pools,
    check_spec,
    claim_name,
    label_of,
    spec_digest,
    to_manifest,
    to_route,
    to_time,
)
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.required.sandbox_provider import (
    ClaimLabel,
    Mount,
    Network,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)

POOLS = Pools(
    provider="p",
    namespace="agents",
    namespaces=("others",),
    warmpool="default-pool",
    image_warmpools={"swe:1": "swe"},
)
LABEL = ClaimLabel(claim=ClaimId("c"), owner=OwnerId("me"))
PLAIN = SandboxSpec()


def manifest(spec: SandboxSpec, label: ClaimLabel = LABEL) -> dict[str, object]:
    made = to_manifest(
        label,
        spec,
        to_route(spec, pools=POOLS),
        now=1000.0,
        shutdown_at=4600.2,
        managed_by="livery",
    )
    return dict(made)


def part(words: dict[str, object], *path: str) -> dict[str, object]:
    for key in path:
        words = cast("dict[str, object]", words[key])
    return words


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("workdir", {"workdir": "work"}),
        ("workdir", {"workdir": "/"}),
        ("workdir", {"workdir": "/a/../b"}),
        ("env.1A", {"env": {"1A": "x"}}),
        ("env.A B", {"env": {"A B": "x"}}),
        ("env.A", {"env": {"A": "a\0b"}}),
        ("env.A", {"env": {"A": "\udcff"}}),
        ("workdir", {"workdir": "/\ud800"}),
        ("metadata.a b", {"metadata": {"a b": "x"}}),
        ("metadata.livery.owner", {"metadata": {"livery.owner": "x"}}),
        ("metadata.a", {"metadata": {"a": "-x"}}),
        ("metadata.a", {"metadata": {"a": "x" * 64}}),
        ("ports[0]", {"ports": (0,)}),
        ("ports", {"ports": (80, 80)}),
        ("lifetime_seconds", {"lifetime_seconds": 0.0}),
        ("ready_timeout_seconds", {"ready_timeout_seconds": float("nan")}),
        ("provider_options.nosuch", {"provider_options": {"nosuch": 1}}),
        ("provider_options.warmpool", {"provider_options": {"warmpool": 1}}),
        ("provider_options.warmpool", {"provider_options": {"warmpool": "A b"}}),
        ("provider_options.pod_labels", {"provider_options": {"pod_labels": []}}),
        (
            "provider_options.pod_labels.livery.claim",
            {"provider_options": {"pod_labels": {"livery.claim": "x"}}},
        ),
        (
            "provider_options.pod_annotations",
            {"provider_options": {"pod_annotations": {"a": 1}}},
        ),
        (
            "provider_options.volume_claim_templates",
            {"provider_options": {"volume_claim_templates": {"a": 1}}},
        ),
    ],
)
def test_a_field_that_is_wrong_is_named(field: str, changes: dict[str, object]) -> None:
    with pytest.raises(SpecRefused) as refused:
        check_spec(attrs.evolve(PLAIN, **changes), provider="p")  # type: ignore[arg-type]

    assert refused.value.field == field


@pytest.mark.parametrize(
    "changes",
    [
        {"entrypoint": ("sleep", "1")},
        {"network": Network.NONE},
        {"mounts": (Mount(source="/a", target="/b"),)},
    ],
)
def test_what_no_claim_can_give_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(Unsupported):
        check_spec(attrs.evolve(PLAIN, **changes), provider="p")  # type: ignore[arg-type]


@pytest.mark.case("FC-080")
@pytest.mark.parametrize(
    "name",
    [
        "livery.claim",
        "livery.anything",
        "app.kubernetes.io/managed-by",
        "agents.x-k8s.io/created-by",
    ],
)
def test_reserved_labels_cannot_be_set_and_are_named(name: str) -> None:
    with pytest.raises(SpecRefused) as refused:
        check_spec(attrs.evolve(PLAIN, metadata={name: "x"}), provider="p")

    assert refused.value.field == f"metadata.{name}"
    assert name in str(refused.value)


def test_the_most_exact_word_chooses_the_pool() -> None:
    def pool(**changes: object) -> tuple[str, bool]:
        spec = attrs.evolve(PLAIN, **changes)  # type: ignore[arg-type]
        route = to_route(spec, pools=POOLS)
        return route.pool, route.is_by_image

    assert pool() == ("default-pool", False)
    assert pool(image="swe:1") == ("swe", True)
    assert pool(image="other:1") == ("default-pool", False)
    named = {"warmpool": "mine"}
    assert pool(image="swe:1", provider_options=named) == ("mine", False)


def test_no_pool_and_a_namespace_of_nobody_are_refused() -> None:
    none = attrs.evolve(POOLS, warmpool=None)
    away = attrs.evolve(PLAIN, provider_options={"namespace": "away"})

    with pytest.raises(SpecRefused, match="no warm pool"):
        to_route(PLAIN, pools=none)
    with pytest.raises(SpecRefused, match="no warm pool") as refused:
        to_route(attrs.evolve(PLAIN, image="x"), pools=none)
    assert refused.value.field == "image"
    with pytest.raises(SpecRefused, match="agents, others"):
        to_route(away, pools=POOLS)
    there = attrs.evolve(PLAIN, provider_options={"namespace": "others"})
    assert to_route(there, pools=POOLS).namespace == "others"


@pytest.mark.case("FC-005")
def test_the_first_manifest_ends_the_claim_without_us() -> None:
    made = manifest(PLAIN)

    assert part(made, "spec", "lifecycle") == {
        "shutdownTime": "1970-01-01T01:16:41Z",
        "shutdownPolicy": "Delete",
    }
    assert to_time(4600.0) == "1970-01-01T01:16:40Z"


@pytest.mark.case("FC-238")
def test_variables_keep_no_claim_from_a_warm_pool() -> None:
    made = manifest(attrs.evolve(PLAIN, env={"TOKEN": "hush", "B": "1"}))

    assert "env" not in part(made, "spec")
    assert "hush" not in str(made)
    assert part(made, "metadata", "annotations")["livery.env"] == "2"


def test_labels_annotations_and_volumes_arrive() -> None:
    options = {
        "pod_labels": {"team": "a"},
        "pod_annotations": {"note": "any text"},
        "volume_claim_templates": [{"metadata": {"name": "v"}}],
    }
    spec = attrs.evolve(
        PLAIN, metadata={"run": "7"}, provider_options=options, ports=(80, 81)
    )
    made = manifest(spec)

    labels = part(made, "metadata", "labels")
    assert labels["run"] == "7"
    assert labels["app.kubernetes.io/managed-by"] == "livery"
    assert labels["livery.owner"] == "me"
    pod = part(made, "spec", "additionalPodMetadata")
    assert part(pod, "labels") == {
        "team": "a",
        "livery.claim": "c",
        "livery.owner": "me",
    }
    assert pod["annotations"] == {"note": "any text"}
    assert part(made, "spec")["volumeClaimTemplates"] == [{"metadata": {"name": "v"}}]
    assert part(made, "metadata", "annotations")["livery.ports"] == "80 81"


@pytest.mark.case("FC-075")
@pytest.mark.parametrize("word", ["9abc", ".", "UPPER Case", "x", "文件", "a" * 300])
def test_any_id_has_a_legal_name_and_is_read_back(word: str) -> None:
    label = ClaimLabel(claim=ClaimId(word), owner=OwnerId(f"{word}@host"))
    made = manifest(PLAIN, label)
    facts = to_claim(made)

    name = claim_name(label.claim)
    assert facts.name == name
    assert name[0].isalpha()
    assert len(name) <= 63
    assert all(char.isalnum() or char == "-" for char in name)
    assert label_of(facts) == label
    assert claim_name(ClaimId(f"{word}!")) != name


def test_specs_differ_by_their_pool_too() -> None:
    route = to_route(PLAIN, pools=POOLS)
    other = attrs.evolve(route, pool="other")

    assert spec_digest(PLAIN, route) == spec_digest(SandboxSpec(), route)
    assert spec_digest(PLAIN, route) != spec_digest(PLAIN, other)
    assert spec_digest(PLAIN, route) != spec_digest(
        attrs.evolve(PLAIN, env={"A": "1"}), route
    )
