# SPDX-License-Identifier: Apache-2.0
"""The harness `claude_code`: Claude Code's own program, headless, one prompt a run."""

from .config import ClaudeCodeConfig, Thinking, Wire
from .harness import NAME, ClaudeCodeHarness

__all__ = ["NAME", "ClaudeCodeConfig", "ClaudeCodeHarness", "Thinking", "Wire"]
