# SPDX-License-Identifier: Apache-2.0
"""Harnesses: programs that drive a model, or stand in for one."""
