# SPDX-License-Identifier: Apache-2.0
"""What the servers of the session protocol have in common: bodies, cookies, answers."""
