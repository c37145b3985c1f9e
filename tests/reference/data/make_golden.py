"""Makes tests/runtime/data/golden: small media files and what the references (Pillow >= 13, numpy) make of them.

Setup and run:
    /usr/bin/python3 -m venv VENV && VENV/bin/pip install numpy 'pillow>=13' soundfile soxr scipy
    VENV/bin/python tests/reference/data/make_golden.py [--real ../shared/data/real-mini]

Arrays are raw little-endian float32 or uint8; cases.json says shapes. With --real, digests of every
picture and features of every third clip of that data set go to real-mini.json (the media stay outside).
"""
import argparse
import ctypes
import io
import json
import pathlib
import struct
import zlib

import numpy as np
import soundfile
import soxr
from PIL import Image

import image_reference as images
import whisper_reference as whisper

GOLDEN = pathlib.Path(__file__).parents[2] / "runtime/data/golden"
cases = {"decode": [], "resize": [], "squares": [], "smart_resize": [], "patches": [], "audio": []}


def save(name, array, dtype):
    (GOLDEN / name).write_bytes(np.ascontiguousarray(array, dtype).tobytes())


def picture(width, height, seed):
    """Smooth colour ramps with some noise and a sharp edge."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    ramp = np.stack([255 * x / width, 255 * y / height, 255 - 255 * (x + y) / (width + height)], 2)
    ramp[height // 3 : height // 2, width // 4 : width // 2] = (250, 20, 90)
    return np.clip(ramp + random.normal(0, 12, ramp.shape), 0, 255).astype(np.uint8)


# Pictures ------------------------------------------------------------------------------------------


def jpeg(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def png(image, **options):
    out = io.BytesIO()
    image.save(out, "PNG", **options)
    return out.getvalue()


def ycck_jpeg(cmyk):
    """turbojpeg writes CMYK pixels as YCCK, which Pillow cannot."""
    tj = ctypes.CDLL("libturbojpeg.so.0")
    tj.tjInitCompress.restype = ctypes.c_void_p
    height, width, _ = cmyk.shape
    out, size = ctypes.c_void_p(), ctypes.c_ulong()
    pixels = np.ascontiguousarray(cmyk)
    failed = tj.tjCompress2(ctypes.c_void_p(tj.tjInitCompress()), pixels.ctypes.data_as(ctypes.c_void_p), width, 0,
                            height, 11, ctypes.byref(out), ctypes.byref(size), 0, 90, 0)  # TJPF_CMYK, 4:4:4
    assert failed == 0
    return ctypes.string_at(out.value, size.value)


def raw_png(width, height, depth, colour, rows, chunks=(), interlaced=False):
    """A PNG of any kind from unfiltered rows; rows is a list of bytes (all passes, one after another)."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    data = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows), 9)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(k, b) for k, b in chunks)
            + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def adam7_rows(rgb):
    height, width, _ = rgb.shape
    for x0, y0, dx, dy in [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]:
        if x0 < width:
            for y in range(y0, height, dy):
                yield rgb[y, x0::dx].tobytes()


def picture_files():
    rgb = picture(45, 37, 1)
    alpha = np.clip(np.mgrid[0:37, 0:45][1] * 7, 0, 255).astype(np.uint8)
    grey = Image.fromarray(rgb).convert("L")
    cmyk = np.asarray(Image.fromarray(picture(24, 18, 2)).convert("CMYK"))
    wide = picture(9, 7, 3).astype(">u2") * 257 + np.arange(7 * 9 * 3).reshape(7, 9, 3).astype(">u2")
    wide = wide.astype(">u2")
    yield "rgb.jpg", jpeg(Image.fromarray(rgb), quality=90)
    yield "rgb444.jpg", jpeg(Image.fromarray(rgb), quality=95, subsampling=0)
    yield "progressive.jpg", jpeg(Image.fromarray(rgb), quality=80, progressive=True)
    yield "grey.jpg", jpeg(grey, quality=85)
    yield "cmyk.jpg", jpeg(Image.fromarray(cmyk, mode="CMYK"), quality=90)
    yield "ycck.jpg", ycck_jpeg(cmyk)
    yield "rgb.png", png(Image.fromarray(rgb))
    yield "rgba.png", png(Image.fromarray(np.dstack([rgb, alpha])))
    yield "grey_alpha.png", png(Image.merge("LA", [grey, Image.fromarray(alpha)]))
    yield "palette.png", png(Image.fromarray(rgb).quantize(20))
    yield "palette_alpha.png", png(Image.fromarray(rgb).quantize(20), transparency=bytes(range(0, 240, 12)))
    yield "bits1.png", png(grey.convert("1"))
    yield "grey4.png", raw_png(6, 2, 4, 0, [bytes([0x01, 0x7F, 0xE3]), bytes([0x92, 0x48, 0xB5])])
    yield "grey16.png", raw_png(9, 7, 16, 0, [row[:, 0].tobytes() for row in wide])
    yield "rgb16.png", raw_png(9, 7, 16, 2, [row.tobytes() for row in wide])
    yield "rgba16.png", raw_png(9, 7, 16, 6, [np.dstack([row, row[..., :1]]).astype(">u2").tobytes() for row in wide[:, None]])
    key = struct.pack(">HHH", *[int(v) for v in rgb[0, 0]])
    yield "colour_key.png", raw_png(45, 37, 8, 2, [row.tobytes() for row in rgb], [(b"tRNS", key)])
    yield "gamma.png", raw_png(9, 7, 8, 2, [row.tobytes() for row in picture(9, 7, 4)], [(b"gAMA", struct.pack(">I", 100000))])
    yield "interlaced.png", raw_png(45, 37, 8, 2, adam7_rows(rgb), interlaced=True)


def make_squares(source):
    """Shrunk, enlarged, and of the shorter side; the upright picture goes down first where it is stretched to 24 pixels."""
    pixels = source.tobytes()
    for width, height in (41, 29), (29, 41):
        rgb = np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
        for mode, weights, sides in ("stretch", "bicubic", (24, 29)), ("crop", "bicubic", (24, 29, 36)), ("crop", "bilinear", (24, 36)):
            for side in sides:
                name = f"square_{width}x{height}_{mode}_{weights}_{side}.rgb"
                save(name, images.square(rgb, side, mode, weights), np.uint8)
                cases["squares"].append({"file": name, "from": [width, height], "mode": mode, "filter": weights, "side": side})


def make_images():
    for name, data in picture_files():
        rgb = images.decode(data)
        (GOLDEN / name).write_bytes(data)
        save(name + ".rgb", rgb, np.uint8)
        cases["decode"].append({"file": name, "width": rgb.shape[1], "height": rgb.shape[0]})

    source = picture(41, 29, 5)
    save("resize.rgb", source, np.uint8)
    for width, height in [(56, 28), (28, 28), (41, 56), (28, 29), (7, 3), (1, 1), (100, 2), (13, 80), (40, 26), (39, 25), (60, 20)]:
        name = f"resize_{width}x{height}.rgb"
        save(name, images.resize(source, width, height), np.uint8)
        cases["resize"].append({"file": name, "width": width, "height": height, "from": [41, 29]})

    make_squares(source)

    random = np.random.default_rng(6)
    sizes = [(350, 350), (14, 14), (42, 70), (1, 1), (1, 200), (1, 201), (201, 1), (3000, 4000), (28, 5600), (364, 378), (13, 2600)]
    sizes += [tuple(int(v) for v in 10 ** random.uniform(0.5, 3.8, 2)) for _ in range(60)]
    for height, width in sizes:
        for low, high in [(3136, 1003520), (3136, 25088), (784, 784), (200704, 12845056)]:
            cases["smart_resize"].append([height, width, low, high, images.smart_resize(height, width, 28, low, high)])

    small = picture(12, 8, 7)
    save("patches_small.rgb", small, np.uint8)
    save("patches_small.f32", images.patches(small, 2, 2, 2), np.float32)
    cases["patches"] = {"width": 12, "height": 8, "patch": 2, "merge": 2, "frames": 2}

    # The whole way of a picture, thinned out: every 37th value.
    rgb = images.decode((GOLDEN / "rgb.jpg").read_bytes())
    height, width = images.smart_resize(*rgb.shape[:2], max_pixels=6272)
    rows = images.patches(images.resize(rgb, width, height))
    save("prepared.f32", rows.ravel()[::37], np.float32)
    cases["prepared"] = {"file": "rgb.jpg", "max_pixels": 6272, "grid": [height // 14, width // 14], "step": 37}


# Audio ---------------------------------------------------------------------------------------------


def signal(seconds, rate, seed):
    """A chirp, a pure tone, silence and a little noise: wide range within one clip."""
    random = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    wave = 0.5 * np.sin(2 * np.pi * (200 * t + 2000 * t**2)) + 0.2 * np.sin(2 * np.pi * 440 * t)
    wave[len(wave) // 2 : 3 * len(wave) // 4] *= 1e-4
    return wave + random.normal(0, 1e-4, len(wave))


def mono16(path):
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = samples.mean(axis=1)
    return soxr.resample(mono, rate, 16000) if rate != 16000 else mono


def make_audio():
    stereo = np.stack([signal(0.1, 44100, 12), signal(0.1, 44100, 13)[::-1]], 1)
    files = [("mono16k.wav", signal(0.25, 16000, 10), 16000, "PCM_16", 80), ("mono8k.wav", signal(0.3, 8000, 11), 8000, "PCM_16", 80),
             ("stereo44k.wav", stereo, 44100, "PCM_16", 80), ("float16k.wav", signal(0.1, 16000, 14), 16000, "FLOAT", 128),
             ("deep24.wav", signal(0.1, 22050, 15), 22050, "PCM_24", 80), ("mulaw.wav", signal(0.2, 8000, 16), 8000, "ULAW", 80),
             ("mono.flac", signal(0.1, 16000, 17), 16000, "PCM_16", 80),
             ("tone.wav", 0.9 * np.sin(2 * np.pi * 1000 * np.arange(1600) / 16000), 16000, "FLOAT", 80),
             ("silence.wav", np.zeros(800), 16000, "PCM_16", 80), ("shortest.wav", signal(0.01, 16000, 18), 16000, "PCM_16", 80)]
    for name, samples, rate, kind, bins in files:
        soundfile.write(GOLDEN / name, samples, rate, subtype=kind)
        mono = mono16(GOLDEN / name)
        features = whisper.log_mel(mono, bins)
        save(name + ".f32", features, np.float32)
        cases["audio"].append({"file": name, "samples": len(mono), "frames": len(features), "bins": bins})
    padded = np.zeros(480000)
    mono = mono16(GOLDEN / "mono8k.wav")
    padded[: len(mono)] = mono
    save("padded.f32", whisper.log_mel(padded).ravel()[::97], np.float32)
    cases["padded"] = {"file": "mono8k.wav", "step": 97}


def make_real(folder):
    real = {"images": [], "audio": []}
    for path in sorted((folder / "images").iterdir()):
        rgb = images.decode(path.read_bytes())
        entry = {"file": path.name, "size": [rgb.shape[1], rgb.shape[0]], "decoded": zlib.crc32(rgb.tobytes()), "resized": []}
        for high in (1003520, 25088):
            height, width = images.smart_resize(*rgb.shape[:2], max_pixels=high)
            entry["resized"].append([width, height, zlib.crc32(images.resize(rgb, width, height).tobytes())])
        real["images"].append(entry)
    for path in sorted((folder / "audio").iterdir())[::3]:
        features = whisper.log_mel(mono16(path))
        flat = features.ravel()
        picked = [round(float(flat[i * (len(flat) - 1) // 6]), 6) for i in range(7)]
        real["audio"].append([path.name, len(features), round(float(flat.mean()), 6), picked])
    lines = [f' "{key}": [\n  ' + ",\n  ".join(json.dumps(e, separators=(",", ":")) for e in real[key]) + "\n ]" for key in real]
    (GOLDEN / "real-mini.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--real", type=pathlib.Path)
    arguments = parser.parse_args()
    GOLDEN.mkdir(exist_ok=True)
    make_images()
    make_audio()
    (GOLDEN / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
    if arguments.real:
        make_real(arguments.real)
