"""Every image encoding shows the same known picture; everything else is refused by name."""

import itertools
import struct
import sys
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.sensors.decode import RAW_ENCODINGS, decode, frame_size

HEIGHT, WIDTH = 48, 64


def picture() -> np.ndarray:
    """Smooth and colourful, and different in every corner: red left to right, green downwards, blue one blob."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float64)
    red = 40 + 160 * x / WIDTH
    green = 40 + 160 * y / HEIGHT
    blue = 60 + 150 * np.exp(-((x - 15) ** 2 + (y - 12) ** 2) / 200)
    return np.stack([red, green, blue], axis=-1).round().astype(np.uint8)


def gray(rgb: np.ndarray) -> np.ndarray:
    return (rgb @ [0.299, 0.587, 0.114]).round().astype(np.uint8)


def yuv(rgb: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """BT.601, limited range."""
    r, g, b = np.moveaxis(rgb.astype(np.float64), -1, 0)
    luma = 16 + (65.481 * r + 128.553 * g + 24.966 * b) / 255
    u = 128 + (-37.797 * r - 74.203 * g + 112.0 * b) / 255
    v = 128 + (112.0 * r - 93.786 * g - 18.214 * b) / 255
    return luma, u, v


def mosaic(rgb: np.ndarray, pattern: str) -> np.ndarray:
    rows = np.empty(rgb.shape[:2], np.uint8)
    for place, color in zip(itertools.product((0, 1), (0, 1)), pattern, strict=True):
        rows[place[0] :: 2, place[1] :: 2] = rgb[place[0] :: 2, place[1] :: 2, "rgb".index(color)]
    return rows


def encode_raw(rgb: np.ndarray, encoding: str) -> np.ndarray:
    """[rows, bytes per row] of the picture, written from the definition of the encoding."""
    if encoding.endswith("16"):
        return (encode_raw(rgb, encoding.replace("16", "8")).astype("<u2") * 257).view(np.uint8)
    alpha = np.full((*rgb.shape[:2], 1), 77, np.uint8)
    if encoding in ("rgb8", "bgr8", "rgba8", "bgra8"):
        color = rgb if encoding.startswith("rgb") else rgb[..., ::-1]
        pixels = np.concatenate([color, alpha], axis=-1) if "a" in encoding else color
        return pixels.reshape(len(rgb), -1)
    if encoding == "mono8":
        return gray(rgb)
    if encoding.startswith("bayer_"):
        return mosaic(rgb, encoding[len("bayer_") : -1])
    luma, u, v = yuv(rgb)
    if encoding in ("nv12", "nv21"):
        u, v = (plane.reshape(HEIGHT // 2, 2, WIDTH // 2, 2).mean(axis=(1, 3)) for plane in (u, v))
        color = np.stack([u, v] if encoding == "nv12" else [v, u], axis=-1).reshape(HEIGHT // 2, WIDTH)
        return np.concatenate([luma, color]).round().astype(np.uint8)
    u, v = (plane.reshape(HEIGHT, WIDTH // 2, 2).mean(axis=2) for plane in (u, v))
    even, odd = luma[:, ::2], luma[:, 1::2]
    order = [u, even, v, odd] if encoding in ("yuv422", "uyvy") else [even, u, odd, v]
    return np.stack(order, axis=-1).reshape(HEIGHT, -1).round().astype(np.uint8)


def raw_frame(rows: np.ndarray, encoding: str, **changes: object) -> Frame:
    fields = {"height": HEIGHT, "width": WIDTH, "step": rows.shape[1], "data": rows.tobytes(), **changes}
    return Frame(serial=1, camera=6, stamp_ns=1_500_000_000, encoding=encoding, **fields)


def file_frame(data: bytes, encoding: str = "jpeg") -> Frame:
    return Frame(serial=1, camera=6, stamp_ns=1_500_000_000, encoding=encoding, data=data)


def jpeg(rgb: np.ndarray, *, quality: int = 95, sampling: int = cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420) -> bytes:
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling]
    return cv2.imencode(".jpg", rgb[..., ::-1], options)[1].tobytes()


def png(pixels: np.ndarray) -> bytes:
    return cv2.imencode(".png", pixels)[1].tobytes()


def assert_shows(got: np.ndarray, wanted: np.ndarray, tolerance: float, edge: int = 0) -> None:
    assert got.shape == wanted.shape
    assert got.dtype == np.uint8
    inner = np.s_[edge : HEIGHT - edge, edge : WIDTH - edge]
    error = np.abs(got[inner].astype(int) - wanted[inner].astype(int)).max()
    assert error <= tolerance, f"differs by {error}, allowed {tolerance}"


def expected(encoding: str) -> tuple[np.ndarray, float, int]:
    """The picture to see, by how much it may differ, and how many pixels at the edge don't count."""
    if encoding.startswith("mono"):
        return np.repeat(gray(picture())[..., None], 3, axis=-1), 0, 0
    if encoding.startswith("bayer"):
        return picture(), 3, 1
    if encoding.startswith(("rgb", "bgr")):
        return picture(), 0, 0
    return picture(), 8, 0  # colour at half the resolution


class TestRawEncodings:
    def test_all_that_cameras_use_are_known(self) -> None:
        both_depths = ["rgb", "bgr", "rgba", "bgra", "mono", "bayer_rggb", "bayer_bggr", "bayer_gbrg", "bayer_grbg"]
        wanted = {f"{name}{bits}" for name in both_depths for bits in (8, 16)}
        assert set(RAW_ENCODINGS) == wanted | {"yuv422", "yuv422_yuy2", "uyvy", "yuyv", "nv12", "nv21"}

    @pytest.mark.parametrize("encoding", RAW_ENCODINGS)
    def test_shows_the_picture(self, encoding: str) -> None:
        wanted, tolerance, edge = expected(encoding)
        assert_shows(decode(raw_frame(encode_raw(picture(), encoding), encoding)), wanted, tolerance, edge)

    @pytest.mark.parametrize("encoding", [*RAW_ENCODINGS, "jpeg"])
    def test_writes_into_the_room_that_is_given(self, encoding: str) -> None:
        if encoding == "jpeg":
            frame = file_frame(jpeg(picture()))
        else:
            frame = raw_frame(encode_raw(picture(), encoding), encoding)
        room = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
        decode(frame, lambda height, width: room[:height, :width])
        assert np.array_equal(room, decode(frame))

    @pytest.mark.parametrize("encoding", RAW_ENCODINGS)
    @pytest.mark.parametrize("last_row_padded", [True, False])
    def test_padding_of_rows_is_left_out(self, encoding: str, last_row_padded: bool) -> None:
        rows = encode_raw(picture(), encoding)
        padded = np.full((rows.shape[0], rows.shape[1] + 8), 255, np.uint8)
        padded[:, : rows.shape[1]] = rows
        data = padded.tobytes() if last_row_padded else padded.tobytes()[:-8]
        wanted = decode(raw_frame(rows, encoding))
        assert np.array_equal(decode(raw_frame(padded, encoding, data=data)), wanted)

    @pytest.mark.parametrize("width", [640, 641])
    def test_bgr8_with_a_step_of_1928(self, width: int) -> None:
        rgb = np.random.default_rng(0).integers(0, 256, (480, width, 3), dtype=np.uint8)
        rows = np.full((480, 1928), 255, np.uint8)
        rows[:, : 3 * width] = rgb[..., ::-1].reshape(480, 3 * width)
        frame = raw_frame(rows, "bgr8", height=480, width=width)
        assert np.array_equal(decode(frame), rgb)

    @pytest.mark.parametrize("encoding", [name for name in RAW_ENCODINGS if not name.endswith("16")])
    def test_the_big_endian_flag_means_nothing_for_bytes(self, encoding: str) -> None:
        rows = encode_raw(picture(), encoding)
        wanted = decode(raw_frame(rows, encoding))
        assert np.array_equal(decode(raw_frame(rows, encoding, is_bigendian=True)), wanted)

    @pytest.mark.parametrize("step", [WIDTH, WIDTH * 3 // 2, WIDTH * 2])
    def test_tightly_packed_nv12_whatever_the_driver_calls_its_step(self, step: int) -> None:
        rows = encode_raw(picture(), "nv12")
        assert_shows(decode(raw_frame(rows, "nv12", step=step)), picture(), 8)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
    def test_any_buffer_of_bytes(self, kind: type) -> None:
        rows = encode_raw(picture(), "rgb8")
        assert np.array_equal(decode(raw_frame(rows, "rgb8", data=kind(rows.tobytes()))), picture())

    def test_the_result_does_not_share_the_messages_memory(self) -> None:
        data = bytearray(encode_raw(picture(), "rgb8").tobytes())
        got = decode(raw_frame(encode_raw(picture(), "rgb8"), "rgb8", data=memoryview(data)))
        data[:] = bytes(len(data))
        assert np.array_equal(got, picture())

    @pytest.mark.parametrize(
        ("encoding", "changes", "message"),
        [
            ("rgb8", {"step": 100}, "step is 100 bytes, expected at least 192 for rows of 64 pixels"),
            ("rgb8", {"step": 0}, "step is 0 bytes"),
            ("rgb8", {"data": bytes(100)}, "the data are 100 bytes, expected 9216: 48 rows of 192 bytes"),
            ("rgb8", {"data": b""}, "the data are 0 bytes, expected 9216"),
            ("rgb8", {"data": bytes(9217)}, "the data are 9217 bytes, expected 9216"),
            ("rgb8", {"height": 0}, "the image is 64x0 pixels"),
            ("bayer_rggb8", {"height": 2}, "the image is 64x2 pixels, expected at least 3x3"),
            ("yuyv", {"width": 63}, "63 pixels wide, expected an even number"),
            ("nv12", {"height": 47}, "47 pixels high, expected an even number"),
        ],
    )
    def test_a_wrong_size_is_named_with_what_is_right(self, encoding: str, changes: dict, message: str) -> None:
        frame = raw_frame(encode_raw(picture(), encoding), encoding, **changes)
        with pytest.raises(BadImageError) as raised:
            decode(frame)
        assert message in str(raised.value)
        assert f"camera 6, stamp 1500000000 ns, encoding '{encoding}'" in str(raised.value)


CV_BRIDGE = {  # as its source (rolling, 2024) has them: OpenCV's code to rgb8, channels
    "rgb": (None, 3),
    "bgr": (cv2.COLOR_BGR2RGB, 3),
    "rgba": (cv2.COLOR_RGBA2RGB, 4),
    "bgra": (cv2.COLOR_BGRA2RGB, 4),
    "mono": (cv2.COLOR_GRAY2RGB, 1),
    "bayer_rggb": (cv2.COLOR_BayerBG2RGB, 1),
    "bayer_bggr": (cv2.COLOR_BayerRG2RGB, 1),
    "bayer_gbrg": (cv2.COLOR_BayerGR2RGB, 1),
    "bayer_grbg": (cv2.COLOR_BayerGB2RGB, 1),
    "yuv422": (cv2.COLOR_YUV2RGB_UYVY, 2),
    "yuv422_yuy2": (cv2.COLOR_YUV2RGB_YUY2, 2),
}


class TestAsCvBridgeConvertsThem:
    """Any pixels. cv_bridge converts colours first, and then scales 16 bit to 8 by 255 / 65535, rounded."""

    @pytest.mark.parametrize("is_bigendian", [False, True])
    @pytest.mark.parametrize("padding", [0, 1, 6])
    @pytest.mark.parametrize(
        "encoding", [name for name in RAW_ENCODINGS if name not in ("uyvy", "yuyv", "nv12", "nv21")]
    )
    def test_to_the_last_bit(self, encoding: str, padding: int, is_bigendian: bool) -> None:
        code, channels = CV_BRIDGE[encoding.removesuffix("8").removesuffix("16")]
        bits = 16 if encoding.endswith("16") else 8
        rng = np.random.default_rng(5)
        pixels = rng.integers(0, 2**bits, (HEIGHT, WIDTH, channels), dtype=f"u{bits // 8}")
        wanted = pixels if code is None else cv2.cvtColor(pixels, code)
        if bits == 16:
            wanted = np.rint(wanted * (255 / 65535)).astype(np.uint8)
        sent = pixels.astype(pixels.dtype.newbyteorder(">" if is_bigendian else "<"))
        rows = np.hstack([sent.reshape(HEIGHT, -1).view(np.uint8), rng.integers(0, 256, (HEIGHT, padding), np.uint8)])
        assert np.array_equal(decode(raw_frame(rows, encoding, is_bigendian=is_bigendian)), wanted)

    @pytest.mark.parametrize(("other", "name"), [("uyvy", "yuv422"), ("yuyv", "yuv422_yuy2")])
    def test_the_newer_names_are_those_that_it_knows(self, other: str, name: str) -> None:
        rows = np.random.default_rng(6).integers(0, 256, (HEIGHT, 2 * WIDTH), np.uint8)
        assert np.array_equal(decode(raw_frame(rows, other)), decode(raw_frame(rows, name)))


class TestUnknownEncodings:
    frame = raw_frame(encode_raw(picture(), "rgb8"), "vendor_packed_10")

    def test_one_error_lists_the_known_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cv_bridge", None)
        with pytest.raises(
            BadImageError, match=r"'vendor_packed_10': unknown encoding, expected one of rgb8, rgb16, .*"
        ):
            decode(self.frame)

    def test_cv_bridge_is_asked_where_it_is_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def imgmsg_to_cv2(_: object, message: SimpleNamespace, wanted: str) -> np.ndarray:
            assert (message.encoding, message.height, message.width, wanted) == ("vendor_packed_10", 48, 64, "rgb8")
            return np.frombuffer(message.data, np.uint8).reshape(48, 64, 3)

        bridge = SimpleNamespace(CvBridge=type("CvBridge", (), {"imgmsg_to_cv2": imgmsg_to_cv2}))
        monkeypatch.setitem(sys.modules, "cv_bridge", bridge)
        assert np.array_equal(decode(self.frame), picture())

    def test_cv_bridge_is_given_rows_without_padding_since_older_ones_shear_the_picture(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class CvBridge:
            """As the older ones: the step is not looked at."""

            def encoding_to_dtype_with_channels(self, encoding: str) -> tuple[str, int]:
                return "uint8", 3

            def imgmsg_to_cv2(self, message: SimpleNamespace, wanted: str) -> np.ndarray:
                return np.ndarray((message.height, message.width, 3), np.uint8, message.data)

        monkeypatch.setitem(sys.modules, "cv_bridge", SimpleNamespace(CvBridge=CvBridge))
        rows = encode_raw(picture(), "rgb8")
        padded = np.hstack([rows, np.zeros((HEIGHT, 8), np.uint8)])
        assert np.array_equal(decode(raw_frame(padded, "8UC3")), picture())
        with pytest.raises(BadImageError, match="expected rows of at least 192 bytes"):
            decode(raw_frame(padded, "8UC3", data=padded.tobytes()[:5000]))

    def test_what_cv_bridge_does_not_know_either_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class CvBridge:
            def imgmsg_to_cv2(self, *_: object) -> None:
                raise RuntimeError("[vendor_packed_10] is not a color format")

        monkeypatch.setitem(sys.modules, "cv_bridge", SimpleNamespace(CvBridge=CvBridge))
        with pytest.raises(BadImageError, match=r"cv_bridge does not know it either .*not a color format"):
            decode(self.frame)

    @pytest.mark.parametrize("encoding", RAW_ENCODINGS)
    def test_the_own_decoder_agrees_with_cv_bridge(self, encoding: str) -> None:
        cv_bridge = pytest.importorskip("cv_bridge", reason="cv_bridge (part of ROS 2 from apt) is not installed")
        frame = raw_frame(encode_raw(picture(), encoding), encoding)
        message = SimpleNamespace(
            height=HEIGHT, width=WIDTH, step=frame.step, encoding=encoding, is_bigendian=False, data=frame.data
        )
        try:
            wanted = cv_bridge.CvBridge().imgmsg_to_cv2(message, "rgb8")
        except Exception as error:
            pytest.skip(f"this cv_bridge can't decode {encoding}: {error}")
        assert_shows(decode(frame), wanted, 1)


class TestCompressed:
    @pytest.mark.parametrize(
        "encoding",
        [
            "jpeg",
            "jpg",
            "bgr8; jpeg compressed bgr8",
            "rgb8; jpeg compressed bgr8",
            "rgb8; jpeg compressed ",
            "bgr8",
            "",
        ],
    )
    @pytest.mark.parametrize(
        "sampling",
        [
            cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
            cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
            cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
        ],
    )
    def test_a_colour_jpeg(self, encoding: str, sampling: int) -> None:
        assert_shows(decode(file_frame(jpeg(picture(), sampling=sampling), encoding)), picture(), 8)

    def test_a_gray_jpeg_becomes_rgb(self) -> None:
        data = cv2.imencode(".jpg", gray(picture()), [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()
        assert_shows(decode(file_frame(data, "mono8; jpeg compressed ")), expected("mono8")[0], 4)

    def test_a_progressive_jpeg_with_restart_markers(self) -> None:
        options = [cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_RST_INTERVAL, 2, cv2.IMWRITE_JPEG_QUALITY, 95]
        data = cv2.imencode(".jpg", picture()[..., ::-1], options)[1].tobytes()
        assert_shows(decode(file_frame(data)), picture(), 8)

    @pytest.mark.parametrize("encoding", ["png", "rgb8; png compressed bgr8", "rgb8; png compressed ", "jpeg"])
    def test_a_png_whatever_it_is_called(self, encoding: str) -> None:
        assert np.array_equal(decode(file_frame(png(picture()[..., ::-1]), encoding)), picture())

    def test_a_png_with_alpha(self) -> None:
        bgra = np.dstack([picture()[..., ::-1], np.full((HEIGHT, WIDTH), 3, np.uint8)])
        assert np.array_equal(decode(file_frame(png(bgra), "png")), picture())

    def test_a_16_bit_gray_png_is_scaled_as_mono16_is(self) -> None:
        data = png(gray(picture()).astype(np.uint16) * 257)
        assert np.array_equal(decode(file_frame(data, "mono16; png compressed ")), expected("mono16")[0])

    @pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
    @pytest.mark.parametrize("bits", [8, 16])
    def test_a_bayer_image_that_was_compressed_as_it_is(self, pattern: str, bits: int) -> None:
        pixels = mosaic(picture(), pattern)
        data = png(pixels if bits == 8 else pixels.astype(np.uint16) * 257)
        assert_shows(decode(file_frame(data, f"bayer_{pattern}{bits}; png compressed ")), picture(), 3, edge=1)

    @pytest.mark.parametrize("encoding", ["bayer_rggb8; jpeg compressed bgr8", "bayer_rggb8; jpeg compressed "])
    def test_a_bayer_image_that_was_interpolated_before_it_was_compressed(self, encoding: str) -> None:
        assert_shows(decode(file_frame(jpeg(picture()), encoding)), picture(), 8)

    def test_a_mosaic_of_an_unknown_pattern_is_refused_not_shown_as_gray(self) -> None:
        with pytest.raises(BadImageError, match="mosaic of an unknown pattern, expected one of bayer_rggb8, "):
            decode(file_frame(png(mosaic(picture(), "rggb")), "bayer_rgbw8; png compressed "))

    def test_a_16_bit_colour_png(self) -> None:
        data = png(picture()[..., ::-1].astype(np.uint16) * 257)
        assert np.array_equal(decode(file_frame(data, "rgb16; png compressed bgr16")), picture())

    def test_the_exif_orientation_is_ignored(self) -> None:
        tiff = b"MM\x00*\x00\x00\x00\x08" + struct.pack(">HHHIHHI", 1, 0x0112, 3, 1, 6, 0, 0)  # 6: rotate by 90 degrees
        exif = b"Exif\x00\x00" + tiff
        plain = jpeg(picture())
        rotated = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + plain[2:]
        assert cv2.imdecode(np.frombuffer(rotated, np.uint8), cv2.IMREAD_COLOR).shape == (WIDTH, HEIGHT, 3)
        assert np.array_equal(decode(file_frame(rotated)), decode(file_frame(plain)))

    @pytest.mark.parametrize("padding", [b"\x00" * 1000, b"\xff\xff", b"junk"])
    def test_a_cameras_padding_after_the_image_is_allowed(self, padding: bytes) -> None:
        assert np.array_equal(decode(file_frame(jpeg(picture()) + padding)), decode(file_frame(jpeg(picture()))))

    def test_the_size_is_known_without_decoding(self) -> None:
        for data in (jpeg(picture()), png(picture())):
            assert frame_size(file_frame(data)) == (HEIGHT, WIDTH)
        assert frame_size(raw_frame(encode_raw(picture(), "rgb8"), "rgb8")) == (HEIGHT, WIDTH)


class TestBrokenFiles:
    @pytest.mark.parametrize("kept", [0.999, 0.9, 0.5, 0.1])
    @pytest.mark.parametrize("kind", ["jpeg", "png"])
    def test_a_truncated_file_is_refused_not_shown_half_gray(self, kind: str, kept: float) -> None:
        data = jpeg(picture()) if kind == "jpeg" else png(picture())
        with pytest.raises(BadImageError, match=f"the {kind.upper()} file is truncated: its .* bytes end before"):
            decode(file_frame(data[: int(kept * len(data))]))

    def test_a_truncated_file_with_a_whole_thumbnail_is_refused(self) -> None:
        thumbnail = jpeg(picture()[::4, ::4])
        plain = jpeg(picture())
        with_thumbnail = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail + plain[2:]
        assert frame_size(file_frame(with_thumbnail)) == (HEIGHT, WIDTH)
        with pytest.raises(BadImageError, match="truncated"):
            decode(file_frame(with_thumbnail[: len(thumbnail) + 200]))

    def test_an_empty_file_is_refused(self) -> None:
        with pytest.raises(BadImageError, match="camera 6, stamp 1500000000 ns, encoding 'jpeg': the data are empty"):
            decode(file_frame(b""))

    def test_garbage_is_refused_with_what_it_begins_with(self) -> None:
        with pytest.raises(BadImageError, match=r"the 64 bytes begin with 2a 2a .*, expected a JPEG \(ff d8\) or PNG"):
            decode(file_frame(b"*" * 64))

    def test_a_video_packet_is_refused(self) -> None:
        with pytest.raises(BadImageError, match=r"encoding 'h264'.*expected a JPEG"):
            decode(file_frame(b"\x00\x00\x00\x01\x67" + bytes(100), "h264"))

    def test_a_header_that_claims_gigabytes_is_refused_before_anything_is_allocated(self) -> None:
        data = bytearray(jpeg(picture()))
        at = data.index(b"\xff\xc0")
        data[at + 5 : at + 9] = struct.pack(">HH", 65500, 65500)
        with pytest.raises(BadImageError, match="the header claims 65500x65500 pixels"):
            decode(file_frame(bytes(data)))

    def test_damaged_png_data_are_refused(self) -> None:
        data = bytearray(png(picture()))
        at = data.index(b"IDAT") + 20
        data[at : at + 20] = bytes(20)
        with pytest.raises(BadImageError, match="OpenCV can't decode"):
            decode(file_frame(bytes(data)))

    @given(st.binary(max_size=200), st.sampled_from(["", "ffd8", "89504e470d0a1a0a"]))
    def test_whatever_arrives_gives_a_picture_or_a_named_error(self, data: bytes, start: str) -> None:
        assert_decodes_or_is_named(bytes.fromhex(start) + data)

    @given(st.integers(2, 2000), st.binary(min_size=1, max_size=30))
    def test_a_jpeg_damaged_anywhere_gives_a_picture_or_a_named_error(self, at: int, damage: bytes) -> None:
        data = bytearray(jpeg(picture()))
        at %= len(data)
        data[at : at + len(damage)] = damage
        assert_decodes_or_is_named(bytes(data))


def assert_decodes_or_is_named(data: bytes) -> None:
    try:
        height, width, channels = decode(file_frame(data)).shape
    except BadImageError as error:
        named = "camera 6" in str(error)
    else:
        named = height > 0 and width > 0 and channels == 3
    assert named
