// Element types and the exact conversions between float32 and bfloat16.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace openjev {

enum class DType : std::uint8_t { kF32, kBF16, kI32 };

constexpr std::size_t size_of(DType dtype) noexcept { return dtype == DType::kBF16 ? 2 : 4; }

constexpr const char* name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
  }
  return "?";
}

constexpr float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Round to nearest, ties to even. A NaN stays a NaN (quiet), whatever its payload.
constexpr std::uint16_t f32_to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float round_to_bf16(float value) noexcept { return bf16_to_f32(f32_to_bf16(value)); }

}  // namespace openjev
