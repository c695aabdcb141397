// Recorded passes. A pass is determined by the counts of its (bucketed) plan, so they are the key.
//
//   eager      nothing is recorded
//   exact      each plan shape is recorded in the request that first needs it; plans are not padded
//   bucketed   plans are rounded up; recordings are made between requests (record_missed) or before
//              the first one; a request that finds none is launched kernel by kernel
//
// Bounded by a number of entries and of device bytes; the least recently used goes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "cuda/raii.h"

namespace openjev::cuda {

enum class GraphMode { kEager, kExact, kBucketed };

// Throws kBadRequest for an unknown name.
GraphMode parse_graph_mode(const std::string& name);

class GraphCache {
 public:
  using Launches = std::function<void()>;

  // entries 0: the mode's default. Throws kBadRequest for a negative number.
  GraphCache(GraphMode mode, int entries, cudaStream_t stream);

  GraphMode mode() const { return mode_; }
  void run(const PlanView& plan, const Launches& launches);
  bool record_missed(const std::function<void(const PlanView&)>& launches);
  void clear();  // what recordings point to has moved
  GraphStats stats() const { return stats_; }

 private:
  using Key = std::vector<std::int32_t>;
  struct Entry {
    Key key;
    GraphExec graph;
    std::size_t bytes = 0;
  };
  // A plan shape without its arrays' contents.
  struct Missed {
    Key key;
    PlanView plan;
    std::vector<std::int32_t> level_begin;
  };

  static Key key_of(const PlanView& plan);
  std::list<Entry>::iterator find(const Key& key);
  bool replay(const Key& key);
  void record(const Key& key, const Launches& launches);
  void remember(const Key& key, const PlanView& plan);
  void drop(std::list<Entry>::iterator entry);

  GraphMode mode_;
  std::size_t most_entries_;
  cudaStream_t stream_;
  std::list<Entry> entries_;  // most recently used first
  std::deque<Missed> missed_;
  GraphStats stats_;
};

}  // namespace openjev::cuda
