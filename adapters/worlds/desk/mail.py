# SPDX-License-Identifier: Apache-2.0
"""Mail, and the people that it goes to."""

from ....domain.digests import Json
from ....ports.required.apps import SavedFile, ToolRefused, ToolResult
from .actions import (
    Action,
    Desk,
    Words,
    action,
    choice,
    flag,
    listed,
    number,
    text,
    texts,
    told,
)

FOLDERS = ("inbox", "sent", "archive", "trash")


def _find(desk: Desk, words: Words) -> ToolResult:
    name = str(words["name"]).casefold()
    return listed(
        [
            told(row, id)
            for id, row in desk.rows("people")
            if name in f"{row['name']} {row['email']} {row['team']}".casefold()
        ]
    )


def _list(desk: Desk, words: Words) -> ToolResult:
    folder = words.get("folder", "inbox")
    return listed(
        [
            told(row, id, "sender", "subject", "seen", "sent_at")
            for id, row in desk.rows("mail")
            if row["folder"] == folder and not (words.get("unseen") and row["seen"])
        ]
    )


def _read(desk: Desk, words: Words) -> ToolResult:
    id, row = desk.row("mail", words["id"], "mail")
    files = row["files"]
    assert isinstance(files, list), "it is stored so"
    names: list[Json] = [one["name"] for one in files if isinstance(one, dict)]
    return ToolResult(told={**told(row, id), "files": names})


def _send(desk: Desk, words: Words) -> ToolResult:
    id = desk.add(
        "mail",
        {
            "folder": "sent",
            "sender": desk.me,
            "to": desk.check_people(words["to"]),
            "cc": desk.check_people(words.get("cc", [])),
            "subject": words["subject"],
            "body": words["body"],
            "files": _files(desk, words.get("attach", [])),
            "seen": True,
            "sent_at": desk.now,
        },
    )
    return ToolResult(told={"sent": id})


def _files(desk: Desk, paths: Json) -> list[Json]:
    given = paths if isinstance(paths, list) else []
    return [
        {"name": str(path).rpartition("/")[2], "text": desk.text_of(str(path))}
        for path in given
    ]


def _reply(desk: Desk, words: Words) -> ToolResult:
    _, row = desk.row("mail", words["id"], "mail")
    subject = str(row["subject"])
    again = subject if subject.startswith("Re: ") else f"Re: {subject}"
    return _send(desk, {"to": [row["sender"]], "subject": again, "body": words["body"]})


def _move(desk: Desk, words: Words) -> ToolResult:
    id, _ = desk.row("mail", words["id"], "mail")
    desk.change("mail", id, {"folder": words["folder"]})
    return ToolResult(told={"moved": id})


def _mark(desk: Desk, words: Words) -> ToolResult:
    id, _ = desk.row("mail", words["id"], "mail")
    desk.change("mail", id, {"seen": words["seen"]})
    return ToolResult(told={"marked": id})


def _save(desk: Desk, words: Words) -> ToolResult:
    _, row = desk.row("mail", words["id"], "mail")
    files = row["files"]
    assert isinstance(files, list), "it is stored so"
    for one in files:
        if isinstance(one, dict) and one["name"] == words["name"]:
            saved = SavedFile(name=str(one["name"]), content=str(one["text"]).encode())
            return ToolResult(told={"name": saved.name}, files=(saved,))
    raise ToolRefused(f"Mail {words['id']} has no file {words['name']}.")


ACTIONS: tuple[Action, ...] = (
    action(
        "people find",
        "Finds people by name, address or team.",
        _find,
        {"name": text("a part of it")},
    ),
    action(
        "mail list",
        "Lists the mails of a folder.",
        _list,
        {},
        {
            "folder": choice("the inbox unless said otherwise", *FOLDERS),
            "unseen": flag("only those that nobody marked as seen"),
        },
    ),
    action("mail read", "Shows a mail.", _read, {"id": number("the mail")}),
    action(
        "mail send",
        "Sends a mail.",
        _send,
        {
            "to": texts("addresses"),
            "subject": text("the subject"),
            "body": text("the text"),
        },
        {"cc": texts("more addresses"), "attach": texts("paths of files")},
        attached=("attach",),
    ),
    action(
        "mail reply",
        "Answers the sender of a mail.",
        _reply,
        {"id": number("the mail"), "body": text("the text")},
    ),
    action(
        "mail move",
        "Moves a mail to a folder.",
        _move,
        {"id": number("the mail"), "folder": choice("the folder", *FOLDERS)},
    ),
    action(
        "mail mark",
        "Marks a mail as seen or unseen.",
        _mark,
        {"id": number("the mail"), "seen": flag("true for seen")},
    ),
    action(
        "mail save",
        "Saves a file of a mail in your workspace.",
        _save,
        {"id": number("the mail"), "name": text("the file's name")},
    ),
)
