"""Whether two arrays on the device hold the same bits: the program of compare_test.cc."""

from __future__ import annotations

from tests.gpu.support import needs_cuda, run_program


@needs_cuda
def test_one_differing_byte_is_seen_and_nothing_beside_the_arrays() -> None:
    assert run_program("compare_test").stdout.count("ok:") == 14
