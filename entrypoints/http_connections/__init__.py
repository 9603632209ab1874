# SPDX-License-Identifier: Apache-2.0
"""What connections of every server of ours have in common, the gateway's too."""
