# SPDX-License-Identifier: Apache-2.0
"""A program that is a file of this host already: its path and sha256 are configured."""

from .source import LocalRuntimeSource

__all__ = ["LocalRuntimeSource"]
