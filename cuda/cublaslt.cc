#include "cuda/cublaslt.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "cuda/check.h"

namespace openjev::cuda {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(AlgorithmWords));

// How many algorithms without a split are tried with one: the best tiles are among the first.
constexpr int kSplitSources = 12;

std::int32_t alignment_of(const void* data, std::int64_t stride) {
  const auto bits =
      reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(stride) * 2;
  std::int32_t bytes = 2;
  while (bytes < 16 && bits % (static_cast<std::uintptr_t>(bytes) * 2) == 0) bytes *= 2;
  return bytes;
}

// The stride of a single row has no meaning and may be anything; the library wants at least cols.
std::int64_t stride_of(View view) {
  return view.rows == 1 ? std::max(view.stride, view.cols) : view.stride;
}

template <class T>
T config_of(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  check_cublas(
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written),
      "read an algorithm's configuration");
  return value;
}

template <class T>
bool configure(cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
               T value) {
  return cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof value) ==
         CUBLAS_STATUS_SUCCESS;
}

std::uint32_t reduction_of(const cublasLtMatmulAlgo_t& algorithm) {
  return config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
}

class Layouts {
 public:
  explicit Layouts(const Product& product) {
    const auto n = static_cast<std::uint64_t>(product.n), k = static_cast<std::uint64_t>(product.k),
               rows = static_cast<std::uint64_t>(product.rows);
    set(&weight_, k, n, product.k, product);
    set(&x_, k, rows, product.x_stride, product);
    set(&out_, n, rows, product.out_stride, product);
  }
  cublasLtMatrixLayout_t weight() { return &weight_; }
  cublasLtMatrixLayout_t x() { return &x_; }
  cublasLtMatrixLayout_t out() { return &out_; }

 private:
  static void set(cublasLtMatrixLayout_t layout, std::uint64_t rows, std::uint64_t cols,
                  std::int64_t leading, const Product& product) {
    const cublasStatus_t status =
        cublasLtMatrixLayoutInit(layout, CUDA_R_16BF, rows, cols, leading);
    if (status != CUBLAS_STATUS_SUCCESS)
      check_cublas(status, "describe a matrix of " + product.text());
  }
  cublasLtMatrixLayoutOpaque_t weight_{}, x_{}, out_{};
};

template <class T>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
            T value) {
  check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
               "set a preference");
}

}  // namespace

std::string Product::text() const {
  std::ostringstream out;
  out << "out [" << rows << ", " << n << "] = x [" << rows << ", " << k << "] weight^T [" << k
      << ", " << n << "] (strides " << x_stride << " and " << out_stride << ", bytes of alignment "
      << alignment.x << ", " << alignment.weight << " and " << alignment.out << ")";
  return out.str();
}

Product product_of(View x, View weight, View out) {
  check(x.dtype == DType::kBF16 && weight.dtype == DType::kBF16 && out.dtype == DType::kBF16,
        "matmul: x is ", name_of(x.dtype), ", weight ", name_of(weight.dtype), ", out ",
        name_of(out.dtype), "; all have to be BF16");
  check(x.rows == out.rows && x.cols == weight.cols && out.cols == weight.rows, "matmul: x [",
        x.rows, ", ", x.cols, "], weight [", weight.rows, ", ", weight.cols, "], out [", out.rows,
        ", ", out.cols, "] do not fit");
  check(weight.rows <= 1 || weight.stride == weight.cols, "matmul: weight of ", weight.cols,
        " columns has stride ", weight.stride, "; it has to be contiguous");
  const std::int64_t x_stride = stride_of(x), out_stride = stride_of(out);
  check(x_stride >= x.cols && out_stride >= out.cols, "matmul: strides ", x.stride, " and ",
        out.stride, " of ", x.cols, " and ", out.cols, " columns: rows overlap");
  return {weight.rows,
          weight.cols,
          x.rows,
          x_stride,
          out_stride,
          {alignment_of(weight.data, weight.cols), alignment_of(x.data, x_stride),
           alignment_of(out.data, out_stride)}};
}

AlgorithmWords words_of(const cublasLtMatmulAlgo_t& algorithm) {
  AlgorithmWords words;
  std::memcpy(words.data(), &algorithm, sizeof words);
  return words;
}

cublasLtMatmulAlgo_t algorithm_of(const AlgorithmWords& words) {
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, words.data(), sizeof algorithm);
  return algorithm;
}

int split_of(const cublasLtMatmulAlgo_t& algorithm) {
  return config_of<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}

std::string describe(const cublasLtMatmulAlgo_t& algorithm) {
  std::ostringstream out;
  out << "id " << config_of<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID) << " tile "
      << config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID) << " stages "
      << config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID) << " cluster "
      << config_of<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID) << " swizzle "
      << config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING) << " custom "
      << config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION) << " split "
      << split_of(algorithm) << " reduction " << reduction_of(algorithm);
  return out.str();
}

void check_cublas(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  ErrorKind kind = ErrorKind::kInternal;
  if (status == CUBLAS_STATUS_ALLOC_FAILED) kind = ErrorKind::kOutOfMemory;
  if (status == CUBLAS_STATUS_NOT_INITIALIZED || status == CUBLAS_STATUS_ARCH_MISMATCH ||
      status == CUBLAS_STATUS_EXECUTION_FAILED)
    kind = ErrorKind::kDeviceUnavailable;
  fail(kind, "cublasLt: ", what, ": ", cublasLtGetStatusName(status));
}

CublasLt::CublasLt(std::size_t workspace_bytes, cudaStream_t stream)
    : stream_(stream), workspace_(allocate_device(workspace_bytes)) {
  cublasLtHandle_t handle = nullptr;
  check_cublas(cublasLtCreate(&handle), "create a handle");
  handle_ = Handle<cublasLtHandle_t, cublasLtDestroy>(handle);
  check_cublas(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describe the operation");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_cublas(cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                              sizeof transposed),
               "describe the operation");
}

std::vector<cublasLtMatmulAlgo_t> CublasLt::heuristics(const Product& product,
                                                       std::uint32_t reduction_mask,
                                                       int count) const {
  cublasLtMatmulPreferenceOpaque_t preference{};
  check_cublas(cublasLtMatmulPreferenceInit(&preference), "make a preference");
  const auto alignment = [](std::int32_t bytes) { return static_cast<std::uint32_t>(bytes); };
  prefer(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
         static_cast<std::uint64_t>(workspace_.bytes()));
  prefer(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction_mask);
  prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
         alignment(product.alignment.weight));
  prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(product.alignment.x));
  prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(product.alignment.out));
  prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(product.alignment.out));

  Layouts layouts(product);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(count));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), &operation_, layouts.weight(), layouts.x(), layouts.out(), layouts.out(),
      &preference, count, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check_cublas(status, "find algorithms for " + product.text());
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_.bytes())
      algorithms.push_back(result.algo);
  }
  return algorithms;
}

std::vector<cublasLtMatmulAlgo_t> CublasLt::of_split(const Product& product, int split,
                                                     int count) const {
  std::vector<cublasLtMatmulAlgo_t> whole =
      heuristics(product, CUBLASLT_REDUCTION_SCHEME_NONE, count);
  std::erase_if(whole, [](const cublasLtMatmulAlgo_t& algorithm) {
    return split_of(algorithm) != 1 || reduction_of(algorithm) != CUBLASLT_REDUCTION_SCHEME_NONE;
  });
  if (split == 1) return whole;

  constexpr auto kParts = static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  std::vector<cublasLtMatmulAlgo_t> found = heuristics(product, kParts, count);
  std::erase_if(found, [split](const cublasLtMatmulAlgo_t& algorithm) {
    return split_of(algorithm) != split || reduction_of(algorithm) != kParts;
  });
  if (whole.size() > kSplitSources) whole.resize(kSplitSources);
  for (cublasLtMatmulAlgo_t algorithm : whole) {
    if (!configure(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, std::int32_t{split}) ||
        !configure(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, kParts))
      continue;
    const bool known = std::any_of(found.begin(), found.end(), [&](const auto& other) {
      return words_of(other) == words_of(algorithm);
    });
    if (!known && usable(product, algorithm)) found.push_back(algorithm);
  }
  return found;
}

bool CublasLt::usable(const Product& product, const cublasLtMatmulAlgo_t& algorithm) const {
  Layouts layouts(product);
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_.get(), &operation_, layouts.weight(), layouts.x(),
                                 layouts.out(), layouts.out(), &algorithm,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_.bytes();
}

cublasStatus_t CublasLt::launch(const Product& product, const cublasLtMatmulAlgo_t& algorithm,
                                const void* x, const void* weight, void* out,
                                bool accumulate) const {
  Layouts layouts(product);
  const float alpha = 1.0f, beta = accumulate ? 1.0f : 0.0f;
  return cublasLtMatmul(handle_.get(), &operation_, &alpha, weight, layouts.weight(), x,
                        layouts.x(), &beta, out, layouts.out(), out, layouts.out(), &algorithm,
                        workspace_.data(), workspace_.bytes(), stream_);
}

}  // namespace openjev::cuda
