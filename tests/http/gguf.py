"""GGUF files made from others: as much of the format as these tests need."""

import struct

UINT32, BOOL, STRING, ARRAY = 4, 7, 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, UINT32: 4, 5: 4, 6: 4, BOOL: 1, 10: 8, 11: 8, 12: 8}
_ALIGNMENT = 32


def text(value):
    return struct.pack('<Q', len(value.encode())) + value.encode()


def _read_text(data, at):
    size, = struct.unpack_from('<Q', data, at)
    return data[at + 8:at + 8 + size].decode(), at + 8 + size


def _skip_value(data, at, kind):
    if kind == STRING:
        return _read_text(data, at)[1]
    if kind == ARRAY:
        element, count = struct.unpack_from('<IQ', data, at)
        at += 12
        for _ in range(count):
            at = _skip_value(data, at, element)
        return at
    return at + _SCALAR_BYTES[kind]


def _aligned(offset):
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def with_values(path, out, values):
    """Copies a model with {key: (type, bytes of the value)} added; its own values stay."""
    with open(path, 'rb') as file:
        data = file.read()
    magic, version, tensors, count = struct.unpack_from('<4sIQQ', data)
    at = 24
    for _ in range(count):
        _, at = _read_text(data, at)
        at = _skip_value(data, at + 4, struct.unpack_from('<I', data, at)[0])
    infos = at
    for _ in range(tensors):
        _, at = _read_text(data, at)
        at += 4 + 8 * struct.unpack_from('<I', data, at)[0] + 4 + 8
    added = b''.join(text(key) + struct.pack('<I', kind) + value
                     for key, (kind, value) in values.items())
    head = (struct.pack('<4sIQQ', magic, version, tensors, count + len(values)) + data[24:infos] +
            added + data[infos:at])
    with open(out, 'wb') as file:
        file.write(head + bytes(_aligned(len(head)) - len(head)) + data[_aligned(at):])
