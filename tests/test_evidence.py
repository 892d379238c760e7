"""Frames go through unchanged, and nothing ill-formed becomes an array."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from ddp_course.checks.evidence import MAX_FRAME_BYTES, Malformed, Message, pack, split, unpack


def frame(header: object, raw: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + raw


def one(**changes: object) -> dict[str, object]:
    return {"tensors": [{"name": "a", "dtype": "float32", "shape": [2]} | changes]}


def test_there_and_back_in_pieces() -> None:
    tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array(7, dtype=np.int64),
        "c": np.zeros((0, 2), dtype=np.float64),
    }
    sent = pack(Message({"event": "returned", "rank": 1}, tensors)) * 2
    buffer, got = b"", []
    for at in range(0, len(sent), 5):
        buffer += sent[at : at + 5]
        body, buffer = split(buffer)
        if body is not None:
            got.append(unpack(body))
    assert buffer == b"" and len(got) == 2
    for message in got:
        assert message.fields == {"event": "returned", "rank": 1}
        for name, array in tensors.items():
            assert message.tensors[name].dtype == array.dtype
            np.testing.assert_array_equal(message.tensors[name], array)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        struct.pack(">I", 100) + b"{}",
        frame(b"not json"),
        frame([]),
        frame({}),
        frame({"tensors": "a"}),
        frame({"tensors": [1]}),
        frame(one()),
        frame(one(), bytes(7)),
        frame(one(), bytes(9)),
        frame(one(dtype="object"), bytes(16)),
        frame(one(dtype="O"), bytes(16)),
        frame(one(dtype=None), bytes(8)),
        frame(one(shape=[-2]), bytes(8)),
        frame(one(shape=[2.0]), bytes(8)),
        frame(one(shape=[True]), bytes(4)),
        frame(one(shape=2), bytes(8)),
        frame(one(shape=[1] * 9), bytes(4)),
        frame(one(shape=[2**40, 2**40])),
        frame({"tensors": one()["tensors"] * 2}, bytes(16)),  # type: ignore[operator]
    ],
)
def test_ill_formed_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        unpack(body)


def test_an_endless_frame_is_refused_before_it_comes() -> None:
    with pytest.raises(Malformed):
        split(struct.pack(">Q", MAX_FRAME_BYTES + 1))
