# SPDX-License-Identifier: Apache-2.0
"""Whom a command runs as, and whom a file belongs to.

An account is found from a name, `uid`, `uid:gid` or `name:group`. None means the
worker's own. File work for another account is done with that account's ids in
force, so that no link which it planted makes root write where it could not.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
from typing import Generator, NamedTuple


class NoSuchAccount(Exception):
    """The account does not exist, or the worker may not become it."""


class Account(NamedTuple):
    """An account's ids and its home folder."""

    uid: int
    gid: int
    groups: list[int]
    home: str


def find_account(user: str | None) -> Account | None:
    """Return the account that `user` names; None when it is the worker's own."""
    if user is None:
        return None
    name, _, group = user.partition(":")
    entry = _password_entry(name)
    if entry is None:
        # As Docker has it: a bare number needs no entry, and its group is root's.
        found = Account(int(name), 0, [], "/")
    else:
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        found = Account(entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)
    if group:
        found = found._replace(gid=_group_id(group))
    if (found.uid, found.gid) == (os.geteuid(), os.getegid()):
        return None
    if os.geteuid() != 0:
        raise NoSuchAccount(
            "user %s: the worker is uid %d and cannot become another"
            % (user, os.geteuid())
        )
    return found


def _password_entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pass
    if not (name.isascii() and name.isdigit() and int(name) < 2**32 - 1):
        raise NoSuchAccount("there is no user %s" % name)
    try:
        return pwd.getpwuid(int(name))
    except KeyError:
        return None


def _group_id(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        pass
    if not (group.isascii() and group.isdigit() and int(group) < 2**32 - 1):
        raise NoSuchAccount("there is no group %s" % group)
    return int(group)


def become(account: Account | None) -> None:
    """Turn this process into one of `account`, for good."""
    if account is None:
        return
    os.setgroups(account.groups)
    os.setgid(account.gid)
    os.setuid(account.uid)


@contextlib.contextmanager
def acting_as(account: Account | None) -> Generator[None]:
    """Do what is inside with the rights of `account`; no thread may run beside."""
    if account is None:
        yield
        return
    uid, gid, groups = os.geteuid(), os.getegid(), os.getgroups()
    try:
        os.setgroups(account.groups)
        os.setegid(account.gid)
        os.seteuid(account.uid)
        yield
    finally:
        os.seteuid(uid)
        os.setegid(gid)
        os.setgroups(groups)
