# SPDX-License-Identifier: Apache-2.0
"""The model and its rules: pure values, deciders and refusals."""
