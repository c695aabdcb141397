#include "cuda/matmul.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "cuda/check.h"
#include "cuda/cublaslt.h"
#include "cuda/kernels/kernels.h"
#include "cuda/matmul_tuning.h"
#include "cuda/matmul_workload.h"
#include "cuda/tuning_file.h"
#include "cuda/warning.h"

namespace openjev::cuda {
namespace {

using ShapeId = std::pair<std::int64_t, std::int64_t>;  // n, k of a weight

// Where nothing was measured: how many algorithms are asked for, since the first may not qualify,
// for how many rows, and the numbers of rows that one has to take (0: those at hand).
constexpr int kHeuristics = 8;
constexpr std::int64_t kTypicalRows = 128;
constexpr std::array<std::int64_t, 3> kUsableRows{1, 0, 4096};
constexpr int kMaxParts = 64;

// The driver's own version where Linux shows it: the one for CUDA changes far less often.
std::string driver_version() {
  int cuda = 0;
  check_cuda(cudaDriverGetVersion(&cuda), "read the driver's version");
  std::string version;
  std::ifstream file("/sys/module/nvidia/version");
  std::getline(file, version);
  return std::to_string(cuda) + (version.empty() ? "" : " " + version);
}

TuningKey key_of_this_system(const MatmulOptions& options) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "find the current GPU");
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "read the GPU's properties");
  const std::string multiprocessors = std::to_string(properties.multiProcessorCount);
  return {std::string(properties.name) + " with " + multiprocessors + " multiprocessors",
          driver_version(),
          cublasLtGetVersion(),
          options.invariant,
          options.invariant ? options.parts : 0,
          options.workspace_bytes};
}

// What is used for the rows of one bucket.
struct Ready {
  Alignment alignment;
  cublasLtMatmulAlgo_t algorithm;
};

struct Shape {
  TunedShape tuned;                                  // no buckets: not measured
  std::map<std::int64_t, std::vector<Ready>> ready;  // by bucket
};

}  // namespace

struct Matmul::Impl {
  Impl(const MatmulOptions& chosen, cudaStream_t stream)
      : options(chosen), library(chosen.workspace_bytes, stream), key(key_of_this_system(chosen)) {
    TuningFile file = read_tuning_file(options.tuning_file, key);
    if (!file.ignored.empty()) warn_once("tuning file ignored: " + file.ignored);
    for (TunedShape& shape : file.shapes) {
      if (options.invariant && !library.can_split(shape.n, shape.k, shape.parts)) {
        warn_once("tuning file: weight [" + std::to_string(shape.n) + ", " +
                  std::to_string(shape.k) + "] ignored: " + std::to_string(shape.parts) +
                  " parts are not possible");
        continue;
      }
      if (options.invariant && !shape.verified) warn_unverified(shape);
      const ShapeId id{shape.n, shape.k};
      shapes[id].tuned = std::move(shape);
    }
  }

  void warn_once(const std::string& text) {
    if (warned.insert(text).second) warn("matmul: " + text);
  }
  void warn_unverified(const TunedShape& shape) {
    warn_once(
        "weight [" + std::to_string(shape.n) + ", " + std::to_string(shape.k) +
        "]: no set of algorithms gave the same bits for every number of rows when it was measured");
  }

  int parts(const ShapeId& id) const;
  void launch(const Product& product, View x, View weight, View out, bool accumulate);
  const Ready& choose(Shape& shape, const Product& product);
  bool choose_measured(const Shape& shape, const Product& bucket, Ready& ready) const;
  void choose_heuristic(const Product& bucket, Ready& ready);
  bool measured(const ShapeId& id, std::int64_t rows) const;
  void measure(const std::map<ShapeId, std::vector<View>>& groups, std::int64_t rows,
               const Steps& steps);
  void prepare(View weight);
  void save();

  MatmulOptions options;
  CublasLt library;
  TuningKey key;
  std::map<ShapeId, Shape> shapes;
  std::set<std::string> warned;
};

int Matmul::Impl::parts(const ShapeId& id) const {
  if (!options.invariant) return 1;
  const auto found = shapes.find(id);
  if (found != shapes.end() && !found->second.tuned.buckets.empty())
    return found->second.tuned.parts;
  return library.can_split(id.first, id.second, options.parts) ? options.parts : 1;
}

void Matmul::Impl::launch(const Product& product, View x, View weight, View out, bool accumulate) {
  const Ready& ready = choose(shapes[{product.n, product.k}], product);
  const cublasStatus_t status =
      library.launch(product, ready.algorithm, x.data, weight.data, out.data, accumulate);
  if (status != CUBLAS_STATUS_SUCCESS)
    check_cublas(status, product.text() + " by " + describe(ready.algorithm));
}

// The algorithm is asked for with as many rows as the bucket has, not with those of this product,
// so that it does not depend on which product came first. Whether the product accumulates is no
// part of the question: the library cannot see it when it is asked.
const Ready& Matmul::Impl::choose(Shape& shape, const Product& product) {
  Product asked = product;
  asked.rows = matmul_bucket(product.rows);
  std::vector<Ready>& known = shape.ready[asked.rows];
  for (const Ready& ready : known) {
    if (ready.alignment == product.alignment) return ready;
  }
  Ready ready{product.alignment, {}};
  if (!choose_measured(shape, asked, ready)) choose_heuristic(asked, ready);
  known.push_back(ready);
  return known.back();
}

// Makes ready what was measured for the weight's shape, so that no request asks the library, and
// launches each of its algorithms once: a kernel is loaded by its first launch.
void Matmul::Impl::prepare(View weight) {
  Shape& shape = shapes[{weight.rows, weight.cols}];
  const int count = parts({weight.rows, weight.cols});
  const DeviceMemoryBlock x_row = allocate_device(static_cast<std::size_t>(weight.cols) * 2);
  const DeviceMemoryBlock out_row = allocate_device(static_cast<std::size_t>(weight.rows) * 2);
  check_cuda(cudaMemsetAsync(x_row.data(), 0, x_row.bytes(), library.stream()), "clear a row");
  const View x = View::contiguous(x_row.data(), DType::kBF16, 1, weight.cols);
  const View out = count > 1 ? library.parts_view(count, 1, weight.rows)
                             : View::contiguous(out_row.data(), DType::kBF16, 1, weight.rows);
  const Product row = product_of(x, weight, out, count);
  std::set<AlgorithmWords> launched;
  for (const TunedBucket& bucket : shape.tuned.buckets) {
    Product product = row;
    product.rows = bucket.rows;
    const cublasLtMatmulAlgo_t algorithm = choose(shape, product).algorithm;
    if (!launched.insert(words_of(algorithm)).second || !library.usable(row, algorithm)) continue;
    check_cublas(library.launch(row, algorithm, x.data, weight.data, out.data, false),
                 row.text() + " by " + describe(algorithm));
  }
  check_cuda(cudaStreamSynchronize(library.stream()), "load matmul kernels");
}

bool Matmul::Impl::choose_measured(const Shape& shape, const Product& bucket, Ready& ready) const {
  if (shape.tuned.buckets.empty()) return false;
  const auto& [weight, x, out] = shape.tuned.alignment;
  if (!bucket.alignment.covers({weight, x, out})) return false;
  auto found = std::find_if(shape.tuned.buckets.begin(), shape.tuned.buckets.end(),
                            [&](const TunedBucket& tuned) { return tuned.rows >= bucket.rows; });
  if (found == shape.tuned.buckets.end()) --found;
  const cublasLtMatmulAlgo_t algorithm = algorithm_of(found->algorithm);
  if (!library.usable(bucket, algorithm)) return false;
  ready.algorithm = algorithm;
  return true;
}

// In invariant mode one algorithm for every number of rows: that others give the same bits has not
// been seen. What the library proposes for some rows it may refuse for a single one, at odd sizes.
void Matmul::Impl::choose_heuristic(const Product& bucket, Ready& ready) {
  const auto refused = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return std::any_of(kUsableRows.begin(), kUsableRows.end(), [&](std::int64_t rows) {
      Product other = bucket;
      other.rows = rows == 0 ? bucket.rows : rows;
      return !library.usable(other, algorithm);
    });
  };
  std::vector<cublasLtMatmulAlgo_t> found;
  if (options.invariant) {
    Product typical = bucket;
    typical.rows = kTypicalRows;
    found = library.sequential(typical, kHeuristics);
    std::erase_if(found, refused);
    if (found.empty())
      warn_once("no algorithm that goes through K in one sequence for " + bucket.text() +
                ": its bits may depend on the rows");
  }
  if (found.empty())
    found = library.heuristics(bucket, CUBLASLT_REDUCTION_SCHEME_MASK, kHeuristics);
  std::erase_if(found, refused);
  if (found.empty()) fail(ErrorKind::kInternal, "cublasLt: no algorithm for ", bucket.text());
  ready.algorithm = found.front();
}

void Matmul::Impl::measure(const std::map<ShapeId, std::vector<View>>& groups, std::int64_t rows,
                           const Steps& steps) {
  std::int64_t max_n = 0, max_k = 0;
  for (const auto& [id, views] : groups) {
    max_n = std::max(max_n, id.first);
    max_k = std::max(max_k, id.second);
  }
  Tuner tuner(library, options.invariant, options.parts, rows, max_n, max_k);
  const std::int64_t total = tuner.most_steps() * static_cast<std::int64_t>(groups.size());
  std::int64_t shapes_done = 0;
  for (const auto& [id, views] : groups) {
    const std::string name =
        "matmul [" + std::to_string(id.first) + ", " + std::to_string(id.second) + "]";
    std::int64_t done = shapes_done * tuner.most_steps();
    ShapeTuning result = tuner.tune(views, [&](std::int64_t count, int parts) {
      if (steps) {
        steps(done, total,
              name + ", " + std::to_string(count) + " rows" +
                  (parts > 1 ? ", K in " + std::to_string(parts) + " parts" : ""));
      }
      ++done;
    });
    if (!result.warning.empty()) warn_once(name + ": " + result.warning);
    Shape& shape = shapes[id];
    shape.ready.clear();
    shape.tuned = std::move(result.shape);
    ++shapes_done;
  }
  if (steps) steps(total, total, "matmul");
}

bool Matmul::Impl::measured(const ShapeId& id, std::int64_t rows) const {
  const auto found = shapes.find(id);
  return found != shapes.end() && !found->second.tuned.buckets.empty() &&
         found->second.tuned.rows >= measured_bucket(rows);
}

void Matmul::Impl::save() {
  if (options.tuning_file.empty()) return;
  std::vector<TunedShape> known;
  for (const auto& [id, shape] : shapes) {
    if (!shape.tuned.buckets.empty()) known.push_back(shape.tuned);
  }
  const std::string reason = write_tuning_file(options.tuning_file, key, known);
  if (!reason.empty()) warn_once("tuning file not kept: " + reason);
}

Matmul::Matmul(const MatmulOptions& options, cudaStream_t stream) {
  if (options.parts < 0 || options.parts > kMaxParts) {
    fail(ErrorKind::kBadRequest, "matmul_parts ", options.parts, ": allowed are 0 to ", kMaxParts,
         ", 0 for what was measured");
  }
  impl_ = std::make_unique<Impl>(options, stream);
}

Matmul::~Matmul() = default;

void Matmul::run(View x, View weight, View out, bool accumulate) {
  if (out.empty()) return;
  if (weight.cols == 0) {  // a sum of nothing
    if (accumulate) return;
    check_cuda(
        cudaMemset2DAsync(out.data, static_cast<std::size_t>(std::max(out.stride, out.cols)) * 2, 0,
                          static_cast<std::size_t>(out.cols) * 2,
                          static_cast<std::size_t>(out.rows), impl_->library.stream()),
        "clear the output of a matmul");
    return;
  }
  const int count = parts(weight);
  if (count == 1) {
    impl_->launch(product_of(x, weight, out, 1), x, weight, out, accumulate);
    return;
  }
  check(x.rows == out.rows && out.cols == weight.rows, "matmul: x [", x.rows, ", ", x.cols,
        "], weight [", weight.rows, ", ", weight.cols, "], out [", out.rows, ", ", out.cols,
        "] do not fit");
  const std::int64_t slab = slab_rows(weight);
  for (std::int64_t first = 0; first < x.rows; first += slab) {
    const std::int64_t rows = std::min(slab, x.rows - first);
    sum_parts(run_parts(x.rows_from(first, rows), weight), count, out.rows_from(first, rows),
              accumulate, impl_->library.stream());
  }
}

int Matmul::parts(View weight) const { return impl_->parts({weight.rows, weight.cols}); }

std::int64_t Matmul::slab_rows(View weight) const {
  return impl_->library.slab_rows(weight.rows, parts(weight));
}

View Matmul::run_parts(View x, View weight) {
  const int count = parts(weight);
  check(count > 1, "matmul: weight [", weight.rows, ", ", weight.cols, "] is not cut in parts");
  const View out = impl_->library.parts_view(count, x.rows, weight.rows);
  if (!out.empty()) impl_->launch(product_of(x, weight, out, count), x, weight, out, false);
  return out;
}

void Matmul::tune(const std::vector<View>& weights, std::int64_t rows, const Steps& steps) {
  if (rows <= 0) return;
  std::map<ShapeId, std::vector<View>> all, unknown;
  for (const View& weight : weights) {
    const ShapeId id{weight.rows, weight.cols};
    if (weight.empty()) continue;
    all[id].push_back(weight);
    if (!impl_->measured(id, rows)) unknown[id].push_back(weight);
  }
  if (!unknown.empty()) {
    impl_->measure(unknown, rows, steps);
    impl_->save();
  }
  for (const auto& [id, views] : all) impl_->prepare(views.front());
}

}  // namespace openjev::cuda
