# SPDX-License-Identifier: Apache-2.0
"""The environment server: whole episodes over HTTP, in NeMo Gym's protocol."""
