# SPDX-License-Identifier: Apache-2.0
"""Which processes live that hold claims."""
