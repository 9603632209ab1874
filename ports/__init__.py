# SPDX-License-Identifier: Apache-2.0
"""What the core needs, what it offers, and the suites that hold both together."""
