# SPDX-License-Identifier: Apache-2.0
"""The agent server: agent sessions over HTTP, in NeMo Gym's session protocol."""
