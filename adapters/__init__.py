# SPDX-License-Identifier: Apache-2.0
"""One folder for each thing at the other end of a port."""
