# SPDX-License-Identifier: Apache-2.0
"""Both ends cut the same stream into the same frames, wherever it is broken."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.worker_scripts import wire
from livery.ports.provided.worker_frames import (
    CHUNK_BYTES,
    FRAME_BYTES_MAX,
    HEADER,
    WINDOW_BYTES,
    Frame,
    FrameKind,
    FrameReader,
    FramesBroken,
    from_payload,
    to_payload,
)

frames = st.builds(
    Frame,
    kind=st.sampled_from(FrameKind),
    call=st.integers(0, 2**32 - 1),
    payload=st.binary(max_size=200),
)
texts = st.text(st.characters(exclude_categories=())) | st.binary().map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)


def broken(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[begin:end] for begin, end in itertools.pairwise(edges)]


@given(st.lists(frames), st.lists(st.integers(0, 10_000)))
def test_frames_come_out_as_they_went_in(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(frame.to_bytes() for frame in sent)
    host, worker = FrameReader(), wire.FrameReader()

    pieces = broken(stream, cuts)
    at_host = [frame for piece in pieces for frame in host.feed(piece)]
    at_worker = [parts for piece in pieces for parts in worker.feed(piece)]

    assert at_host == sent
    assert at_worker == [(frame.kind, frame.call, frame.payload) for frame in sent]


@given(frames)
def test_both_ends_write_the_same_bytes(sent: Frame) -> None:
    assert wire.frame(sent.kind, sent.call, sent.payload) == sent.to_bytes()


@given(st.dictionaries(st.text(), texts))
def test_words_come_through_both_ways(words: dict[str, str]) -> None:
    assert wire.words_of(to_payload(words)) == words
    told = wire.told(wire.ANSWER, 7, dict(words))
    assert from_payload(told[HEADER.size :]) == words


def test_both_ends_have_the_same_bounds_and_numbers() -> None:
    assert wire.CHUNK_BYTES == CHUNK_BYTES
    assert wire.WINDOW_BYTES == WINDOW_BYTES
    assert wire.FRAME_BYTES_MAX == FRAME_BYTES_MAX
    assert wire.HEADER.format == HEADER.format
    for kind in FrameKind:
        assert getattr(wire, kind.name) == kind


@given(st.binary(min_size=9, max_size=100))
def test_what_is_no_frame_is_never_taken_for_one(noise: bytes) -> None:
    kind, _, length = HEADER.unpack_from(noise)
    reader = FrameReader()

    if kind in set(FrameKind) and length <= FRAME_BYTES_MAX:
        for frame in reader.feed(noise[: HEADER.size + length]):
            assert frame.to_bytes() == noise[: HEADER.size + length]
    else:
        with pytest.raises(FramesBroken):
            list(reader.feed(noise))


def test_a_frame_that_is_too_long_is_not_waited_for() -> None:
    header = HEADER.pack(FrameKind.CHUNK, 1, FRAME_BYTES_MAX + 1)

    with pytest.raises(FramesBroken):
        list(FrameReader().feed(header))
    with pytest.raises(wire.FrameTooLong):
        list(wire.FrameReader().feed(header))


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff", b"1"])
def test_words_that_are_none_are_told(payload: bytes) -> None:
    with pytest.raises(FramesBroken):
        from_payload(payload)
