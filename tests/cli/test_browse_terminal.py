"""The five journeys of ``browse`` in a real terminal: tmux types, and reads its screen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import pytest

from tests.support.browsed import make_shop, shorten_queue, spoil_body
from tests.support.waiting import PATIENCE

TMUX = shutil.which("tmux")
pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed: it is the terminal of these tests")


class Terminal:
    """A terminal of 80 columns and 24 lines in which ``browse`` runs."""

    def __init__(self, name, root, **environment):
        self.words = [TMUX, "-L", f"rmqtool-{os.getpid()}-{name}", "-f", "/dev/null"]
        told = [part for key, value in environment.items() for part in ("-e", f"{key}={value}")]
        command = f"{sys.executable} -m rmqtool browse {root} --tz UTC; echo left with $?; sleep 30"
        self.run("new-session", "-d", "-x", "80", "-y", "24", *told, command)

    def run(self, *words):
        done = subprocess.run([*self.words, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def screen(self):
        return self.run("capture-pane", "-p")

    def sees(self, *texts):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            screen = self.screen()
            if all(text in screen for text in texts):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"{texts} did not appear:\n{self.screen()}")

    def keys(self, *keys):
        self.run("send-keys", *keys)

    def close(self):
        subprocess.run([*self.words, "kill-server"], capture_output=True, check=False)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory):
    root = make_shop(tmp_path_factory.mktemp("terminal") / "store")
    spoil_body(root, 4705)
    shorten_queue(root, 2, 3)
    opened = Terminal("browse", root)
    yield opened
    opened.close()


def test_five_questions_are_answered_in_a_terminal(terminal):
    terminal.sees("overview", "topics", "⏎ open", "? help  q")
    # Find order 4711 and its story.
    terminal.keys("/")
    terminal.keys("order-4711", "Enter")
    terminal.sees("search order-4711", "Orders/3@2")
    terminal.keys("Enter")
    terminal.sees("message Orders/3@2", '"order": 4711', "now stored", "shipping consumed it")
    # What is at this offset?
    terminal.keys(":")
    terminal.keys("@3095", "Enter")
    terminal.sees("body: {", "in message V1 Orders/3 @ 2")
    # Why is this queue short?
    terminal.keys(":")
    terminal.keys("Orders/2@46", "Enter")
    terminal.sees("47 entries, the next one is 47")
    terminal.keys("d")
    terminal.sees("CQ-MISSING", "206 messages read")
    terminal.keys("Down")
    terminal.sees("3 messages are missing", "repair")
    # Which bytes are damaged in this record?
    terminal.keys("Up", "Enter")
    terminal.sees("CL-CRC", "✗ was 72 'r', if nothing else", "bytes 1453 to 1477 changed", "does not tell which")
    # What is delayed until when?
    terminal.keys("Tab", "Home")
    for _ in range(5):
        terminal.keys("Down")
    terminal.keys("Enter")
    terminal.sees("delayed", "level 16", "rate order-4702", "due 20")
    terminal.keys("q")
    terminal.sees("left with 0")


def test_no_colour_is_used_where_none_is_wanted(tmp_path):
    root = make_shop(tmp_path / "store", 5)
    opened = Terminal("plain", root, NO_COLOR="1")
    try:
        opened.sees("overview", "⏎ open", "? help  q")
        assert "\x1b[3" not in opened.run("capture-pane", "-p", "-e").replace("\x1b[39m", "")
    finally:
        opened.close()
