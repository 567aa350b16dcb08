"""Hashes, bit for bit as Spark computes them."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.errors import TypeMismatch
from penstock.expr.table import define
from penstock.expr.typed import Typed
from penstock.types import BIGINT, INT, STRING, DataType, TypeKind, attribute

add = define("hashes")
_M32, _M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_SEED = 42
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _mix_k(k: int) -> int:
    k = (k * 0xCC9E2D51) & _M32
    k = ((k << 15) | (k >> 17)) & _M32
    return (k * 0x1B873593) & _M32


def _mix_h(h: int, k: int) -> int:
    h ^= k
    h = ((h << 13) | (h >> 19)) & _M32
    return (h * 5 + 0xE6546B64) & _M32


def _finish(h: int, length: int) -> int:
    h ^= length
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & _M32
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & _M32
    return h ^ (h >> 16)


def murmur_int(value: int, seed: int) -> int:
    """Murmur3 of 32 bits."""
    return _finish(_mix_h(seed, _mix_k(value & _M32)), 4)


def murmur_long(value: int, seed: int) -> int:
    """Murmur3 of 64 bits."""
    value &= _M64
    return _finish(_mix_h(_mix_h(seed, _mix_k(value & _M32)), _mix_k(value >> 32)), 8)


def murmur_bytes(value: bytes, seed: int) -> int:
    """Murmur3 of bytes, those behind the last word one by one, as Spark has it."""
    h, whole = seed, len(value) & ~3
    for (word,) in struct.iter_unpack("<I", value[:whole]):
        h = _mix_h(h, _mix_k(word))
    for byte in value[whole:]:
        h = _mix_h(h, _mix_k((byte - 256 if byte > 127 else byte) & _M32))
    return _finish(h, len(value))


def _rot(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _M64


def _avalanche(h: int) -> int:
    h ^= h >> 33
    h = (h * _P2) & _M64
    h ^= h >> 29
    h = (h * _P3) & _M64
    return h ^ (h >> 32)


def xx_int(value: int, seed: int) -> int:
    """XXH64 of 32 bits."""
    h = (seed + _P5 + 4) & _M64
    h ^= ((value & _M32) * _P1) & _M64
    return _avalanche((_rot(h, 23) * _P2 + _P3) & _M64)


def xx_long(value: int, seed: int) -> int:
    """XXH64 of 64 bits."""
    h = (seed + _P5 + 8) & _M64
    h ^= (_rot(((value & _M64) * _P2) & _M64, 31) * _P1) & _M64
    return _avalanche((_rot(h, 27) * _P1 + _P4) & _M64)


def xx_bytes(data: bytes, seed: int) -> int:
    """XXH64 of bytes."""
    n, at = len(data), 0
    if n >= 32:
        lanes = [(seed + _P1 + _P2) & _M64, (seed + _P2) & _M64, seed & _M64, (seed - _P1) & _M64]
        while at <= n - 32:
            for i, word in enumerate(struct.unpack_from("<4Q", data, at)):
                lanes[i] = (_rot((lanes[i] + word * _P2) & _M64, 31) * _P1) & _M64
            at += 32
        h = sum(_rot(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _M64
        for lane in lanes:
            h = ((h ^ (_rot((lane * _P2) & _M64, 31) * _P1) & _M64) * _P1 + _P4) & _M64
    else:
        h = (seed + _P5) & _M64
    h = (h + n) & _M64
    while at <= n - 8:
        (word,) = struct.unpack_from("<Q", data, at)
        h = (_rot(h ^ ((_rot((word * _P2) & _M64, 31) * _P1) & _M64), 27) * _P1 + _P4) & _M64
        at += 8
    if at <= n - 4:
        (word,) = struct.unpack_from("<I", data, at)
        h = (_rot(h ^ ((word * _P1) & _M64), 23) * _P2 + _P3) & _M64
        at += 4
    for byte in data[at:]:
        h = (_rot(h ^ ((byte * _P5) & _M64), 11) * _P1) & _M64
    return _avalanche(h)


Step = Callable[[Any, int], int]


def _step(kind: DataType, of_int: Step, of_long: Step, of_bytes: Step) -> Step:
    """How a value goes into a hash that has begun."""
    word = kind.kind
    if word in (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.DATE, TypeKind.BOOLEAN):
        return lambda value, seed: of_int(int(value), seed)
    if word in (TypeKind.BIGINT, TypeKind.TIMESTAMP):
        return of_long
    if word is TypeKind.DOUBLE:
        return lambda value, seed: of_long(_bits(value, "<d", "<q"), seed)
    if word is TypeKind.FLOAT:
        return lambda value, seed: of_int(_bits(value, "<f", "<i"), seed)
    if word is TypeKind.STRING:
        return lambda value, seed: of_bytes(value.encode(), seed)
    if word is TypeKind.BINARY:
        return of_bytes
    if word is TypeKind.DECIMAL:
        return _decimal_step(kind, of_long, of_bytes)
    if word is TypeKind.MAP:
        raise TypeMismatch(what="a map has no hash, because its order is not defined.")
    if word is TypeKind.STRUCT:
        parts = [(attribute(f.name), _step(f.type, of_int, of_long, of_bytes)) for f in kind.fields]

        def of_struct(value: Any, seed: int) -> int:
            for name, part in parts:
                each = getattr(value, name)
                seed = seed if each is None else part(each, seed)
            return seed

        return of_struct
    assert kind.element is not None
    item = _step(kind.element, of_int, of_long, of_bytes)

    def of_array(value: Any, seed: int) -> int:
        for each in value:
            seed = seed if each is None else item(each, seed)
        return seed

    return of_array


def _bits(value: float, given: str, wanted: str) -> int:
    if value == 0:
        return 0
    if value != value:
        return 0x7FF8000000000000 if given == "<d" else 0x7FC00000
    found: int = struct.unpack(wanted, struct.pack(given, value))[0]
    return found


def _decimal_step(kind: DataType, of_long: Step, of_bytes: Step) -> Step:
    def unscaled(value: Decimal) -> int:
        return int(value.scaleb(kind.scale))

    if kind.precision <= 18:
        return lambda value, seed: of_long(unscaled(value), seed)

    def of_wide(value: Decimal, seed: int) -> int:
        number = unscaled(value)
        length = (number if number >= 0 else ~number).bit_length() // 8 + 1
        return of_bytes(number.to_bytes(length, "big", signed=True), seed)

    return of_wide


def hash64(kind: DataType) -> Callable[[Any], int]:
    """Spark's xxhash64 of values of a type; sketches use it."""
    step = _step(kind, xx_int, xx_long, xx_bytes)
    return lambda value: step(value, _SEED)


def _hashing(bits: int, of_int: Step, of_long: Step, of_bytes: Step) -> Callable[[Typed], Callable[..., int]]:
    def make(node: Typed) -> Callable[..., int]:
        steps = [_step(arg.type, of_int, of_long, of_bytes) for arg in node.args]

        def compute(*values: Any) -> int:
            seed = _SEED
            for step, value in zip(steps, values, strict=True):
                if value is not None:
                    seed = step(value, seed)
            return seed - (1 << bits) if seed >> (bits - 1) else seed

        return compute

    return make


_SHA2 = {0: hashlib.sha256, 224: hashlib.sha224, 256: hashlib.sha256, 384: hashlib.sha384, 512: hashlib.sha512}


def sha2(value: bytes, bits: int) -> str | None:
    """SHA-2 of 224, 256, 384 or 512 bits, in hexadecimal digits."""
    function = _SHA2.get(bits)
    return None if function is None else function(value).hexdigest()


add("md5", "c:binary", STRING, lambda value: hashlib.md5(value, usedforsecurity=False).hexdigest())
add("sha sha1", "c:binary", STRING, lambda value: hashlib.sha1(value, usedforsecurity=False).hexdigest())
add("sha2", "c:binary l:int", STRING, sha2, nullable=True)
add("crc32", "c:binary", BIGINT, zlib.crc32)
add("hash", "c:hashed*", INT, make=_hashing(32, murmur_int, murmur_long, murmur_bytes), strict=False)
add("xxhash64", "c:hashed*", BIGINT, make=_hashing(64, xx_int, xx_long, xx_bytes), strict=False)
