# SPDX-License-Identifier: Apache-2.0
"""The drive: text files by path, shared with people."""

from ....domain.digests import Json
from ....ports.required.apps import SavedFile, ToolRefused, ToolResult
from .actions import Action, Desk, Words, action, listed, text, told


def _list(desk: Desk, words: Words) -> ToolResult:
    folder = str(words.get("folder", ""))
    return listed(
        [
            told(row, id, "path", "shared_with")
            for id, row in desk.rows("drive")
            if str(row["path"]).startswith(folder)
        ]
    )


def _at(desk: Desk, path: Json) -> tuple[int, dict[str, Json]]:
    for id, row in desk.rows("drive"):
        if row["path"] == path:
            return id, row
    raise ToolRefused(f"There is no {path} on the drive.")


def _check_free(desk: Desk, path: Json) -> None:
    if any(row["path"] == path for _, row in desk.rows("drive")):
        raise ToolRefused(f"{path} is on the drive already.")


def _read(desk: Desk, words: Words) -> ToolResult:
    id, row = _at(desk, words["path"])
    return ToolResult(told=told(row, id))


def _write(desk: Desk, words: Words) -> ToolResult:
    for id, row in desk.rows("drive"):
        if row["path"] == words["path"]:
            desk.change("drive", id, {"text": words["text"]})
            return ToolResult(told={"written": id})
    row = {"path": words["path"], "text": words["text"]}
    return ToolResult(told={"written": desk.add("drive", row)})


def _upload(desk: Desk, words: Words) -> ToolResult:
    return _write(
        desk, {"path": words["path"], "text": desk.text_of(str(words["file"]))}
    )


def _download(desk: Desk, words: Words) -> ToolResult:
    _, row = _at(desk, words["path"])
    name = str(words.get("name") or str(row["path"]).rpartition("/")[2])
    saved = SavedFile(name=name, content=str(row["text"]).encode())
    return ToolResult(told={"path": row["path"]}, files=(saved,))


def _move(desk: Desk, words: Words) -> ToolResult:
    id, _ = _at(desk, words["path"])
    _check_free(desk, words["to"])
    desk.change("drive", id, {"path": words["to"]})
    return ToolResult(told={"moved": id})


def _delete(desk: Desk, words: Words) -> ToolResult:
    id, _ = _at(desk, words["path"])
    desk.drop("drive", id)
    return ToolResult(told={"deleted": id})


def _share(desk: Desk, words: Words) -> ToolResult:
    id, row = _at(desk, words["path"])
    (person,) = desk.check_people([words["person"]])
    shared = row["shared_with"]
    assert isinstance(shared, list), "it is stored so"
    known = [str(one) for one in shared]
    if person not in known:
        desk.change("drive", id, {"shared_with": [*known, person]})
    return ToolResult(told={"shared": id})


ACTIONS: tuple[Action, ...] = (
    action(
        "drive list",
        "Lists files.",
        _list,
        {},
        {"folder": text("how their paths begin")},
    ),
    action("drive read", "Shows a file.", _read, {"path": text("its path")}),
    action(
        "drive write",
        "Writes a file, new or not.",
        _write,
        {"path": text("its path"), "text": text("all of its text")},
    ),
    action(
        "drive upload",
        "Puts a file of your workspace on the drive.",
        _upload,
        {
            "path": text("where on the drive"),
            "file": text("its path in the workspace"),
        },
        attached=("file",),
    ),
    action(
        "drive download",
        "Saves a file of the drive in your workspace.",
        _download,
        {"path": text("its path")},
        {"name": text("its name in the workspace")},
    ),
    action(
        "drive move",
        "Gives a file another path.",
        _move,
        {"path": text("its path"), "to": text("the new one")},
    ),
    action("drive delete", "Deletes a file.", _delete, {"path": text("its path")}),
    action(
        "drive share",
        "Lets somebody see a file.",
        _share,
        {"path": text("its path"), "person": text("an address")},
    ),
)
