# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: ratios to a floor measured in the same run, and figures."""
