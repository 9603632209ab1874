# SPDX-License-Identifier: Apache-2.0
"""The calendar, the chat and the tickets."""

from ....domain.digests import Json
from ....ports.required.apps import ToolRefused, ToolResult
from .actions import (
    Action,
    Desk,
    Words,
    action,
    choice,
    listed,
    number,
    text,
    texts,
    told,
)

STATUSES = ("open", "waiting", "done")
PRIORITIES = ("low", "normal", "high")
MESSAGES_MAX = 50


def _events(desk: Desk, words: Words) -> ToolResult:
    day = str(words.get("day", ""))
    return listed(
        [
            told(row, id)
            for id, row in desk.rows("calendar")
            if str(row["starts"]).startswith(day)
        ]
    )


def _add_event(desk: Desk, words: Words) -> ToolResult:
    row = {**words, "attendees": desk.check_people(words.get("attendees", []))}
    return ToolResult(told={"added": desk.add("calendar", row)})


def _update_event(desk: Desk, words: Words) -> ToolResult:
    id, _ = desk.row("calendar", words["id"], "event")
    changed = {name: value for name, value in words.items() if name != "id"}
    if "attendees" in changed:
        changed["attendees"] = desk.check_people(changed["attendees"])
    desk.change("calendar", id, changed)
    return ToolResult(told={"updated": id})


def _cancel_event(desk: Desk, words: Words) -> ToolResult:
    id, _ = desk.row("calendar", words["id"], "event")
    desk.drop("calendar", id)
    return ToolResult(told={"cancelled": id})


def _channels(desk: Desk, words: Words) -> ToolResult:
    return listed([told(row, id) for id, row in desk.rows("channels")])


def _channel(desk: Desk, name: Json) -> dict[str, Json]:
    for _, row in desk.rows("channels"):
        if row["name"] == name:
            return row
    raise ToolRefused(f"There is no channel {name}.")


def _history(desk: Desk, words: Words) -> ToolResult:
    _channel(desk, words["channel"])
    found = [
        told(row, id)
        for id, row in desk.rows("messages")
        if row["channel"] == words["channel"]
    ]
    return listed(found[-MESSAGES_MAX:])


def _post(desk: Desk, words: Words) -> ToolResult:
    _channel(desk, words["channel"])
    row = {**words, "author": desk.me, "posted_at": desk.now}
    return ToolResult(told={"posted": desk.add("messages", row)})


def _tickets(desk: Desk, words: Words) -> ToolResult:
    return listed(
        [
            told(row, id, "title", "status", "priority", "assignee")
            for id, row in desk.rows("tickets")
            if all(row[name] == value for name, value in words.items())
        ]
    )


def _show_ticket(desk: Desk, words: Words) -> ToolResult:
    id, row = desk.row("tickets", words["id"], "ticket")
    comments: list[Json] = [
        told(comment, number, "author", "text")
        for number, comment in desk.rows("comments")
        if comment["ticket"] == str(id)
    ]
    return ToolResult(told={**told(row, id), "comments": comments})


def _create_ticket(desk: Desk, words: Words) -> ToolResult:
    if words.get("assignee"):
        desk.check_people([words["assignee"]])
    return ToolResult(told={"created": desk.add("tickets", words)})


def _update_ticket(desk: Desk, words: Words) -> ToolResult:
    id, _ = desk.row("tickets", words["id"], "ticket")
    if words.get("assignee"):
        desk.check_people([words["assignee"]])
    desk.change("tickets", id, {n: v for n, v in words.items() if n != "id"})
    return ToolResult(told={"updated": id})


def _comment(desk: Desk, words: Words) -> ToolResult:
    id, _ = desk.row("tickets", words["id"], "ticket")
    row: dict[str, Json] = {"ticket": str(id), "author": desk.me, "text": words["text"]}
    return ToolResult(told={"commented": desk.add("comments", row)})


_EVENT = {
    "title": text("what it is"),
    "starts": text("as 2031-03-04T09:00"),
    "ends": text("as 2031-03-04T10:00"),
}
_TICKET = {
    "status": choice("where it stands", *STATUSES),
    "priority": choice("how urgent it is", *PRIORITIES),
    "assignee": text("an address"),
}
ACTIONS: tuple[Action, ...] = (
    action(
        "calendar list",
        "Lists events.",
        _events,
        {},
        {"day": text("one day, as 2031-03-04")},
    ),
    action(
        "calendar add",
        "Adds an event.",
        _add_event,
        _EVENT,
        {"place": text("where"), "attendees": texts("addresses")},
    ),
    action(
        "calendar update",
        "Changes an event; attendees are given anew, all of them.",
        _update_event,
        {"id": number("the event")},
        {**_EVENT, "place": text("where"), "attendees": texts("addresses")},
    ),
    action(
        "calendar cancel",
        "Removes an event.",
        _cancel_event,
        {"id": number("the event")},
    ),
    action("chat channels", "Lists the channels.", _channels, {}),
    action(
        "chat history",
        "Shows the last messages of a channel.",
        _history,
        {"channel": text("its name")},
    ),
    action(
        "chat post",
        "Writes to a channel.",
        _post,
        {"channel": text("its name"), "text": text("the message")},
    ),
    action("tickets list", "Lists tickets.", _tickets, {}, _TICKET),
    action(
        "tickets show",
        "Shows a ticket with its comments.",
        _show_ticket,
        {"id": number("the ticket")},
    ),
    action(
        "tickets create",
        "Opens a ticket.",
        _create_ticket,
        {"title": text("what it is"), "body": text("more about it")},
        {"priority": _TICKET["priority"], "assignee": _TICKET["assignee"]},
    ),
    action(
        "tickets update",
        "Changes a ticket.",
        _update_ticket,
        {"id": number("the ticket")},
        _TICKET,
    ),
    action(
        "tickets comment",
        "Adds a comment to a ticket.",
        _comment,
        {"id": number("the ticket"), "text": text("the comment")},
    ),
)
