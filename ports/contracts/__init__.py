# SPDX-License-Identifier: Apache-2.0
"""Conformance suites, one a required port, for our adapters and for others."""
