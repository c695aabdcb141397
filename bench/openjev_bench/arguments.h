// The command line.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"

namespace openjev::bench {

// What the command line got wrong and what is allowed; the process ends with status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bits, so that an option can name the commands that have it.
enum class Command : unsigned { kForward = 1, kKernels = 2, kMatmul = 4, kMemory = 8 };

struct Arguments {
  Command command = Command::kForward;
  bool help = false;

  std::string shape = "27b";
  std::int32_t layers = 0;      // 0: all of the shape
  std::int32_t vocab_size = 0;  // 0: the shape's
  std::string device = "cuda";
  BackendOptions backend;
  std::uint64_t seed = 0;

  std::vector<std::int32_t> tokens = {107, 936, 3399};
  std::vector<std::int32_t> warmup_tokens;  // prepared for besides what is measured
  std::string lengths_file;                 // replaces `tokens`
  bool gaps = false;                        // pause before each pass
  std::int32_t repeats = 0;                 // 0: as many as the command finds enough
  bool unseen = false;
  std::int64_t cold_mb = -1;  // buffers in turn, in 10^6 bytes; -1: the command's default
  std::string json_file;
};

// `words` without the program's name. Throws UsageError.
Arguments parse_arguments(const std::vector<std::string>& words);

std::string help_text();

// The shape's numbers with `layers` and `vocab_size` applied. Throws openjev::Error.
ModelConfig model_config(const Arguments& arguments);

}  // namespace openjev::bench
