# SPDX-License-Identifier: Apache-2.0
"""What another distribution adds to Livery: a provider, a harness, a task source."""
