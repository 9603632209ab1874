# SPDX-License-Identifier: Apache-2.0
"""Task sources: where tasks come from, and their reference solutions."""
