# SPDX-License-Identifier: Apache-2.0
"""The cluster as a fixture: one for a whole run of tests, as it should be for each.

A test that takes `cluster` is marked `peer("kubernetes")` and `peer("docker")`.
"""

from collections.abc import Iterator

import pytest

from .. import peers
from .cluster import Cluster, open_cluster


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[Cluster]:
    """The one cluster of the run; started at its first use."""
    if reason := peers.absence("kubernetes"):
        pytest.skip(reason)
    with open_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with nothing going wrong in it, and no claim left at the end."""
    yield running_cluster
    running_cluster.do("clear")
    left = [claim["metadata"]["name"] for claim in running_cluster.do("claims")]
    for name in left:
        running_cluster.do("delete_claim", name=name)
    running_cluster.until(lambda: running_cluster.do("claims") == [])
    assert left == [], f"claims left behind: {left}"


@pytest.fixture(scope="session")
def python_pool(running_cluster: Cluster, test_image: str) -> str:
    """A warm pool with two sandboxes ready."""
    return running_cluster.make_pool("python-pool", image=test_image, replicas=2)
