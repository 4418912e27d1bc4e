"""Times, spans and zones as people type them.

A time is a moment in epoch milliseconds. A range of times is half-open: ``--begin`` belongs to it, ``--end`` does not.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

from rmqtool.errors import UsageError

ACCEPTED = (
    "Try 2026-08-23, 2026-08-23T15:00:00.120+08:00, 1787468400000 (epoch ms), 20260823150000, "
    "2026-08-23#15:00:00:000, -2h, now, today, yesterday."
)
ACCEPTED_SPANS = "Try 30s, 15m, 2h, 1d12h; the units are ms, s, m, h, d, w."
ACCEPTED_ZONES = "Try local, UTC, +08:00, Asia/Shanghai."

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_MAX = (1 << 63) - 1
# Of 8 to 11 digits people mean a date (20260823, 2026082315) or seconds (1787468400), never milliseconds of 1970.
_DIGITS_OF_SECONDS_AND_DATES = range(8, 12)
# yyyyMMddHHmmss, as clients take consumeTimestamp. Read as milliseconds, 14 digits would be after the year 2286.
_DIGITS_OF_CLIENTS = 14
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_SPAN = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smhdw]))+")
_SPAN_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
# mqadmin's form of a time: UtilAll.YYYY_MM_DD_HH_MM_SS_SSS.
_UPSTREAM = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})#([0-9]{2}:[0-9]{2}:[0-9]{2}):([0-9]{3})")
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?)?"
    r"(?: ?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?))?"
)
_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})?")


def now_ms() -> int:
    """Return the current time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def parse_time(text: str, *, now: int, zone: tzinfo | None = None) -> int:
    """Return the epoch milliseconds that ``text`` means. ``zone`` is for times without one; None is the machine's."""
    word = text.strip()
    if re.fullmatch(r"-?[0-9]+", word):
        if len(word) == _DIGITS_OF_CLIENTS and word.isdigit():
            return _clients_time(text, zone)
        if len(word) in _DIGITS_OF_SECONDS_AND_DATES:
            raise UsageError(f'"{text}" would be a time in 1970: epoch milliseconds have 13 digits', hint=ACCEPTED)
        # A broker's "no end" is the greatest long. The end of a half-open range is one more, which is accepted too.
        if abs(int(word)) <= _LONG_MAX + 1:
            return min(int(word), _LONG_MAX)
    elif word[:1] in ("-", "+") and _SPAN.fullmatch(word[1:]):
        span = parse_span(word[1:])
        return now - span if word[0] == "-" else now + span
    elif word == "now":
        return now
    elif word in ("today", "yesterday"):
        day = _moment(now).astimezone(zone).date()
        return _start_of(day - timedelta(days=word == "yesterday"), zone)
    else:
        found = _calendar_time(word, zone)
        if found is not None:
            return found
    raise UsageError(f'"{text}" is not a time', hint=ACCEPTED)


def parse_span(text: str) -> int:
    """Return the milliseconds of a span of time such as ``1d12h``."""
    word = text.strip()
    if not _SPAN.fullmatch(word):
        raise UsageError(f'"{text}" is not a duration', hint=ACCEPTED_SPANS)
    return round(sum(float(number) * _UNITS[unit] for number, unit in _SPAN_PART.findall(word)))


def parse_zone(text: str) -> tzinfo | None:
    """Return a time zone. None is the machine's own zone, which can change its offset during the year."""
    word = text.strip()
    if word.lower() == "local":
        return None
    if word.upper() in ("UTC", "Z", "GMT"):
        return UTC
    offset = _OFFSET.fullmatch(word)
    try:
        if offset:
            span = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
            return timezone(-span if offset[1] == "-" else span)
        from zoneinfo import ZoneInfo

        return ZoneInfo(word)
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(f'"{text}" is not a known time zone', hint=ACCEPTED_ZONES) from error


def parse_period(
    begin: str | None, end: str | None, *, now: int, zone: tzinfo | None = None, may_be_empty: bool = False
) -> tuple[int | None, int | None]:
    """Return begin and end of a half-open range in epoch milliseconds; None where the range is open."""
    first = parse_time(begin, now=now, zone=zone) if begin is not None else None
    last = parse_time(end, now=now, zone=zone) if end is not None else None
    if not may_be_empty and first is not None and last is not None and first >= last:
        raise UsageError(
            f'the range from --begin "{begin}" to --end "{end}" is empty',
            hint="--begin is inclusive, --end is exclusive",
        )
    return first, last


def _clients_time(text: str, zone: tzinfo | None) -> int:
    """Return the moment of ``yyyyMMddHHmmss``. upstream: UtilAll.parseDate."""
    try:
        return _milliseconds(_placed(datetime.strptime(text.strip(), "%Y%m%d%H%M%S"), zone))
    except (ValueError, OverflowError) as error:
        raise UsageError(f'"{text}" is not a time', hint=ACCEPTED) from error


def _calendar_time(word: str, zone: tzinfo | None) -> int | None:
    upstream = _UPSTREAM.fullmatch(word)
    iso = f"{upstream[1]}T{upstream[2]}.{upstream[3]}" if upstream else word
    if not _ISO.fullmatch(iso):
        return None
    # Python reads neither a blank before the zone nor more than six digits of a fraction.
    iso = re.sub(r"([.,][0-9]{6})[0-9]+", r"\1", re.sub(r" (?=[Z+-])", "", iso))
    try:
        moment = datetime.fromisoformat(iso)
        return _milliseconds(moment if moment.tzinfo else _placed(moment, zone))
    except (ValueError, OverflowError):
        return None


def _start_of(day: date, zone: tzinfo | None) -> int:
    return _milliseconds(_placed(datetime(day.year, day.month, day.day), zone))


def _placed(moment: datetime, zone: tzinfo | None) -> datetime:
    return moment.astimezone() if zone is None else moment.replace(tzinfo=zone)


def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
