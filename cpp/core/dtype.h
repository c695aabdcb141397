// Element types and the exact conversions between float32 and bfloat16.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace openjev {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kI32 };

constexpr std::size_t size_of(DType dtype) noexcept {
  return dtype == DType::kBF16 || dtype == DType::kF16 ? 2 : 4;
}

constexpr const char* name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI32:
      return "I32";
  }
  return "?";
}

constexpr float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Round to nearest, ties to even. A NaN stays a NaN (quiet), whatever its payload.
// In the upper half of a word. Without a branch: compilers then use vectors.
constexpr std::uint32_t f32_to_upper_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nearest = bits + 0x7fffu + ((bits >> 16) & 1u), quiet = bits | 0x400000u;
  return (bits & 0x7fffffffu) > 0x7f800000u ? quiet : nearest;
}
constexpr std::uint16_t f32_to_bf16(float value) noexcept {
  return static_cast<std::uint16_t>(f32_to_upper_bf16(value) >> 16);
}

constexpr float f16_to_f32(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  // Below the least exponent the value is rest * 2^-24.
  const float size = rest < 0x400u ? static_cast<float>(rest) * 0x1p-24f
                                   : std::bit_cast<float>((rest << 13) + (112u << 23));
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(size));
}

// Round to nearest, ties to even; beyond the range the largest value. A NaN stays a NaN.
constexpr std::uint16_t f32_to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (size >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7bffu);  // from 65520 on
  if (size < 0x38800000u) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(size) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0x7ffu));
  }
  const std::uint32_t rounded = size + 0xfffu + ((size >> 13) & 1u) - (112u << 23);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

constexpr float round_to_bf16(float value) noexcept {
  return std::bit_cast<float>(f32_to_upper_bf16(value) & 0xffff0000u);
}

}  // namespace openjev
