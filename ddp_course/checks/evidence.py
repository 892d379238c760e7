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
    """The message in a frame's body. Raises Malformed, and nothing else, whatever the body is."""
    try:
        (header_bytes,) = _HEADER.unpack_from(body)
        at = _HEADER.size + header_bytes
        if at > len(body):
            raise Malformed("a header longer than its frame")
        header = json.loads(body[_HEADER.size : at])
        tensors: dict[str, Array] = {}
        for item in header.pop("tensors"):
            array = _tensor(item["dtype"], item["shape"], body[at:])
            at += array.nbytes
            if tensors.setdefault(str(item["name"]), array) is not array:
                raise Malformed("a tensor whose name comes twice")
    except Malformed:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
            struct.error) as error:  # fmt: skip
        said = f"{type(error).__name__}: {error}"
        raise Malformed(f"a frame that does not follow the format ({said:.200})") from None
    if at != len(body):
        raise Malformed(f"{len(body) - at} bytes that belong to no tensor")
    return Message(header, tensors)


def _tensor(dtype: str, shape: list[int], raw: bytes) -> Array:
    # Only numbers: a product with a text in it could be gigabytes of that text.
    if dtype not in _DTYPES or not all(type(n) is int for n in shape):
        raise Malformed(f"a tensor of dtype {dtype!r:.80} and shape {shape!r:.80}")
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size > len(raw):
        raise Malformed("a tensor whose bytes are missing")
    return np.frombuffer(raw[:size], dtype).reshape(shape)
