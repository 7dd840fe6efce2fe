"""Reads and writes GGUF v3 files, as far as the demo model needs: F32, F16 and Q8_0 tensors, numpy alone."""
import struct

import numpy as np

F32, F16, Q8_0 = 0, 1, 8
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
ALIGN = 32


def quantize(x):
    """Q8_0: blocks of 32 as one F16 scale d and 32 int8 codes, x ~ d * code. Returns bytes in ggml's layout."""
    x = np.ascontiguousarray(x, np.float32).reshape(-1, 32)
    d = (np.abs(x).max(1) / 127).astype(np.float16)
    scale = d.astype(np.float32)[:, None]
    codes = np.clip(np.rint(np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)), -127, 127).astype(np.int8)
    return np.concatenate([d.view(np.uint8).reshape(-1, 2), codes.view(np.uint8)], 1).tobytes()


def dequantize(raw, shape):
    b = np.frombuffer(raw, np.uint8).reshape(-1, 34)
    d = b[:, :2].copy().view(np.float16).astype(np.float32)
    return (d * b[:, 2:].view(np.int8).astype(np.float32)).reshape(shape)


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def pair(key, value):
    """One key with its value; the type follows from Python's: bool, int (u32), float (f32), str, lists of str or int."""
    if isinstance(value, bool):
        body = struct.pack("<I?", 7, value)
    elif isinstance(value, int):
        body = struct.pack("<II", 4, value)
    elif isinstance(value, float):
        body = struct.pack("<If", 6, value)
    elif isinstance(value, str):
        body = struct.pack("<I", 8) + string(value)
    elif isinstance(value[0], str):
        body = struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(string, value))
    else:
        body = struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    return string(key) + body


def write(path, metadata, tensors, matrices=Q8_0):
    """tensors: name -> float32 array; matrices become Q8_0, where their rows are whole blocks, or F16; the rest stays F32."""
    infos, blobs, offset = [], [], 0
    for name, x in tensors.items():
        kind = F32 if x.ndim != 2 or matrices == Q8_0 and x.shape[1] % 32 else matrices
        raw = quantize(x) if kind == Q8_0 else np.ascontiguousarray(x, np.float16 if kind == F16 else np.float32).tobytes()
        dims = x.shape[::-1]  # the contiguous one first
        infos.append(string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset))
        raw += b"\0" * (-len(raw) % ALIGN)
        blobs.append(raw)
        offset += len(raw)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(pair(k, v) for k, v in metadata.items()) + b"".join(infos)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGN))
        f.writelines(blobs)


def read(path):
    """Returns (metadata, tensors as float32 arrays)."""
    data = open(path, "rb").read()
    pos = 0

    def take(fmt):
        nonlocal pos
        v = struct.unpack_from(fmt, data, pos)
        pos += struct.calcsize(fmt)
        return v if len(v) > 1 else v[0]

    def text():
        nonlocal pos
        n = take("<Q")
        pos += n
        return data[pos - n:pos].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            of, n = take("<IQ")
            return [value(of) for _ in range(n)]
        return take(SCALARS[kind])

    magic, version, n_tensors, n_pairs = take("<4sIQQ")
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError(f"{path}: not a GGUF file")
    metadata = {}
    for _ in range(n_pairs):
        key = text()
        metadata[key] = value(take("<I"))
    infos = []
    for _ in range(n_tensors):
        name, nd = text(), take("<I")
        dims = [take("<Q") for _ in range(nd)]
        infos.append((name, dims[::-1], *take("<IQ")))
    align = metadata.get("general.alignment", ALIGN)
    start = (pos + align - 1) // align * align
    tensors = {}
    for name, shape, kind, offset in infos:
        n = int(np.prod(shape))
        at = start + offset
        if kind == F32:
            tensors[name] = np.frombuffer(data, np.float32, n, at).reshape(shape)
        elif kind == F16:
            tensors[name] = np.frombuffer(data, np.float16, n, at).astype(np.float32).reshape(shape)
        elif kind == Q8_0:
            tensors[name] = dequantize(data[at:at + n // 32 * 34], shape)
        else:
            raise ValueError(f"{path}: {name} has type {kind}")
    return metadata, tensors
