"""Messages between a rank and its supervisor: a JSON header and raw tensor bytes.

A frame is 8 bytes of length (big-endian), 4 bytes of header length, the header (UTF-8 JSON) and
the tensors' bytes in the header's order. Nothing is unpickled. The reader trusts no field: sizes,
dtypes, shapes and byte counts are checked before an array is built.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SOCKET = "DDP_COURSE_CHECK_SOCKET"  # the variable that tells the ranks where to connect
MAX_FRAME_BYTES = 1 << 20
_MAX_DIMENSIONS = 8
_LENGTH = struct.Struct(">Q")
_HEADER = struct.Struct(">I")
_DTYPES = {"float32", "float64", "int64"}


class Malformed(ValueError):
    """A frame that does not follow the format; the rank that sent it has no evidence."""


@dataclass(frozen=True)
class Message:
    """One message: `fields` are the header's plain values, `tensors` are named arrays."""

    fields: dict[str, Any]
    tensors: dict[str, Array] = field(default_factory=dict)


def pack(message: Message) -> bytes:
    """The frame of a message, ready to send."""
    listed = [
        {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
        for name, array in message.tensors.items()
    ]
    header = json.dumps({**message.fields, "tensors": listed}).encode()
    raw = b"".join(np.ascontiguousarray(array).tobytes() for array in message.tensors.values())
    return (
        _LENGTH.pack(_HEADER.size + len(header) + len(raw))
        + _HEADER.pack(len(header))
        + header
        + raw
    )


def split(buffer: bytes) -> tuple[bytes | None, bytes]:
    """The first whole frame's body in `buffer` (None while it is incomplete) and what follows.

    Raises Malformed if the frame announces more than MAX_FRAME_BYTES.
    """
    if len(buffer) < _LENGTH.size:
        return None, buffer
    (length,) = _LENGTH.unpack_from(buffer)
    if length > MAX_FRAME_BYTES:
        raise Malformed(f"a frame of {length} bytes; {MAX_FRAME_BYTES} are allowed")
    end = _LENGTH.size + length
    if len(buffer) < end:
        return None, buffer
    return buffer[_LENGTH.size : end], buffer[end:]


def unpack(body: bytes) -> Message:
    """The message in a frame's body. Raises Malformed."""
    if len(body) < _HEADER.size:
        raise Malformed("a frame without a header")
    (header_bytes,) = _HEADER.unpack_from(body)
    end = _HEADER.size + header_bytes
    if end > len(body):
        raise Malformed("a header longer than its frame")
    try:
        header = json.loads(body[_HEADER.size : end])
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a header that is not JSON: {error}") from error
    if not isinstance(header, dict) or not isinstance(header.get("tensors"), list):
        raise Malformed("a header without its list of tensors")
    listed = header.pop("tensors")
    return Message(header, _tensors(listed, body[end:]))


def _tensors(listed: list[Any], raw: bytes) -> dict[str, Array]:
    tensors: dict[str, Array] = {}
    at = 0
    for item in listed:
        name, dtype, shape = _description(item)
        count = math.prod(shape) * np.dtype(dtype).itemsize
        if at + count > len(raw) or name in tensors:
            raise Malformed(f"tensor {name!r}: bytes are missing or the name comes twice")
        tensors[name] = np.frombuffer(raw[at : at + count], dtype=dtype).reshape(shape)
        at += count
    if at != len(raw):
        raise Malformed(f"{len(raw) - at} bytes that belong to no tensor")
    return tensors


def _description(item: Any) -> tuple[str, str, tuple[int, ...]]:
    if not isinstance(item, dict):
        raise Malformed("a tensor without a description")
    name, dtype, shape = item.get("name"), item.get("dtype"), item.get("shape")
    if not isinstance(name, str) or str(dtype) not in _DTYPES or not isinstance(shape, list):
        raise Malformed(f"tensor {name!r} of dtype {dtype!r} and shape {shape!r}")
    if len(shape) > _MAX_DIMENSIONS or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise Malformed(f"tensor {name!r} of shape {shape!r}")
    return name, str(dtype), tuple(shape)
