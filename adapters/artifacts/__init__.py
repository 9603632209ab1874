# SPDX-License-Identifier: Apache-2.0
"""Artifact stores: a folder on disk, and one in memory for tests."""

from .folder import FolderArtifactStore
from .memory import MemoryArtifactStore

__all__ = ["FolderArtifactStore", "MemoryArtifactStore"]
