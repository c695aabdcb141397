#include "cuda/graph_cache.h"

#include <algorithm>

#include "cuda/warning.h"

namespace openjev::cuda {
namespace {

constexpr std::size_t kMostBytes = std::size_t{2} << 30;
constexpr std::size_t kMostMissed = 64;
constexpr int kDefaultExact = 8, kDefaultBucketed = 128;

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "read the free device memory");
  return free;
}

// Ends the capture on every way out, so that the stream can be used again.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin a capture");
  }
  ~Capture() {
    if (open_) static_cast<void>(end());
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  Graph finish() {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = end(&graph);
    Graph out(graph);
    check_cuda(status, "end a capture");
    return out;
  }

 private:
  cudaError_t end(cudaGraph_t* into = nullptr) {
    open_ = false;
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream_, &graph);
    if (into != nullptr)
      *into = graph;
    else
      static_cast<void>(Graph(graph));
    if (status != cudaSuccess) cudaGetLastError();
    return status;
  }

  cudaStream_t stream_;
  bool open_ = true;
};

void warn_of_fallback(const char* what, const std::string& why) {
  warn(std::string("cuda graph: ") + what + " failed, launching eagerly: " + why);
}

}  // namespace

GraphMode parse_graph_mode(const std::string& name) {
  if (name == "eager") return GraphMode::kEager;
  if (name == "exact") return GraphMode::kExact;
  if (name == "bucketed") return GraphMode::kBucketed;
  fail(ErrorKind::kBadRequest, "graph_mode ", name,
       ": unknown; allowed are eager, exact and bucketed");
}

GraphCache::GraphCache(GraphMode mode, int entries, cudaStream_t stream)
    : mode_(mode), stream_(stream) {
  if (entries < 0)
    fail(ErrorKind::kBadRequest, "graph_entries ", entries, ": allowed are 0 (default) or more");
  const int standard = mode == GraphMode::kExact ? kDefaultExact : kDefaultBucketed;
  most_entries_ = static_cast<std::size_t>(entries == 0 ? standard : entries);
}

GraphCache::Key GraphCache::key_of(const PlanView& plan) {
  Key key{plan.rows,
          plan.chunks,
          plan.leaves,
          plan.states,
          static_cast<std::int32_t>(plan.row_tiles.size()),
          static_cast<std::int32_t>(plan.leaf_tiles.size())};
  key.insert(key.end(), plan.level_begin.begin(), plan.level_begin.end());
  return key;
}

std::list<GraphCache::Entry>::iterator GraphCache::find(const Key& key) {
  return std::find_if(entries_.begin(), entries_.end(),
                      [&](const Entry& entry) { return entry.key == key; });
}

void GraphCache::drop(std::list<Entry>::iterator entry) {
  stats_.bytes -= static_cast<std::int64_t>(entry->bytes);
  entries_.erase(entry);
  stats_.entries = static_cast<std::int64_t>(entries_.size());
  ++stats_.evictions;
}

void GraphCache::clear() {
  while (!entries_.empty()) drop(entries_.begin());
  missed_.clear();
}

bool GraphCache::replay(const Key& key) {
  const auto entry = find(key);
  if (entry == entries_.end()) return false;
  if (const cudaError_t status = cudaGraphLaunch(entry->graph.get(), stream_);
      status != cudaSuccess) {
    cudaGetLastError();
    warn_of_fallback("a replay", cudaGetErrorString(status));
    ++stats_.fallbacks;
    drop(entry);
    return false;
  }
  entries_.splice(entries_.begin(), entries_, entry);
  ++stats_.hits;
  return true;
}

void GraphCache::record(const Key& key, const Launches& launches) {
  try {
    const std::size_t before = free_bytes();
    Capture capture(stream_);
    launches();
    const Graph graph = capture.finish();
    cudaGraphExec_t exec = nullptr;
    check_cuda(cudaGraphInstantiate(&exec, graph.get(), 0), "instantiate a graph");
    Entry entry{key, GraphExec(exec), 0};
    check_cuda(cudaGraphUpload(exec, stream_), "upload a graph");
    const std::size_t after = free_bytes();
    entry.bytes = before > after ? before - after : 0;
    stats_.bytes += static_cast<std::int64_t>(entry.bytes);
    entries_.push_front(std::move(entry));
    ++stats_.captures;
    stats_.entries = static_cast<std::int64_t>(entries_.size());
  } catch (const Error& error) {
    warn_of_fallback("a capture", error.what());
    ++stats_.fallbacks;
  }
  while (entries_.size() > most_entries_ ||
         (entries_.size() > 1 && stats_.bytes > static_cast<std::int64_t>(kMostBytes))) {
    drop(std::prev(entries_.end()));
  }
}

void GraphCache::remember(const Key& key, const PlanView& plan) {
  const bool known = std::any_of(missed_.begin(), missed_.end(),
                                 [&](const Missed& missed) { return missed.key == key; });
  if (known || missed_.size() == kMostMissed) return;
  missed_.push_back({key, plan, {plan.level_begin.begin(), plan.level_begin.end()}});
}

void GraphCache::run(const PlanView& plan, const Launches& launches) {
  if (mode_ == GraphMode::kEager) {
    launches();
    return;
  }
  const Key key = key_of(plan);
  if (replay(key)) return;
  ++stats_.misses;
  launches();
  if (mode_ == GraphMode::kExact)
    record(key, launches);
  else
    remember(key, plan);
}

bool GraphCache::record_missed(const std::function<void(const PlanView&)>& launches) {
  if (missed_.empty()) return false;
  Missed missed = std::move(missed_.front());
  missed_.pop_front();
  missed.plan.level_begin = missed.level_begin;
  if (find(missed.key) == entries_.end()) record(missed.key, [&] { launches(missed.plan); });
  return true;
}

}  // namespace openjev::cuda
