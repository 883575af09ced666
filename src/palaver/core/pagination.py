"""Lists of conversations: cursors, and groups by date."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta, tzinfo

from palaver.core.identity import micros, moment
from palaver.errors import InvalidInput
from palaver.model import ConversationInfo


def encode_cursor(last: ConversationInfo) -> str:
    return base64.urlsafe_b64encode(f"{micros(last.updated)}:{last.id}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[int, str]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        updated, id = text.split(":", 1)
        moment(int(updated))  # raises for a number that is not a time
        return int(updated), id
    except (ValueError, TypeError, OverflowError, binascii.Error):
        raise InvalidInput("cursor", "is not a cursor of an earlier page") from None


def group_by_date(
    conversations: Iterable[ConversationInfo], now: datetime, zone: tzinfo = UTC
) -> list[tuple[str, list[ConversationInfo]]]:
    """Group conversations by their last change: "Today", "Yesterday", "Previous 7 days", then by month.

    The order of the conversations is kept. Empty groups are left out.
    """
    today = now.astimezone(zone).date()
    groups: dict[str, list[ConversationInfo]] = {}
    for one in conversations:
        groups.setdefault(_group(one.updated.astimezone(zone).date(), today), []).append(one)
    return list(groups.items())


def _group(day: date, today: date) -> str:
    if day >= today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    if day >= today - timedelta(days=7):
        return "Previous 7 days"
    return f"{day:%B %Y}"
