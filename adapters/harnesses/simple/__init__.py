# SPDX-License-Identifier: Apache-2.0
"""The harness `simple`: a loop on this host that asks a model and calls tools."""

from .config import ModelApi, SimpleConfig
from .harness import SimpleHarness
from .scripts import ScriptRefused, read_script

__all__ = ["ModelApi", "ScriptRefused", "SimpleConfig", "SimpleHarness", "read_script"]
