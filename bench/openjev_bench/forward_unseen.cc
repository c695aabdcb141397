// What a length costs the first time: inside a bucket that was prepared, and in one that was not.
#include <algorithm>
#include <set>

#include "openjev_bench/forward_rows.h"
#include "openjev_bench/timing.h"
#include "openjev_bench/workload.h"

namespace openjev::bench {
namespace {

constexpr std::size_t kLengthsEach = 5;  // of either kind, for one length of --tokens
constexpr std::int32_t kFarthest = 512;  // tokens below that are looked through

struct Unseen {
  std::vector<std::int32_t> same_bucket, other_bucket;
};

class Search {
 public:
  Search(Engine& engine, const Arguments& arguments) : engine_(engine) {
    for (const auto& lengths : {arguments.tokens, arguments.warmup_tokens})
      for (const std::int32_t length : lengths) {
        run_.insert(length);
        prepared_.insert(rows(length));
      }
  }

  // Lengths near `tokens` that no call returned before. Other buckets lie below it: a longer prompt
  // would move the workspace, and with it drop what was recorded.
  Unseen near(std::int32_t tokens) {
    Unseen out;
    const std::int32_t bucket = rows(tokens);
    for (std::int32_t length = bucket; length >= 1 && rows(length) == bucket; --length)
      if (out.same_bucket.size() < kLengthsEach && run_.insert(length).second)
        out.same_bucket.push_back(length);
    for (std::int32_t length = tokens - 1;
         length >= std::max(1, tokens - kFarthest) && out.other_bucket.size() < kLengthsEach;
         --length) {
      if (run_.contains(length) || !prepared_.insert(rows(length)).second) continue;
      run_.insert(length);
      out.other_bucket.push_back(length);
    }
    return out;
  }

 private:
  std::int32_t rows(std::int32_t length) {
    return rows_of_prompt(length, engine_.config().vocab_size, engine_.backend());
  }

  Engine& engine_;
  std::set<std::int32_t> run_;       // lengths
  std::set<std::int32_t> prepared_;  // rows of their buckets
};

// First time and median of later times of each length, ms.
struct Times {
  std::vector<double> first, later, ratio;
};

Times time_unseen(Engine& engine, const Arguments& arguments, std::int32_t warmed,
                  const std::vector<std::int32_t>& lengths) {
  constexpr int kLater = 7;
  const Pace pace{.gaps = arguments.gaps};
  const auto pass = [&](std::int32_t length, std::uint64_t stream) {
    const std::vector<std::int32_t> tokens =
        random_tokens(length, engine.config().vocab_size, arguments.seed, stream);
    pause_before_pass(pace);
    return milliseconds([&] { score(engine, tokens); });
  };
  Times out;
  std::uint64_t stream = 1;
  for (const std::int32_t length : lengths) {
    // The device is as busy before the first pass as before the later ones.
    for (int i = 0; i < kLater; ++i) pass(warmed, stream++);
    out.first.push_back(pass(length, stream++));
    record_all(engine);
    pass(length, stream++);
    std::vector<double> later;
    for (int i = 0; i < kLater; ++i) later.push_back(pass(length, stream++));
    out.later.push_back(median_of(later));
    out.ratio.push_back(out.first.back() / out.later.back());
  }
  return out;
}

}  // namespace

void forward_unseen(const Arguments& arguments, Loaded& loaded, Report& report) {
  Engine& engine = *loaded.engine;
  record_all(engine);
  Table table = report.begin("forward, lengths never run before",
                             {{"bucket of tokens"},
                              {"bucket"},
                              {"lengths"},
                              {"n"},
                              {"first ms"},
                              {"later ms"},
                              {"median ratio"},
                              {"max ratio"}},
                             engine.backend());
  table.facts.emplace_back("pace", arguments.gaps ? "gaps of 40 ms" : "sustained");
  Search search(engine, arguments);
  for (const std::int32_t tokens : distinct(arguments.tokens)) {
    const Unseen unseen = search.near(tokens);
    const auto add = [&](const char* bucket, const std::vector<std::int32_t>& lengths) {
      if (lengths.empty()) return;  // every length is a bucket of its own, or all were run
      const Times times = time_unseen(engine, arguments, tokens, lengths);
      const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
      table.rows.push_back({std::int64_t{tokens}, std::string(bucket),
                            std::to_string(*least) + " to " + std::to_string(*most),
                            static_cast<std::int64_t>(lengths.size()), median_of(times.first),
                            median_of(times.later), median_of(times.ratio),
                            *std::max_element(times.ratio.begin(), times.ratio.end())});
    };
    add("prepared", unseen.same_bucket);
    add("not prepared", unseen.other_bucket);
  }
  report.end(std::move(table), engine.backend());
}

}  // namespace openjev::bench
