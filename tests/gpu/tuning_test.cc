// Parts of the choice of matmul algorithms that need no GPU, printed for test_tuning.py:
//
//   buckets ROWS...
//       the bucket of each, and the one whose measurements count for it
//   cost PARTS MOST BUCKET MICROSECONDS ... of ROWS...
//       the mean cost over ROWS up to MOST of a product with 1000 columns and those times
//   copy MODE FROM TO
//       reads a tuning file and writes what was read; the reason if it was ignored or not written
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/matmul_workload.h"
#include "cuda/tuning_file.h"

using namespace openjev::cuda;

namespace {

int buckets(char** words) {
  for (; *words != nullptr; ++words) {
    const long long rows = std::atoll(*words);
    std::printf("%lld %lld\n", static_cast<long long>(matmul_bucket(rows)),
                static_cast<long long>(measured_bucket(rows)));
  }
  return 0;
}

int cost(char** words) {
  const int parts = std::atoi(words[0]);
  const long long most = std::atoll(words[1]);
  std::vector<TunedBucket> tuned;
  for (words += 2; std::string_view(*words) != "of"; words += 2)
    tuned.push_back({std::atoll(words[0]), std::atof(words[1]), {}});
  std::vector<std::int64_t> rows;
  while (*++words != nullptr) rows.push_back(std::atoll(*words));
  std::printf("%.9g\n", workload_time(tuned, rows, most, 1000, parts));
  return 0;
}

int copy(char** words) {
  const TuningKey key{"Some GPU", "1 2.3", 4, std::string_view(words[0]) == "invariant", 0, 5};
  const TuningFile file = read_tuning_file(words[1], key);
  if (!file.ignored.empty()) {
    std::puts(file.ignored.c_str());
    return file.shapes.empty() ? 0 : 1;  // nothing of an ignored file may be used
  }
  std::puts(write_tuning_file(words[2], key, file.shapes).c_str());
  return 0;
}

}  // namespace

int main(int, char** argv) {
  const std::string_view command = argv[1];
  if (command == "buckets") return buckets(argv + 2);
  return command == "cost" ? cost(argv + 2) : copy(argv + 2);
}
