"""The screen of ``serve`` on a terminal: at two widths, and in a window that is too small for everything."""

from __future__ import annotations

import io

import pytest

from rmqtool.broker.traffic import GroupTraffic, TopicTraffic, Traffic
from rmqtool.render.serve import ServeScreen, serve_lines
from tests.support.golden_files import check_golden

READY = "serving store: name server 127.0.0.1:9876, broker 127.0.0.1:10911"
TOPICS = [
    TopicTraffic("Orders", 4, 41_220, 1234.4, 617.2),
    TopicTraffic("Payments-of-customers-who-pay-by-instalments-in-the-northern-region", 8, 12, 0.0, 0.4),
    TopicTraffic("%RETRY%billing", 1, 3, 0.0, 0.0),
]
GROUPS = [GroupTraffic("billing", 2, 1_250, 617.2), GroupTraffic("shipping", 0, 41_220, 0.0)]
BUSY = Traffic(3, 52_000, 31_007, TOPICS, GROUPS, 3_725.2)
EVENTS = ["client 127.0.0.1:54840 has come (JAVA, version 475)", "client 127.0.0.1:\x1b[31m is gone"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_of_a_busy_server(width: int) -> None:
    lines = list(serve_lines(READY, BUSY, EVENTS, width=width, height=40))
    assert max(map(len, lines)) <= width
    check_golden(f"fix/serve-{width}.txt", "\n".join(lines) + "\n")


def test_in_a_small_window_the_busiest_are_shown_and_the_others_counted() -> None:
    many = [TopicTraffic(f"T{number:02}", 4, 10, 0.0, 0.0) for number in range(50)]
    lines = list(serve_lines(READY, BUSY._replace(topics=[*TOPICS, *many]), [], width=80, height=16))
    assert lines[4].split() == ["Orders", "4", "41,220", "1,234", "617"]
    assert "and 45 more topics" in lines
    assert any(line.startswith("billing") for line in lines)


def test_a_server_without_traffic_shows_where_clients_connect() -> None:
    lines = list(serve_lines(READY, Traffic(0, 0, 0, [], [], 0.2), [], width=80, height=24))
    assert lines == [READY, "0 clients   0 messages in   0 out   up 0:00:00"]


def test_each_look_draws_the_screen_again() -> None:
    out = io.StringIO()
    with ServeScreen(out) as screen:
        screen.tell({"ready": True}, READY)
        screen.show(BUSY)
        screen.tell({"event": "gone"}, "client 127.0.0.1:1 is gone")
    shown = out.getvalue()
    assert READY in shown
    assert "client 127.0.0.1:1 is gone" in shown
