# SPDX-License-Identifier: Apache-2.0
"""What a model is told of the endpoints, and of where it works."""

from collections.abc import Sequence
from typing import Final

from ...domain.digests import Json
from ...ports.required.apps import Reach, Reaching, Tool

API: Final = "/api"
FILES: Final = "/files"
MCP: Final = "/mcp"
GUIDE_COLUMNS: Final = 88


def documentation(tools: Sequence[Tool], header: str) -> dict[str, Json]:
    """Return what the endpoints take, for a model to read."""
    scheme = "Bearer TOKEN" if header.lower() == "authorization" else "TOKEN"
    return {
        "authentication": f"Each request carries the header `{header}: {scheme}`.",
        "requests": "POST a JSON object with the parameters; files are given by the"
        " path that they have in your workspace, never by their content.",
        "files": f"GET or PUT {FILES}/PATH reads or writes a file of the workspace.",
        "endpoints": [
            {
                "path": f"{API}/{tool.app}/{tool.action}",
                "description": tool.description,
                "parameters": dict(tool.parameters),
            }
            for tool in tools
        ],
    }


def documentation_tool(reaching: Reaching) -> Tool:
    """Return the tool that gives the documentation, where a task has endpoints."""
    return Tool(
        app=reaching.documentation,
        action="",
        description="Tells which HTTP endpoints there are and what they take.",
        parameters={"type": "object", "properties": {}},
    )


def guide(
    tools: Sequence[Tool], reaching: Reaching | None, *, folder: str, url: str
) -> str:
    """Return the short guide that lies in the workspace.

    `folder` is what stands before a command: empty where the shell finds it by name.
    """
    told = [
        "# Your workspace",
        "",
        "This folder is yours to work in. Files that you are given, and files that you"
        " save, are here.",
        *([] if reaching is None else ["", *_apps(tools, reaching, folder, url)]),
    ]
    return "\n".join(told) + "\n"


def _apps(
    tools: Sequence[Tool], reaching: Reaching, folder: str, url: str
) -> Sequence[str]:
    apps = sorted({tool.app for tool in tools})
    paths = (
        "Give files by their path in this folder. Files that an app gives you are saved"
        " here, and you are told the path."
    )
    match reaching.way:
        case Reach.MCP:
            return ["You have tools for: " + ", ".join(apps) + ".", "", paths]
        case Reach.COMMANDS:
            lines = [f"- `{folder}{app} --help`" for app in apps]
            return ["The company's apps are commands:", "", *lines, "", paths]
        case Reach.ENDPOINTS:
            return [
                f"The company's apps are HTTP endpoints at {url}.",
                f"`{folder}{reaching.documentation}` tells which there are, what they"
                " take and how to sign in.",
                "",
                paths,
            ]
