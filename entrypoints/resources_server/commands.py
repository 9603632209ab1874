# SPDX-License-Identifier: Apache-2.0
"""The commands that lie in a sandbox: one small script for each app.

A script needs nothing but Python 3.8. It holds where the API is and the session's own
token, so it is readable by the sandbox's user alone.
"""

import json
from collections.abc import Sequence
from typing import Final

from ...domain.digests import Json
from ...ports.required.apps import Tool
from ...ports.required.harness import PlacedFile
from .documentation import API

FOLDER: Final = "bin"
MODE: Final = 0o700

_CALL: Final = """\
#!/usr/bin/env python3
import http.client, json, os, sys, urllib.error, urllib.request

URL = {url}
HEADERS = {headers}
APP = {app}
ACTIONS = {actions}
WORDS = {{
    "boolean": "true or false",
    "integer": "a number",
    "number": "a number",
    "object": "a JSON object",
}}


def usage(action=None):
    if action is None:
        print("usage: %s ACTION [--NAME=VALUE ...]" % APP)
        for name in sorted(ACTIONS):
            print("  %-18s %s" % (name, ACTIONS[name]["description"]))
        print("%s ACTION --help tells what an action takes." % APP)
        return
    known = ACTIONS[action]
    print("usage: %s %s [--NAME=VALUE ...]" % (APP, action))
    print(known["description"])
    for name, kind in sorted(known["parameters"].items()):
        need = "" if name in known["required"] else " (optional)"
        text = kind.get("description", "")
        print("  --%-16s %s%s %s" % (name.replace("_", "-"), word(kind), need, text))
        if "string" in types(kind) and name not in known["attached"]:
            print("  --%-16s the same, read from a file" % (name.replace("_", "-") + "-file"))


def types(kind):
    found = kind.get("type", [])
    return found if isinstance(found, list) else [found]


def word(kind):
    if "enum" in kind:
        return "|".join(map(str, kind["enum"]))
    if "array" in types(kind):
        return word(kind.get("items", {{}})) + " (may be repeated)"
    return "|".join(types(kind)) or "value"


def fail(text, status=2):
    sys.stderr.write("%s: %s\\n" % (APP, text))
    sys.exit(status)


def value(name, kind, text, known):
    if name in known["attached"]:
        return os.path.abspath(text)
    wanted = types(kind)
    if not wanted or "string" in wanted:
        return text
    if "null" in wanted and text == "null":
        return None
    if "boolean" in wanted and text in ("true", "false"):
        return text == "true"
    for known_as, read in (("integer", int), ("number", number), ("object", json.loads)):
        try:
            if known_as in wanted:
                return read(text)
        except ValueError:
            pass
    fail("--%s must be %s" % (name.replace("_", "-"), WORDS.get(wanted[0], word(kind))))


def number(text):
    found = float(text)
    if found - found != 0:
        raise ValueError(text)
    return found


def arguments(words, known):
    found = {{}}
    words = list(words)
    while words:
        head = words.pop(0)
        if not head.startswith("--"):
            fail("%r is no option; options are --NAME=VALUE" % head)
        name, sign, text = head[2:].partition("=")
        if not sign:
            if not words:
                fail("--%s has no value" % name)
            text = words.pop(0)
        name = name.replace("-", "_")
        if name not in known["parameters"] and name.endswith("_file"):
            name = name[: -len("_file")]
            try:
                with open(text, encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError) as error:
                fail("%s cannot be read: %s" % (text, error))
        kind = known["parameters"].get(name)
        if kind is None:
            fail("there is no option --%s" % name.replace("_", "-"))
        if "array" in types(kind):
            items = kind.get("items", {{}})
            found.setdefault(name, []).append(value(name, items, text, known))
        else:
            found[name] = value(name, kind, text, known)
    return found


def detail(error):
    try:
        return json.loads(error.read().decode())["detail"]
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return error.reason


def main(words):
    if not words or words[0] in ("--help", "-h", "help"):
        usage()
        return
    action = words.pop(0)
    if action not in ACTIONS:
        fail("there is no action %r; `%s --help` tells which there are" % (action, APP))
    if "--help" in words or "-h" in words:
        usage(action)
        return
    body = json.dumps(arguments(words, ACTIONS[action])).encode()
    asked = urllib.request.Request("%s/%s/%s" % (URL, APP, action), body, HEADERS)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
    try:
        with opener.open(asked, timeout={seconds}) as reply:
            told = json.loads(reply.read().decode())
    except urllib.error.HTTPError as error:
        fail("error %d: %s" % (error.code, detail(error)), 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        fail("the service does not answer: %s" % (error or type(error).__name__), 75)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    print(told if isinstance(told, str) else json.dumps(told, indent=1, ensure_ascii=False))


main(sys.argv[1:])
"""
_DOCS: Final = """\
#!/usr/bin/env python3
import http.client, json, sys, urllib.error, urllib.request

URL = {url}
HEADERS = {headers}
asked = urllib.request.Request(URL, None, HEADERS)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
try:
    with opener.open(asked, timeout={seconds}) as reply:
        told = json.loads(reply.read().decode())
except urllib.error.HTTPError as error:
    try:
        told = error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        told = ""
    sys.exit("error %d: %s" % (error.code, told or error.reason))
except (OSError, http.client.HTTPException, ValueError) as error:
    sys.exit("the service does not answer: %s" % (error or type(error).__name__))
if hasattr(sys.stdout, "reconfigure"):
    sys.stdout.reconfigure(errors="backslashreplace")
print("Base URL: " + URL[: -len({api})])
for name, text in HEADERS.items():
    print("Header: %s: %s" % (name, text))
print(json.dumps(told, indent=1, ensure_ascii=False))
"""
CALL_SECONDS: Final = 120


def app_commands(
    tools: Sequence[Tool], *, url: str, headers: dict[str, str]
) -> tuple[PlacedFile, ...]:
    """Return the script of each app, to be put below the workspace."""
    apps: dict[str, list[Tool]] = {}
    for tool in tools:
        apps.setdefault(tool.app, []).append(tool)
    return tuple(
        PlacedFile(
            path=f"{FOLDER}/{app}",
            content=_CALL.format(
                url=repr(url + API),
                headers=repr({**headers, "Content-Type": "application/json"}),
                app=repr(app),
                actions=repr({tool.action: _action(tool) for tool in of_app}),
                seconds=CALL_SECONDS,
            ).encode(),
            mode=MODE,
        )
        for app, of_app in sorted(apps.items())
    )


def docs_command(name: str, *, url: str, headers: dict[str, str]) -> PlacedFile:
    """Return the script that prints the documentation of the endpoints."""
    text = _DOCS.format(
        url=repr(url + API), headers=repr(headers), api=repr(API), seconds=CALL_SECONDS
    )
    return PlacedFile(path=f"{FOLDER}/{name}", content=text.encode(), mode=MODE)


def _action(tool: Tool) -> dict[str, Json]:
    parameters = json.loads(json.dumps(dict(tool.parameters)))
    return {
        "description": tool.description,
        "parameters": parameters.get("properties", {}),
        "required": parameters.get("required", []),
        "attached": sorted(tool.attached),
    }
