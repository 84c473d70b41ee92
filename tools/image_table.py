#!/usr/bin/env python3
"""Writes tests/data/images: small JPEG and PNG files, and what Pillow reads from them, for torch_images_test.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install pillow==13.0.0
    /tmp/venv/bin/python tools/image_table.py tests/data/images

A file .rgb has the rows of an image, three bytes a pixel; .2.rgb and .4.rgb those of a JPEG that Pillow's draft mode decodes at that part of
its size.
"""
import math
import sys

from PIL import Image, ImageOps

out = sys.argv[1]
w, h = 21, 14
rgb = Image.new("RGB", (w, h))
for y in range(h):
    for x in range(w):
        rgb.putpixel((x, y), (255 * x // (w - 1), 255 * y // (h - 1), (x * y * 7) % 256))
smooth = rgb.copy()
for y in range(h):
    for x in range(w):
        r, g, b = smooth.getpixel((x, y))
        smooth.putpixel((x, y), (r, g, int(127 + 120 * math.sin(x / 4 + y / 3))))


def save(name, image, **how):
    path = f"{out}/{name}"
    image.save(path, **how)
    open(path + ".rgb", "wb").write(Image.open(path).convert("RGB").tobytes())
    for part in (2, 4) if name.endswith(".jpg") else ():
        small = Image.open(path)
        small.draft(None, (w // part, h // part))
        open(f"{path}.{part}.rgb", "wb").write(small.convert("RGB").tobytes())


save("colors.jpg", smooth, quality=90)
save("progressive.jpg", smooth, quality=90, progressive=True, subsampling=0)
save("gray.jpg", smooth.convert("L"), quality=90)
save("inks.jpg", smooth.convert("CMYK"), quality=95)
save("colors.png", rgb)
save("palette.png", rgb.quantize(16))
save("gray.png", rgb.convert("L"))
rgba = rgb.copy()
rgba.putalpha(Image.new("L", (w, h), 77))
save("alpha.png", rgba)
save("gray_alpha.png", rgb.convert("LA"))
save("bits.png", rgb.convert("1"))
open(f"{out}/resized.rgb", "wb").write(rgb.resize((12, 8), Image.Resampling.BILINEAR).tobytes())
open(f"{out}/enlarged.rgb", "wb").write(rgb.resize((31, 20), Image.Resampling.BILINEAR).tobytes())
open(f"{out}/padded.rgb", "wb").write(ImageOps.expand(rgb, 4).tobytes())
