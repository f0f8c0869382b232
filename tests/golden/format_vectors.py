#!/usr/bin/env python3
"""The golden vectors of the durable format, made a second time: from doc/format alone, sharing nothing with src/format
but libxxhash. Without arguments prints them as C; with the name of test_format_golden.c compares, one TAP point a vector.
"""
import ctypes
import ctypes.util
import re
import struct
import sys

WRITE_UNIT = 4096
SEGMENT = 65536
SLOT_NONE = 0xFFFFFFFF
RING_SLOTS = 32

u8 = struct.Struct("<B").pack
u16 = struct.Struct("<H").pack
u32 = struct.Struct("<I").pack
u64 = struct.Struct("<Q").pack


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def load_xxhash():
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_128bits.restype = Hash128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library.XXH3_128bits


XXH3_128 = load_xxhash()


def sum16(*parts):
    data = b"".join(parts)
    h = XXH3_128(data, len(data))
    return u64(h.low) + u64(h.high)


def varint(value):
    out = b""
    while value >= 0x80:
        out += u8(value & 0x7F | 0x80)
        value >>= 7
    return out + u8(value)


def zigzag(difference):
    """As a varint; the difference is taken modulo 2^64."""
    d = difference % 2**64
    return varint(2 * d if d < 2**63 else 2 * (2**64 - d) - 1)


def count_up(first, n):
    """Bytes first, first + 1, ...: a made-up id or checksum."""
    return bytes(range(first, first + n))


# ---- pointer.md ----

HOLE, PROVISIONED, DATA, NODE, PATCH = 1, 2, 3, 4, 5
OFF, LZ4, ZSTD = 0, 1, 2
LOSSY = 1


def pointer(kind, codec, address, length, checksum, flags=0):
    return u64(address) + u32(length)[:3] + bytes([kind, codec, 0, 1, flags]) + checksum


# ---- label.md ----

def label():
    fields = [
        b"ASHLABEL", u32(1), u32(WRITE_UNIT), u64(0), u64(0), u64(0), count_up(0x20, 16), u32(0), u32(1), u64(33), u64(32), u64(7),
        u64(0x1122334455667788), u32(1), u32(SEGMENT), u32(2), u32(2), u64(1000), u64(2000), u64(12), u64(18),
        u64(5 * SEGMENT + WRITE_UNIT), count_up(0x80, 16), u32(0), u32(1), u64(6 * SEGMENT), bytes(8),
        *map(u64, [7, 11] + [0] * 6), *map(u32, [2, 7] + [SLOT_NONE] * 6)]
    device_bytes = 2 * RING_SLOTS * WRITE_UNIT + 8 * SEGMENT + 100
    device = u32(0) + u8(1) + bytes(3) + u64(device_bytes) + u64(RING_SLOTS * WRITE_UNIT) + u32(8) + bytes(4)
    device += count_up(0x40, 16) + bytes(16)
    roots = b""
    for kind, address in ((1, 4 * SEGMENT + 4096), (2, 3 * SEGMENT + 200)):
        checksum = count_up(0x60 + 0x10 * kind, 16)
        roots += u16(kind) + u8(1) + bytes(5) + pointer(NODE, OFF, address, 300 + kind, checksum) + bytes(8)
    unit = b"".join(fields)
    assert len(unit) == 288
    unit = (unit + device).ljust(800, b"\0") + roots
    unit = unit.ljust(WRITE_UNIT - 16, b"\0")
    back_ring, ring_slot = 1, 33 % RING_SLOTS
    return unit + sum16(u64(back_ring), u64(ring_slot), unit)


# ---- chunk.md ----

DATA_HEAD, NODE_HEAD = 0, 1
COPY, BRIDGE = 1, 2


def round_up(n, unit):
    return -(-n // unit) * unit


def chunk_layout(head, flags, table, echo, payload):
    """(chunk bytes, offset of the trailer or None)"""
    front = 192 + len(table)
    body = front + len(echo) + len(payload)
    if head == NODE_HEAD or (body <= WRITE_UNIT and front <= WRITE_UNIT // 2 and not flags & BRIDGE):
        return round_up(body, WRITE_UNIT), None
    size = round_up(max(body, round_up(front, WRITE_UNIT)) + front + 32, WRITE_UNIT)
    return size, size - 32 - front


def chunk(head, flags, address, sequence, count, table, payload=b"", next_slots=(), next_segments=(), echo=b""):
    size, trailer = chunk_layout(head, flags, table, echo, payload)
    previous, durable_to = (count_up(0x80, 16), 5 * SEGMENT) if head == DATA_HEAD else (bytes(16), 0)
    if echo:
        previous = echo[176:192]
    deltas = [0] * 8
    for k in range(1, len(next_segments)):
        deltas[k] = next_segments[k] - next_segments[k - 1]
    slots = list(next_slots) + [SLOT_NONE] * (8 - len(next_slots))
    header = b"".join([
        b"ASHCHUNK", u16(1), u8(head), u8(1), u32(flags), count_up(0x20, 16), u64(address), u64(0x99), previous,
        u64(durable_to), u64(3000), u64(0), u64(sequence), u32(size), u32(len(table)), u32(len(payload)), u32(count),
        *map(u32, slots), u64(next_segments[0] if next_segments else 0), bytes(deltas), u32(len(echo)), bytes(12)])
    assert len(header) == 176
    chain = sum16(sum16(header), table)
    front = header + chain + table
    if trailer is None:
        return (front + echo + payload).ljust(size, b"\0")
    footer = b"ASHTRAIL" + u64(address) + u32(size) + u32(len(front)) + chain[:8]
    return (front + echo + payload).ljust(trailer, b"\0") + front + footer


def run(kind, branch, index, count, codec=None, level=None):
    out = u8(kind) + varint(branch) + varint(index) + varint(count)
    if codec is not None:
        out += bytes([codec, 0, 0])
    return out + (u8(level) if level is not None else b"")


def stored(data):
    return varint(len(data)) + sum16(data)


def data_chunk():
    first, second, raw = b"\1" * 5, b"\2" * 300, b"\xa5" * 4096
    table = run(1, 16, 1000, 2, codec=ZSTD) + stored(first) + stored(second)
    table += run(2, 17, 3, 1, codec=OFF) + varint(16) + varint(8) + stored(raw)
    table += run(3, 16, 0, 2) + varint(10) + varint(2**40)
    table += run(4, 16, 5, 1) + varint(1)
    return chunk(DATA_HEAD, 0, 5 * SEGMENT + WRITE_UNIT, 7, 6, table, first + second + raw, (2, 7), (7, 11))


def small_chunk():
    """One write unit: its header and table are repeated in the chunk that follows."""
    patch = b"\4" * 100
    table = run(2, 16, 3, 1, codec=LZ4) + varint(0) + varint(8) + stored(patch) + run(3, 17, 8, 1) + varint(1)
    return chunk(DATA_HEAD, 0, 5 * SEGMENT + 2 * WRITE_UNIT, 9, 2, table, patch, (2,), (7,)), 192 + len(table)


def echo_chunk():
    before, front = small_chunk()
    record = b"\5" * 200
    return chunk(DATA_HEAD, 0, 5 * SEGMENT + 3 * WRITE_UNIT, 10, 1, run(1, 16, 9, 1, codec=ZSTD) + stored(record), record,
                 (2,), (7,), before[:front])


def node_chunk():
    node = b"\3" * 60
    table = run(5, 16, 2, 1, codec=OFF, level=1) + stored(node)
    return chunk(NODE_HEAD, COPY, 6 * SEGMENT + WRITE_UNIT, 8, 1, table, node)


def bridge_chunk():
    return chunk(DATA_HEAD, BRIDGE, 5 * SEGMENT, 9, 1, run(6, 0, 300, 1) + varint(9))


# ---- node.md ----

def tag(kind, codec=0, flags=0):
    return bytes([kind | codec << 4 | (0x40 if flags else 0)]) + (u8(flags) if flags else b"")


def packed(length, checksum):
    return varint(length) + count_up(checksum, 16)


def leaf():
    out = b"ANOD" + u8(1) + u8(0) + varint(16) + varint(3) + u8(0)
    out += tag(DATA, LZ4) + u8(2 - 1) + tag(HOLE) + u8(1 - 1) + tag(DATA, OFF, LOSSY) + u8(1 - 1) + tag(0) + u8(124 - 1)
    out += zigzag(100000 - 0) + packed(500, 0x10)
    out += zigzag(0) + packed(16000, 0x20)
    out += zigzag(90000 - 116500)
    out += zigzag(200000 - 90000) + packed(4097, 0x30)
    out += varint(3)
    out += varint(1) + varint(0) + varint(8) + tag(PATCH, LZ4) + zigzag(300000 - 204097) + packed(100, 0x40)
    out += varint(0) + varint(8) + varint(1) + tag(PATCH, OFF) + zigzag(0) + packed(512, 0x50)
    out += varint(4) + varint(1) + varint(2) + tag(PATCH, ZSTD) + zigzag(250000 - 300612) + packed(7, 0x60)
    return out


def inner_node():
    nodes = [0x123456789A, 0x0000001000, 0x99999999AA, 0x0200000000]
    provisioned = 0x5555555555
    base, width = min(nodes), 5
    out = b"ANOD" + u8(1) + u8(1) + varint(16) + varint(0) + u8(width) + varint(base)
    out += tag(NODE) + u8(4 - 1) + tag(0) + u8(251 - 1) + tag(PROVISIONED) + u8(1 - 1)
    for i, address in enumerate(nodes):
        out += (address - base).to_bytes(width, "little") + packed(1000 + i, 0x10 * (i + 1))
    return out + (provisioned - base).to_bytes(width, "little") + varint(0)


# ---- catalog.md, table.md ----

def value(number, data):
    return u16(number | 0x8000) + u16(len(data)) + data


def volume():
    root = u8(3) + pointer(NODE, OFF, 6 * SEGMENT + 8192, 700, count_up(0x30, 16))
    values = [u16(1) + u16(1), u64(20), u64(21), count_up(0x20, 16), b"home:a+b", u64(2**30), u32(16384), struct.pack("<Bb", ZSTD, -3),
              u64(4000), root, u64(65000) + u64(2**29) + u64(2**20) + u64(12)]
    return b"".join(value(i + 1, data) for i, data in enumerate(values))


def slots():
    """The first three of table record 1."""
    def slot(state, head, used, live, segment, since):
        return bytes([state, head, 0, 0]) + u32(used) + u32(live) + u32(1) + u64(segment) + u64(since)
    return slot(4, 0, 65536, 1234, 40, 6) + slot(3, 1, 0, 77, 41, 7) + slot(1, 0, 0, 0, 0, 5)


VECTORS = {
    "pointer": pointer(DATA, ZSTD, 0x1122334455667788, 0xABCDE, count_up(0x10, 16), LOSSY),
    "label": label(),
    "chunk_data": data_chunk(),
    "chunk_small": small_chunk()[0],
    "chunk_echo": echo_chunk(),
    "chunk_node": node_chunk(),
    "chunk_bridge": bridge_chunk(),
    "leaf": leaf(),
    "inner": inner_node(),
    "volume": volume(),
    "slots": slots(),
}


def text_of(data):
    """Hex digits; five and more equal bytes as "XX*N "."""
    out = ""
    for same in re.finditer(rb"(.)\1*", data, re.DOTALL):
        byte, n = same.group(1)[0], len(same.group())
        out += f"{byte:02x}*{n} " if n >= 5 else f"{byte:02x}" * n
    return out.strip()


def compare(path):
    with open(path, encoding="utf-8") as f:
        source = f.read()
    failed = 0
    for number, (name, data) in enumerate(VECTORS.items(), 1):
        found = re.search(rf'golden_{name}\[\] =((?:\s*"[^"]*")+);', source)
        same = found is not None and "".join(re.findall(r'"([^"]*)"', found.group(1))) == text_of(data)
        failed += not same
        print(f"{'ok' if same else 'not ok'} {number} - {name}")
    print(f"1..{len(VECTORS)}")
    return 1 if failed else 0


def print_vectors():
    for name, data in VECTORS.items():
        text = text_of(data)
        lines = [f'    "{text[i:i + 104]}"' for i in range(0, len(text), 104)]
        print(f"static const char golden_{name}[] =\n" + "\n".join(lines) + ";")
    return 0


if __name__ == "__main__":
    sys.exit(compare(sys.argv[1]) if len(sys.argv) == 2 else print_vectors())
