# SPDX-License-Identifier: Apache-2.0
"""The plug-in for NeMo Gym: our providers under its entry points."""
