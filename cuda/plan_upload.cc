#include "cuda/plan_upload.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace openjev::cuda {
namespace {

constexpr std::size_t kAlign = 256;
constexpr std::size_t kFirstBytes = std::size_t{4} << 20;
constexpr std::int32_t kTreeChunks = 4;  // chunk counts of trees are rounded up to a multiple of it

std::int32_t round_up(std::int32_t value, std::int32_t step) {
  return (value + step - 1) / step * step;
}

std::int32_t power_of_two(std::int32_t value) {
  return value <= 0 ? value
                    : static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(value)));
}

struct Counts {
  std::int32_t rows, chunks, leaves, states, row_tiles, leaf_tiles;
};

Counts counts_of(const PlanView& plan) {
  return {plan.rows,
          plan.chunks,
          plan.leaves,
          plan.states,
          static_cast<std::int32_t>(plan.row_tiles.size()),
          static_cast<std::int32_t>(plan.leaf_tiles.size())};
}

// A path of as many rows as its bucket has exactly the bucket's chunks; a tree has more.
Counts bucket_of(const PlanView& plan) {
  Counts c = counts_of(plan);
  c.rows = bucket_rows(plan.rows);
  const std::int32_t path = (c.rows + kChunk - 1) / kChunk;
  c.chunks = plan.chunks <= path ? path : round_up(plan.chunks, kTreeChunks);
  c.leaves = power_of_two(plan.leaves);
  c.states = power_of_two(plan.states);
  c.row_tiles = c.chunks;
  c.leaf_tiles = c.leaves;
  return c;
}

// Writes arrays one after another into host memory and says where each will be on the device.
class Writer {
 public:
  Writer(std::byte* host, std::byte* device) : host_(host), device_(device) {}

  template <class T>
  std::span<const T> array(std::span<const T> values, std::int32_t count, T fill) {
    const auto all = static_cast<std::size_t>(count);
    if (host_ != nullptr) {
      T* to = reinterpret_cast<T*>(host_ + used_);
      std::copy(values.begin(), values.end(), to);
      std::fill(to + values.size(), to + all, fill);
    }
    const T* at = device_ == nullptr ? nullptr : reinterpret_cast<const T*>(device_ + used_);
    used_ += (all * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return {at, all};
  }

  std::size_t used() const { return used_; }

 private:
  std::byte* host_;
  std::byte* device_;
  std::size_t used_ = 0;
};

// Segments level by level, each level padded with empty ones.
std::vector<Segment> padded_segments(const PlanView& plan, bool pad,
                                     std::vector<std::int32_t>& level_begin) {
  std::vector<Segment> out;
  level_begin.assign(1, 0);
  for (std::size_t level = 0; level + 1 < plan.level_begin.size(); ++level) {
    const auto first = static_cast<std::size_t>(plan.level_begin[level]);
    const auto last = static_cast<std::size_t>(plan.level_begin[level + 1]);
    out.insert(out.end(), plan.segments.begin() + static_cast<std::ptrdiff_t>(first),
               plan.segments.begin() + static_cast<std::ptrdiff_t>(last));
    const auto count = static_cast<std::int32_t>(last - first);
    const std::int32_t wanted = pad ? power_of_two(count) : count;
    out.insert(out.end(), static_cast<std::size_t>(wanted - count), Segment{0, 0, -1, -1});
    level_begin.push_back(static_cast<std::int32_t>(out.size()));
  }
  return out;
}

PlanView write(Writer& writer, const PlanView& plan, const Counts& c,
               std::span<const Segment> segments) {
  PlanView out;
  out.rows = c.rows;
  out.chunks = c.chunks;
  out.leaves = c.leaves;
  out.states = c.states;
  out.prefix_length = plan.prefix_length;
  out.token = writer.array(plan.token, c.rows, 0);
  out.position = writer.array(plan.position, c.rows, 0);
  out.parent_row = writer.array(plan.parent_row, c.rows, -1);
  out.chunk_rows = writer.array(plan.chunk_rows, c.chunks * kChunk, -1);
  out.chunk_length = writer.array(plan.chunk_length, c.chunks, 0);
  out.chunk_owned = writer.array(plan.chunk_owned, c.chunks, 0);
  out.chunk_parent = writer.array(plan.chunk_parent, c.chunks, -1);
  out.segments = writer.array(segments, static_cast<std::int32_t>(segments.size()), Segment{});
  out.row_tiles = writer.array(plan.row_tiles, c.row_tiles, QueryTile{});
  out.leaf_tiles = writer.array(plan.leaf_tiles, c.leaf_tiles, QueryTile{});
  out.leaf_row = writer.array(plan.leaf_row, c.leaves, 0);
  out.leaf_position = writer.array(plan.leaf_position, c.leaves, 0);
  return out;
}

}  // namespace

std::int32_t bucket_rows(std::int32_t rows) {
  constexpr std::int32_t kStep = 16;
  return round_up(rows, kStep);
}

void PlanUpload::reserve(std::size_t bytes) {
  if (bytes <= device_.bytes()) return;
  const std::size_t size = std::max(kFirstBytes, std::bit_ceil(bytes));
  device_ = {};  // freed before the larger one is taken
  host_ = {};
  host_ = allocate_pinned(size);
  device_ = allocate_device(size);
  ++moves_;
}

PlanView PlanUpload::upload(const PlanView& host, bool pad, cudaStream_t stream) {
  const bool rounded = pad && host.rows <= kMostBucketRows && host.prefix_length == 0;
  const Counts counts = rounded ? bucket_of(host) : counts_of(host);
  const std::vector<Segment> segments = padded_segments(host, rounded, level_begin_);
  Writer counting(nullptr, nullptr);
  write(counting, host, counts, segments);
  reserve(counting.used());
  Writer writer(host_.as<std::byte>(), device_.as<std::byte>());
  PlanView out = write(writer, host, counts, segments);
  out.level_begin = level_begin_;
  check_cuda(
      cudaMemcpyAsync(device_.data(), host_.data(), writer.used(), cudaMemcpyHostToDevice, stream),
      "copy the plan");
  return out;
}

}  // namespace openjev::cuda
