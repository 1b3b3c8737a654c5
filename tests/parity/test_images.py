# SPDX-License-Identifier: Apache-2.0
"""Image preprocessing equals that of Pillow (12: Pillow 13 resamples rows first where that is cheaper) and
transformers: every mode of PNG, JPEG and WebP, every filter, all image processors, patches among them.
"""

import io
import json
import pathlib
import struct
import subprocess
import zlib

import numpy
import pytest
from PIL import Image, ImageOps

import worker

TOOLS = worker.TOOLS
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
SEED = 20


class Dump:
    """The long-lived image_dump."""

    def __init__(self, folder):
        self.folder = folder
        self.process = subprocess.Popen(
            [TOOLS / "image_dump"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, data, dtype=numpy.uint8, **job):
        file, out = self.folder / "in", self.folder / "out"
        file.write_bytes(data)
        self.process.stdin.write(
            json.dumps(
                {
                    "file": str(file),
                    "out": str(out),
                    **{k: str(v) if isinstance(v, pathlib.Path) else v for k, v in job.items()},
                }
            )
            + "\n"
        )
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer
        self.grid = answer.get("grid")
        return numpy.fromfile(out, dtype).reshape(answer["shape"])

    def grids(self, folder, sizes):
        self.process.stdin.write(json.dumps({"folder": str(folder), "sizes": sizes}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["grids"]


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    dump = Dump(tmp_path_factory.mktemp("images"))
    yield dump
    dump.process.stdin.close()
    dump.process.wait(30)


def picture(width, height, channels=3, smooth=False):
    """Noise, or waves of all colours with a little noise as photographs have them."""
    random = numpy.random.default_rng(SEED + width * 1000 + height)
    noise = random.integers(0, 256, (height, width, channels))
    if smooth:
        y, x = numpy.mgrid[:height, :width]
        waves = numpy.stack([127 + 100 * numpy.sin((x * (c + 1) + y * (3 - c)) / 17) for c in range(channels)], -1)
        noise = numpy.clip(waves + (noise - 128) / 16, 0, 255)
    return noise.astype(numpy.uint8)


def encoded(image, form="PNG", **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def loaded(data):
    """As transformers.image_utils.load_image."""
    return numpy.array(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


def raw_png(width, height, depth, colour, rows, *chunks):
    """A PNG of a kind that Pillow does not write."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    lines = b"".join(b"\0" + row for row in rows)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
        + b"".join(chunk(*c) for c in chunks)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


def pngs():
    rgb, rgba = picture(33, 21), picture(33, 21, 4)
    random = numpy.random.default_rng(SEED)
    yield "rgb", encoded(Image.fromarray(rgb))
    yield "rgba", encoded(Image.fromarray(rgba))
    yield "gray", encoded(Image.fromarray(rgb[..., 0]))
    yield "gray and alpha", encoded(Image.fromarray(rgba).convert("LA"))
    yield "bits", encoded(Image.fromarray(rgb).convert("1"))
    yield "palette", encoded(Image.fromarray(rgb).convert("P"))
    yield "palette of 5 colours", encoded(Image.fromarray(rgb).quantize(5))
    yield "palette with a transparent colour", encoded(Image.fromarray(rgb).convert("P"), transparency=3)
    yield "palette with alphas", encoded(Image.fromarray(rgb).quantize(4), transparency=bytes([0, 99, 255, 3]))
    yield "gray with a transparent value", encoded(Image.fromarray(rgb[..., 0]), transparency=7)
    yield "rgb with a transparent colour", encoded(Image.fromarray(rgb), transparency=tuple(int(v) for v in rgb[0, 0]))
    yield "gray of 16 bits", encoded(Image.fromarray(rgb[..., 0].astype(numpy.uint16) * 3))
    for depth in (2, 4):
        yield f"gray of {depth} bits", raw_png(16, 5, depth, 0, [random.bytes(16 * depth // 8) for _ in range(5)])
    for name, colour, channels in (("rgb", 2, 3), ("gray and alpha", 4, 2), ("rgba", 6, 4)):
        yield f"{name} of 16 bits", raw_png(9, 5, 16, colour, [random.bytes(9 * 2 * channels) for _ in range(5)])
    yield (
        "gamma is not applied",
        raw_png(9, 5, 8, 2, [random.bytes(27) for _ in range(5)], (b"gAMA", struct.pack(">I", 100000))),
    )
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "turned", encoded(Image.fromarray(rgb), exif=exif)


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in pngs()])
def test_png_is_what_pillow_reads(dump, data):
    numpy.testing.assert_array_equal(dump.ask(data), loaded(data))


def jpegs():
    smooth = Image.fromarray(picture(97, 61, smooth=True))
    for subsampling in (0, 1, 2):
        for progressive in (False, True):
            yield (
                f"4:{['4:4', '2:2', '2:0'][subsampling]} {'progressive' if progressive else 'baseline'}",
                encoded(smooth, "JPEG", quality=85, subsampling=subsampling, progressive=progressive),
            )
    yield "gray", encoded(smooth.convert("L"), "JPEG")
    yield "cmyk", encoded(smooth.convert("CMYK"), "JPEG", quality=95)
    yield "noise", encoded(Image.fromarray(picture(50, 40)), "JPEG")
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield f"orientation {orientation}", encoded(smooth, "JPEG", exif=exif, quality=90)


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in jpegs()])
def test_jpeg_is_what_pillow_reads_within_two_levels(dump, data):
    ours, theirs = dump.ask(data).astype(int), loaded(data).astype(int)
    assert ours.shape == theirs.shape
    off = abs(ours - theirs)
    print(f"{(off > 0).sum()} of {off.size} values differ, at most by {off.max()}")
    assert off.max() <= 2 and (off > 0).mean() < 0.02


def webps():
    smooth, noise = Image.fromarray(picture(97, 61, smooth=True)), Image.fromarray(picture(33, 21, 4))
    for quality in (20, 80, 100):
        yield f"lossy {quality}", encoded(smooth, "WEBP", quality=quality)
    yield "lossless", encoded(smooth, "WEBP", lossless=True)
    yield "lossy with alpha", encoded(noise, "WEBP", quality=70)
    yield "lossless with alpha", encoded(noise, "WEBP", lossless=True, exact=True)
    for orientation in (3, 6, 8):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield f"orientation {orientation}", encoded(smooth, "WEBP", exif=exif, lossless=True)


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in webps()])
def test_webp_is_what_pillow_reads(dump, data):
    numpy.testing.assert_array_equal(dump.ask(data), loaded(data))


def test_webps_that_are_broken_or_move_are_refused(tmp_path):
    still = encoded(Image.fromarray(picture(40, 30)), "WEBP")
    moving = io.BytesIO()
    frames = [Image.fromarray(picture(9, 9 + i)).resize((9, 9)) for i in range(2)]
    frames[0].save(moving, "WEBP", save_all=True, append_images=frames[1:])
    for data, words in (
        (still[:-200], "its data are broken"),
        (still[:16], "its header is broken"),
        (moving.getvalue(), "an animation"),
        (b"RIFF", "neither PNG nor JPEG nor WebP"),
    ):
        with pytest.raises(AssertionError, match=words):
            other = Dump(tmp_path)
            try:
                other.ask(data)
            finally:
                other.process.stdin.close()
                other.process.wait(30)


SIZES = [(224, 224), (64, 48), (17, 200), (1, 1), (300, 5), (50, 97)]


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("source", [(97, 61), (640, 427), (31, 500), (3, 2), (1, 40)])
def test_resized_is_what_pillow_resizes(dump, name, source):
    image = Image.fromarray(picture(*source, smooth=source[0] > 500))
    data, off, total = encoded(image), 0, 0
    for width, height in SIZES:
        ours = dump.ask(data, width=width, height=height, resample=FILTERS[name]).astype(int)
        theirs = numpy.array(image.resize((width, height), FILTERS[name])).astype(int)
        assert ours.shape == theirs.shape and abs(ours - theirs).max() <= 1
        off, total = off + (ours != theirs).sum(), total + ours.size
    print(f"{name} from {source}: {off} of {total} values differ by 1")
    assert off == 0


def processors():
    yield "clip", "CLIPImageProcessor", {}
    yield "clip to 30", "CLIPImageProcessor", dict(size={"shortest_edge": 30}, crop_size={"height": 30, "width": 30})
    yield (
        "clip with a crop larger than the image",
        "CLIPImageProcessor",
        dict(size={"shortest_edge": 21}, crop_size={"height": 30, "width": 35}),
    )
    yield (
        "clip with a smaller crop",
        "CLIPImageProcessor",
        dict(size={"shortest_edge": 41}, crop_size={"height": 30, "width": 26}, resample=1),
    )
    yield (
        "clip without normalisation",
        "CLIPImageProcessor",
        dict(do_normalize=False, size={"shortest_edge": 30}, crop_size={"height": 30, "width": 30}),
    )
    yield (
        "clip without rescale",
        "CLIPImageProcessor",
        dict(do_rescale=False, size={"shortest_edge": 30}, crop_size={"height": 30, "width": 30}),
    )
    yield "vit", "ViTImageProcessor", {}
    yield "vit to 30 x 20", "ViTImageProcessor", dict(size={"height": 30, "width": 20}, resample=3)
    yield (
        "vit with own means",
        "ViTImageProcessor",
        dict(
            size={"height": 18, "width": 18},
            image_mean=[0.1, 0.2, 0.3],
            image_std=[0.3, 0.2, 0.25],
            rescale_factor=1 / 127.5,
        ),
    )
    yield "vit without resize", "ViTImageProcessor", dict(do_resize=False)
    yield "deit", "DeiTImageProcessor", {}
    yield "siglip", "SiglipImageProcessor", {}
    yield "siglip to 30 x 20", "SiglipImageProcessor", dict(size={"height": 30, "width": 20})
    yield "gemma3", "Gemma3ImageProcessor", {}
    yield "gemma3 to 32 x 32", "Gemma3ImageProcessor", dict(size={"height": 32, "width": 32}, do_pan_and_scan=None)
    yield "detr", "DetrImageProcessor", {}
    # the shorter side is less where the longer one would be too long, with both roundings
    yield "detr bounded", "DetrImageProcessor", dict(size={"shortest_edge": 50, "longest_edge": 77}, do_pad=False)
    yield "detr of one size", "DetrImageProcessor", dict(size={"shortest_edge": 40, "longest_edge": 60})
    yield "detr to 30 x 20", "DetrImageProcessor", dict(size={"height": 30, "width": 20})
    yield "perceiver", "PerceiverImageProcessor", {}
    yield (
        "perceiver to 30 x 20",
        "PerceiverImageProcessor",
        dict(size={"height": 30, "width": 20}, crop_size={"height": 41, "width": 23}),
    )
    yield (  # black stands around an image that is smaller than the crop
        "perceiver beyond the image",
        "PerceiverImageProcessor",
        dict(size={"height": 30, "width": 20}, crop_size={"height": 20, "width": 18}, do_normalize=False),
    )
    yield "perceiver without resize", "PerceiverImageProcessor", dict(do_resize=False)
    yield "detr in the older spelling", "DetrImageProcessor", dict(size=33, max_size=40)


@pytest.mark.parametrize("class_name,options", [pytest.param(c, o, id=name) for name, c, o in processors()])
def test_pixel_values_are_those_of_transformers(dump, tmp_path, class_name, options):
    from transformers import AutoImageProcessor

    config = {"image_processor_type": class_name, **options}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    oracle = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    for source in ((97, 61), (40, 90), (19, 19)):
        image = Image.fromarray(picture(*source, smooth=True))
        theirs = oracle(images=image, return_tensors="np")["pixel_values"]
        numpy.testing.assert_array_equal(dump.ask(encoded(image), numpy.float32, folder=tmp_path), theirs)


@pytest.mark.parametrize("class_name", ["CLIPImageProcessor", "ViTImageProcessor"])
def test_what_save_pretrained_writes_is_read(dump, tmp_path, class_name):
    import transformers

    getattr(transformers, class_name + "Pil")(
        size={"height": 12, "width": 14}, crop_size={"height": 10, "width": 10}
    ).save_pretrained(tmp_path)
    oracle = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    image = Image.fromarray(picture(33, 44))
    numpy.testing.assert_array_equal(
        dump.ask(encoded(image), numpy.float32, folder=tmp_path),
        oracle(images=image, return_tensors="np")["pixel_values"],
    )


def patch_processors():
    yield "qwen2-vl", {}
    yield "as published for qwen2-vl", dict(min_pixels=3136, max_pixels=12845056, patch_size=14, merge_size=2)
    yield (
        "as published for qwen3-vl",
        dict(
            size={"shortest_edge": 65536, "longest_edge": 16777216},
            patch_size=16,
            temporal_patch_size=2,
            merge_size=2,
            image_mean=[0.5, 0.5, 0.5],
            image_std=[0.5, 0.5, 0.5],
        ),
    )
    yield "min_pixels before size", dict(size={"shortest_edge": 9, "longest_edge": 90000}, min_pixels=30000)
    yield (
        "both before the older size",
        dict(size={"min_pixels": 9, "max_pixels": 90}, min_pixels=30000, max_pixels=50000),
    )
    yield "max_pixels beside half a size", dict(size={"shortest_edge": 30000}, max_pixels=50000)
    yield "the least above the most", dict(min_pixels=50000, max_pixels=20000)
    yield "other sides", dict(patch_size=6, merge_size=3, temporal_patch_size=1, max_pixels=9000, resample=1)
    yield "three frames, no squares", dict(patch_size=5, merge_size=1, temporal_patch_size=3, min_pixels=1)
    yield "without normalisation", dict(do_normalize=False, rescale_factor=1 / 127.5)
    yield "without rescale", dict(do_rescale=False)
    yield "bytes", dict(do_rescale=False, do_normalize=False, do_convert_rgb=None)
    yield (
        "a crop and padding, which are ignored",
        dict(do_center_crop=True, crop_size={"height": 9, "width": 9}, do_pad=True),
    )


PATCHED = [pytest.param(options, id=name) for name, options in patch_processors()]


def patch_oracle(folder, **options):
    from transformers import AutoImageProcessor

    config = {"image_processor_type": "Qwen2VLImageProcessorFast", **options}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    return AutoImageProcessor.from_pretrained(folder, backend="pil")


def compare_patches(dump, folder, oracle, source):
    image = Image.fromarray(picture(*source, smooth=True))
    theirs = oracle(images=image, return_tensors="np")
    ours = dump.ask(encoded(image), numpy.float32, folder=folder)
    assert theirs["image_grid_thw"].tolist() == [[1, *dump.grid]], source
    numpy.testing.assert_array_equal(ours, theirs["pixel_values"])


@pytest.mark.parametrize("options", PATCHED)
def test_patches_are_those_of_transformers(dump, tmp_path, options):
    oracle = patch_oracle(tmp_path, **options)
    for source in ((1, 1), (5, 3), (97, 61), (40, 90), (300, 2), (3, 500), (84, 56), (640, 427)):
        compare_patches(dump, tmp_path, oracle, source)


@pytest.mark.parametrize("source", [(2500, 1801), (5000, 40), (31, 4000)])
def test_patches_of_large_images_are_those_of_transformers(dump, tmp_path, source):
    compare_patches(dump, tmp_path, patch_oracle(tmp_path), source)


def test_patches_without_resize_are_those_of_transformers(dump, tmp_path):
    compare_patches(dump, tmp_path, patch_oracle(tmp_path, do_resize=False), (84, 56))


def test_a_patch_processor_that_save_pretrained_writes_is_read(dump, tmp_path):
    import transformers

    oracle = transformers.Qwen2VLImageProcessorPil(min_pixels=20000, max_pixels=30000, patch_size=8)
    oracle.save_pretrained(tmp_path)
    for source in ((97, 61), (400, 300)):
        compare_patches(dump, tmp_path, oracle, source)


WHOLE = [
    pytest.param(options, id=name)
    for name, options in (
        ("pixtral", {}),
        ("as published for mistral small", dict(size={"longest_edge": 1540}, patch_size=14, do_pad=True)),
        ("no square", dict(size={"height": 100, "width": 300}, patch_size={"height": 14, "width": 14})),
        ("without resize", dict(do_resize=False)),
        ("other numbers", dict(resample=2, rescale_factor=1 / 127.5, image_mean=[0.5, 0.4, 0.3])),
    )
]


@pytest.mark.parametrize("options", WHOLE)
def test_whole_images_of_any_size_are_those_of_transformers(dump, tmp_path, options):
    from transformers import PixtralImageProcessorPil

    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "PixtralImageProcessor", **options})
    )
    oracle = PixtralImageProcessorPil(**options)
    for patch, merge in ((14, 2), (16, 1), (4, 3)):
        for source in ((5, 3), (97, 61), (40, 90), (300, 28), (84, 56), (640, 427), (1700, 900), (900, 2100)):
            if not options.get("do_resize", True) and (source[0] % (patch * merge) or source[1] % (patch * merge)):
                continue
            image = Image.fromarray(picture(*source, smooth=True))
            # transformers' processor of texts and images gives the model's numbers, whatever the file has
            theirs = oracle(images=image, patch_size=patch * merge, return_tensors="np")
            ours = dump.ask(encoded(image), numpy.float32, folder=tmp_path, patch=patch, merge=merge)
            assert list(theirs["image_sizes"][0]) == list(ours.shape[2:])
            numpy.testing.assert_array_equal(ours, theirs["pixel_values"])


@pytest.mark.parametrize("options", PATCHED)
def test_grids_of_patches_are_those_of_transformers(dump, tmp_path, options):
    """Whatever the size: small ones, where halves are rounded, photographs, and strips up to those that are refused."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    oracle = patch_oracle(tmp_path, **options)
    side = oracle.patch_size

    def grid(width, height):
        try:
            size = smart_resize(
                height, width, side * oracle.merge_size, oracle.size["shortest_edge"], oracle.size["longest_edge"]
            )
        except ValueError:
            return None
        return [n // side for n in size]

    random = numpy.random.default_rng(SEED)
    sizes = [[int(w), int(h)] for w in range(1, 90) for h in range(1, 90)]
    sizes += random.integers(1, 8000, (4000, 2)).tolist()
    sizes += [s for n in range(1, 40) for w in range(199 * n, 202 * n) for s in ([w, n], [n, w])]
    theirs = [grid(*size) for size in sizes]
    assert None in theirs
    assert dump.grids(tmp_path, sizes) == theirs


@pytest.mark.parametrize(
    "options",
    [
        dict(size={"min_pixels": 9, "max_pixels": 90000}),
        dict(size={"min_pixels": 9, "max_pixels": 90000}, min_pixels=9),
        dict(size={"shortest_edge": 90000}),
        dict(size={"height": 30, "width": 20}),
        dict(size={"height": 30, "width": 20}, min_pixels=9, max_pixels=90000),
        dict(size=90000),
        dict(size=90000, min_pixels=9, max_pixels=90000),
        dict(min_pixels=0),
    ],
    ids=str,
)
def test_sizes_that_transformers_refuses_are_refused(tmp_path, options):
    image = Image.fromarray(picture(9, 9))
    with pytest.raises((TypeError, ValueError)):
        patch_oracle(tmp_path, **options)(images=image)
    other = Dump(tmp_path)
    try:
        with pytest.raises(AssertionError, match="size is|min_pixels is"):
            other.ask(encoded(image), folder=tmp_path)
    finally:
        other.process.stdin.close()
        other.process.wait(30)
