"""Whatever a declared request or a frame says, it says again after a round trip."""

from __future__ import annotations

from hypothesis import given, settings

from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.frames import FrameDecoder, decode_frame, encode_frame
from rmqtool.remoting.headers import Request, Row
from rmqtool.remoting.wire_log import line_of
from tests.support import wire_values


@settings(max_examples=400, derandomize=True, deadline=None)
@given(wire_values.requests())
def test_a_request_is_its_texts(made: tuple[Row, Request]) -> None:
    row, request = made
    assert row.decode(row.encode(request)) == request


@settings(max_examples=400, derandomize=True, deadline=None)
@given(wire_values.commands())
def test_a_command_is_its_frame(command: RemotingCommand) -> None:
    data = encode_frame(command)
    assert decode_frame(data) == command
    decoder = FrameDecoder()
    assert [*decoder.feed(data[:9]), *decoder.feed(data[9:] + data)] == [command, command]
    assert "\n" not in line_of(command)
