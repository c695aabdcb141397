// Seeded values by position: element i of stream `seed` is a hash of both, so any part can be made
// anywhere, in any order, on host or device. SplitMix64 (Steele, Lea, Flood 2014) on seed and
// index.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define OPENJEV_HOST_DEVICE __host__ __device__
#else
#define OPENJEV_HOST_DEVICE
#endif

namespace openjev {

OPENJEV_HOST_DEVICE constexpr std::uint64_t hash_of(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = (seed + 1) * 0x9E3779B97F4A7C15u + index * 0xD1B54A32D192ED03u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Uniform in [-scale, scale), a multiple of scale / 2^23: exact in float32 before the scaling.
OPENJEV_HOST_DEVICE constexpr float uniform_of(std::uint64_t seed, std::uint64_t index,
                                               float scale) {
  const auto bits = static_cast<std::int32_t>(hash_of(seed, index) >> 40);  // 24 bits
  return static_cast<float>(bits - (1 << 23)) * (1.0f / (1 << 23)) * scale;
}

}  // namespace openjev
