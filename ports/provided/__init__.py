# SPDX-License-Identifier: Apache-2.0
"""What the core offers: one use case a module, a thin shell around a decider."""
