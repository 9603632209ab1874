#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts execd beside the sandbox's own first process, as the real one does.
/opt/opensandbox/execd >/dev/null 2>&1 </dev/null &
exec "$@"
