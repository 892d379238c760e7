"""Frames go through unchanged, and nothing ill-formed becomes an array."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

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
        frame(one(shape=[1] * 65), bytes(4)),
        frame(one(shape=[0] + [2**31 - 1] * 7)),
        frame(one(shape=[0, 2**80])),
        frame(one(shape={})),
        frame(one(name=["a"], dtype=["float32"]), bytes(8)),
        frame(b"[" * 100_000),
        frame(b'{"tensors": ' + b"9" * 5000 + b"}"),
        frame(b'{"tensors": [{"name": "a", "dtype": ' + b"[" * 900 + b"]" * 900 + b"}]}"),
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


SIZES = st.one_of(st.integers(-2, 3), st.sampled_from([2**31 - 1, 2**63, 2**80]), st.booleans())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
TENSOR = st.fixed_dictionaries(
    {
        "name": st.text(max_size=2) | JSON,
        "dtype": st.sampled_from(["float32", "float64", "int64", "object", "<U9"]) | JSON,
        "shape": st.lists(SIZES, max_size=9) | JSON,
    }
)
HEADER = st.fixed_dictionaries({"tensors": st.lists(TENSOR | JSON, max_size=3) | JSON}) | JSON


@settings(deadline=None, max_examples=500)
@given(
    body=st.binary(max_size=64) | st.builds(frame, HEADER | st.binary(), st.binary(max_size=64)),
)
@example(body=frame({"tensors": [{"name": "a", "dtype": "float32", "shape": [0, 2**31 - 1] * 4}]}))
def test_whatever_comes_is_a_message_or_refused(body: bytes) -> None:
    try:
        message = unpack(body)
    except Malformed as error:
        assert len(str(error)) < 500
    else:
        assert sum(one.nbytes for one in message.tensors.values()) <= len(body)
