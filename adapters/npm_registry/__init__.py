# SPDX-License-Identifier: Apache-2.0
"""Programs from an npm registry's platform packages, at an exact version.

Node and npm are not needed: the registry that npm is configured for is asked over
HTTP. What comes is held against the registry's own integrity value and kept in the
user's cache; it is never given on to anybody.
"""

from .npm_settings import NpmSettings, RegistryUnknown, read_npm_settings
from .packages import PACKAGES, Bounds, Package
from .source import NpmRegistryRuntimeSource, open_npm_registry

__all__ = [
    "PACKAGES",
    "Bounds",
    "NpmRegistryRuntimeSource",
    "NpmSettings",
    "Package",
    "RegistryUnknown",
    "open_npm_registry",
    "read_npm_settings",
]
