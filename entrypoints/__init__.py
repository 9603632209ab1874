# SPDX-License-Identifier: Apache-2.0
"""Ways in: the command line, the composition root and the servers."""
