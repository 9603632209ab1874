# SPDX-License-Identifier: Apache-2.0
"""The resources server: task worlds over NeMo Gym's session protocol."""
