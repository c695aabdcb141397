"""Packed bodies: what unpacks, what is refused, and that the limit holds while unpacking."""

from __future__ import annotations

import gzip
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openjev_server import body
from openjev_server.errors import ApiError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMIT = 4096


def deflate_bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


def unpack(encoding: str, packed: bytes, *, step: int = 1 << 20, limit: int = LIMIT) -> bytes:
    """Unpacks `packed` handed over in pieces of `step` bytes."""
    decoder = body._decoder(encoding, limit)
    assert decoder is not None
    plain = b""
    for start in range(0, len(packed), step):
        plain += decoder.feed(packed[start : start + step], limit - len(plain))
    decoder.finish()
    return plain


def status_of(encoding: str, packed: bytes, **how: int) -> int:
    with pytest.raises(ApiError) as caught:
        unpack(encoding, packed, **how)
    return caught.value.status


@settings(deadline=None)
@given(data=st.binary(max_size=LIMIT), step=st.integers(1, 64), encoding=st.sampled_from(sorted(PACKERS)))
def test_every_encoding_unpacks_to_the_same_bytes_in_any_pieces(
    data: bytes, step: int, encoding: str
) -> None:
    assert unpack(encoding, PACKERS[encoding](data), step=step) == data


def test_bare_deflate_is_understood() -> None:
    data = b"a body of a client that leaves the zlib header away " * 9
    assert unpack("deflate", deflate_bare(data), step=7) == data


@pytest.mark.parametrize("encoding", sorted(PACKERS))
def test_the_limit_itself_is_allowed_and_one_byte_more_is_not(encoding: str) -> None:
    pack = PACKERS[encoding]
    assert len(unpack(encoding, pack(bytes(LIMIT)))) == LIMIT
    assert status_of(encoding, pack(bytes(LIMIT + 1))) == 413


@pytest.mark.parametrize("encoding", sorted(PACKERS))
def test_t28_a_bomb_is_refused_without_unpacking_it(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(10 << 20))
    tracemalloc.start()
    assert status_of(encoding, bomb) == 413
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("encoding", sorted(PACKERS))
def test_a_cut_or_corrupt_body_is_a_400(encoding: str) -> None:
    packed = PACKERS[encoding](b"state " * 100)
    assert status_of(encoding, packed[:-3]) == 400
    assert status_of(encoding, b"\x00\x01\x02" + packed) == 400
    assert status_of(encoding, packed + b"trailing") == 400


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_frames_in_a_row_are_one_body_but_not_without_end(encoding: str) -> None:
    pack = PACKERS[encoding]
    assert unpack(encoding, pack(b"ab") + pack(b"") + pack(b"cd"), step=5) == b"abcd"
    assert status_of(encoding, pack(b"") * 1000) == 400


def test_a_zstd_frame_that_asks_for_a_huge_window_is_refused() -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    packer = zstd.ZstdCompressor(options=options)
    packed = packer.compress(b"small") + packer.flush()
    assert status_of("zstd", packed) == 400


@settings(deadline=None)
@given(data=st.binary(max_size=200), encoding=st.sampled_from(sorted(PACKERS)))
def test_any_bytes_unpack_or_are_refused_as_the_clients_fault(data: bytes, encoding: str) -> None:
    try:
        assert len(unpack(encoding, data)) <= LIMIT
    except ApiError as error:
        assert error.status in (400, 413)


@pytest.mark.parametrize("encoding", ["br", "gzip, zstd", "compress", "zstd;q=1"])
def test_an_unknown_encoding_is_a_415_that_lists_the_known(encoding: str) -> None:
    with pytest.raises(ApiError) as caught:
        body._decoder(encoding, LIMIT)
    assert caught.value.status == 415
    assert "gzip, deflate, zstd" in str(caught.value.detail)


@pytest.mark.parametrize("encoding", [None, "", "identity", " Identity "])
def test_plain_bodies_need_no_decoder(encoding: str | None) -> None:
    assert body._decoder(encoding, LIMIT) is None
