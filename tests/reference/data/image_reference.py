"""Pictures as Pillow decodes and resizes them, Qwen2-VL's preparation in numpy, and the squares of CLIP and SigLIP."""
import io
import math

import numpy as np
from PIL import Image

MEAN = np.array([0.48145466, 0.4578275, 0.40821073])
DEVIATION = np.array([0.26862954, 0.26130258, 0.27577711])


def to_rgb(image):
    """RGB array [height, width, 3]; transparency onto white by paste with a mask."""
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.split()[3])
        return np.asarray(white)
    if image.mode.startswith("I"):  # Pillow saturates 16-bit grey at 255; the high byte is meant.
        grey = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
        return np.repeat(grey[..., None], 3, 2)
    return np.asarray(image.convert("RGB"))


def decode(data):
    return to_rgb(Image.open(io.BytesIO(data)))


def resize(rgb, width, height):
    return np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.BICUBIC))


def square(rgb, side, mode, weights):
    """As SigLIP's image processor (stretch) or CLIP's (crop: of the shorter side's size, then the middle of it)."""
    image, shorter = Image.fromarray(rgb), min(rgb.shape[:2])
    of_mode = {"stretch": (side, side), "crop": tuple(int(side * length / shorter) for length in image.size)}
    width, height = of_mode[mode]
    resized = image.resize((width, height), Image.Resampling[weights.upper()])
    left, top = (width - side) // 2, (height - side) // 2
    return np.asarray(resized.crop((left, top, left + side, top + side)))


def smart_resize(height, width, factor=28, min_pixels=3136, max_pixels=1003520):
    """(height, width), or None where the aspect is refused."""
    if max(height, width) / min(height, width) > 200:
        return None
    h, w = round(height / factor) * factor, round(width / factor) * factor
    if h * w > max_pixels:
        beta = math.sqrt(height * width / max_pixels)
        h, w = math.floor(height / beta / factor) * factor, math.floor(width / beta / factor) * factor
    elif h * w < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        h, w = math.ceil(height * beta / factor) * factor, math.ceil(width * beta / factor) * factor
    return max(h, factor), max(w, factor)


def patches(rgb, patch=14, merge=2, frames=2):
    """[grid_h * grid_w, 3 * frames * patch * patch] of float64 in Qwen2-VL's order."""
    pixels = (rgb / 255 - MEAN) / DEVIATION  # [h, w, c]
    video = np.repeat(pixels.transpose(2, 0, 1)[None], frames, 0)  # [t, c, h, w]
    gh, gw = rgb.shape[0] // patch, rgb.shape[1] // patch
    video = video.reshape(1, frames, 3, gh // merge, merge, patch, gw // merge, merge, patch)
    return video.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(gh * gw, -1)
