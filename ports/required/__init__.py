# SPDX-License-Identifier: Apache-2.0
"""What the core needs from outside, as small protocols with their failures."""
