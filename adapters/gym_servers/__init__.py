# SPDX-License-Identifier: Apache-2.0
"""The servers of NeMo Gym's session protocol, at the other end of HTTP.

Each may be ours or NeMo Gym's own. What is asked can be asked again, so a lost reply
is asked for once more; cookies are kept for each session and dropped with its close.
"""
