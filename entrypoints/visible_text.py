# SPDX-License-Identifier: Apache-2.0
"""Text of others as it is shown: what would steer a terminal is written as its escape.

Names of tasks, reasons and errors hold what an agent, a sandbox or a server wrote. Shown
as they are they could clear a screen, forge lines, or ask the terminal to do something.
"""

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_OR_END: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def visible(text: str) -> str:
    """Return the text with its control characters escaped, but for `\\n` and `\\t`."""
    return _CONTROL.sub(_escaped, text)


def visible_in_one_line(text: str) -> str:
    """Return the text with all its control characters escaped."""
    return _CONTROL_OR_END.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
