// The file that keeps measured matmul algorithms from one start to the next. It is a cache: one
// that is missing, from other hardware or software, or damaged is ignored with a reason, never an
// error.
//
//   openjev-matmul-tuning 4
//   key <GPU> | driver <version> | cublasLt <version> | <mode> | workspace <bytes>
//   shape <n> <k> <parts> <verified> <rows> <alignment of weight> <of x> <of out>
//   bucket <rows> <microseconds> <8 hexadecimal words>
//   ...
//   end <shapes>
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace openjev::cuda {

// What measurements depend on.
struct TuningKey {
  std::string gpu;
  std::string driver;
  std::size_t cublaslt = 0;
  bool invariant = true;
  int parts = 0;  // that every K was to be split in; 0: the fastest
  std::size_t workspace_bytes = 0;

  std::string text() const;  // one line
};

// The algorithm for one bucket of rows.
struct TunedBucket {
  std::int64_t rows = 0;
  double microseconds = 0;
  std::array<std::uint64_t, 8> algorithm{};

  friend bool operator==(const TunedBucket&, const TunedBucket&) = default;
};

// What was measured for weights [n, k].
struct TunedShape {
  std::int64_t n = 0, k = 0;
  int parts = 0;          // of K, the same in every bucket; 0: each bucket has its own algorithm's
  bool verified = false;  // the buckets were seen to give the same bits
  std::int64_t rows = 0;  // buckets up to this one were wanted
  std::array<std::int32_t, 3> alignment{16, 16, 16};  // of weight, x and out, in bytes
  std::vector<TunedBucket> buckets;                   // not empty, rows ascending

  friend bool operator==(const TunedShape&, const TunedShape&) = default;
};

struct TuningFile {
  std::vector<TunedShape> shapes;
  std::string ignored;  // why the file was not used; empty when it was, or when there is none
};

TuningFile read_tuning_file(const std::filesystem::path& file, const TuningKey& key);

// Replaces the file in one step and makes its folder. Returns why it could not; empty: written.
std::string write_tuning_file(const std::filesystem::path& file, const TuningKey& key,
                              const std::vector<TunedShape>& shapes);

}  // namespace openjev::cuda
