# SPDX-License-Identifier: Apache-2.0
"""Worlds: the surroundings that tasks are done in, and how the work is graded."""
