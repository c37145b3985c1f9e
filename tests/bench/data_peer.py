"""Speed of Pillow on the pictures and of libsndfile and soxr on the clips of data_bench, one thread, per second of
processor time; JSON lines.

    PYTHON data_peer.py [FOLDER]    PYTHON: one with these packages and numpy (scripts/setup --reference)
"""
import json
import math
import pathlib
import statistics
import sys
import time

try:
    import numpy as np
    import soundfile
    import soxr
    from PIL import Image
except ImportError:
    sys.exit(77)  # No peer here: scripts/setup --reference installs it.

MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
DEVIATION = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)


def decode(path):
    with Image.open(path) as image:
        return image.convert("RGB")


def smart_resize(height, width, low=3136, high=1003520, factor=28):
    h, w = round(height / factor) * factor, round(width / factor) * factor
    if h * w > high:
        beta = math.sqrt(height * width / high)
        h, w = math.floor(height / beta / factor) * factor, math.floor(width / beta / factor) * factor
    elif h * w < low:
        beta = math.sqrt(low / (height * width))
        h, w = math.ceil(height * beta / factor) * factor, math.ceil(width * beta / factor) * factor
    return max(h, factor), max(w, factor)


def patches(path, high):
    image = decode(path)
    height, width = smart_resize(image.height, image.width, high=high)
    pixels = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC), np.float32)
    pixels = ((pixels / 255 - MEAN) / DEVIATION).transpose(2, 0, 1)
    video = np.stack([pixels, pixels]).reshape(1, 2, 3, height // 28, 2, 14, width // 28, 2, 14)
    return np.ascontiguousarray(video.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)).reshape(-1, 1176)


def clip(path):
    """libsndfile and soxr, as here, by their Python packages."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = samples.mean(axis=1)
    return mono if rate == 16000 else soxr.resample(mono, rate, 16000)


def measure(name, files, work):
    seconds = []
    for turn in range(4):
        start = time.process_time()
        for path in files:
            work(path)
        if turn > 0:
            seconds.append(time.process_time() - start)
    rate = len(files) / statistics.median(seconds)
    print(json.dumps({"measure": name, "value": round(rate, 1), "unit": "files/s"}), flush=True)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data/real-mini")
    if not (folder / "images").is_dir():
        sys.exit(77)  # data_bench measured a data set of its own, which is gone.
    files = sorted((folder / "images").iterdir())
    measure("data.image_decode", files, decode)
    measure("data.image_to_patches", files, lambda path: patches(path, 1003520))
    measure("data.image_to_patches_25088_pixels", files, lambda path: patches(path, 25088))
    measure("data.audio_decode", sorted((folder / "audio").iterdir()), clip)
