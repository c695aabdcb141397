#include "cuda/cublaslt.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "cuda/check.h"

namespace openjev::cuda {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(AlgorithmWords));

// The start of the workspace stays the library's when the rest holds the parts of a product: NVIDIA
// recommends 32 MiB on Hopper.
constexpr std::size_t kLibraryBytes = 32u << 20;
constexpr std::int64_t kSlabUnit = 16;       // rows
constexpr std::int64_t kPartUnit = 128 / 2;  // bfloat16 columns of a part: whole 128-byte lines

// `stride` and `offset` in elements.
std::int32_t alignment_of(View view, std::int64_t stride, std::int64_t offset) {
  const auto bits = reinterpret_cast<std::uintptr_t>(view.data) |
                    static_cast<std::uintptr_t>(stride | offset) * size_of(view.dtype);
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

// Parts of K that the library makes itself.
int split_of(const cublasLtMatmulAlgo_t& algorithm) {
  return config_of<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}

std::uint32_t reduction_of(const cublasLtMatmulAlgo_t& algorithm) {
  return config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
}

class Layouts {
 public:
  explicit Layouts(const Product& product) {
    const std::int64_t k = product.k / product.parts;
    const bool whole = product.parts == 1;
    set(&weight_, CUDA_R_16BF, k, product.n, product.k, product);
    set(&x_, CUDA_R_16BF, k, product.rows, product.x_stride, product);
    set(&out_, whole ? CUDA_R_16BF : CUDA_R_32F, product.n, product.rows, product.out_stride,
        product);
    if (whole) return;
    set_batch(&weight_, k, product);
    set_batch(&x_, k, product);
    set_batch(&out_, product.rows * product.out_stride, product);
  }
  cublasLtMatrixLayout_t weight() { return &weight_; }
  cublasLtMatrixLayout_t x() { return &x_; }
  cublasLtMatrixLayout_t out() { return &out_; }

 private:
  static void set(cublasLtMatrixLayout_t layout, cudaDataType type, std::int64_t rows,
                  std::int64_t cols, std::int64_t leading, const Product& product) {
    require(cublasLtMatrixLayoutInit(layout, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(cols), leading),
            product);
  }
  static void set_batch(cublasLtMatrixLayout_t layout, std::int64_t offset,
                        const Product& product) {
    const std::int32_t count = product.parts;
    require(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                             sizeof count),
            product);
    require(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &offset, sizeof offset),
            product);
  }
  static void require(cublasStatus_t status, const Product& product) {
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
  if (parts > 1) out << " in " << parts << " parts of float32";
  return out.str();
}

Product product_of(View x, View weight, View out, int parts) {
  const DType out_type = parts == 1 ? DType::kBF16 : DType::kF32;
  check(x.dtype == DType::kBF16 && weight.dtype == DType::kBF16 && out.dtype == out_type,
        "matmul: x is ", name_of(x.dtype), ", weight ", name_of(weight.dtype), ", out ",
        name_of(out.dtype), "; they have to be BF16, BF16 and ", name_of(out_type));
  check(x.rows * parts == out.rows && x.cols == weight.cols && out.cols == weight.rows,
        "matmul: x [", x.rows, ", ", x.cols, "], weight [", weight.rows, ", ", weight.cols,
        "], out [", out.rows, ", ", out.cols, "] in ", parts, " parts do not fit");
  check(weight.rows <= 1 || weight.stride == weight.cols, "matmul: weight of ", weight.cols,
        " columns has stride ", weight.stride, "; it has to be contiguous");
  const std::int64_t x_stride = stride_of(x), out_stride = stride_of(out);
  check(x_stride >= x.cols && out_stride >= out.cols, "matmul: strides ", x.stride, " and ",
        out.stride, " of ", x.cols, " and ", out.cols, " columns: rows overlap");
  const std::int64_t part = parts == 1 ? 0 : weight.cols / parts;
  const std::int64_t out_part = parts == 1 ? 0 : x.rows * out_stride;
  return {weight.rows,
          weight.cols,
          x.rows,
          x_stride,
          out_stride,
          parts,
          {alignment_of(weight, weight.cols, part), alignment_of(x, x_stride, part),
           alignment_of(out, out_stride, out_part)}};
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

std::int64_t CublasLt::slab_rows(std::int64_t n, int parts) const {
  if (parts <= 1) return INT64_MAX;
  const std::size_t room = workspace_.bytes() - std::min(workspace_.bytes(), kLibraryBytes);
  const std::int64_t row_bytes = n * parts * static_cast<std::int64_t>(sizeof(float));
  return static_cast<std::int64_t>(room) / row_bytes / kSlabUnit * kSlabUnit;
}

bool CublasLt::can_split(std::int64_t n, std::int64_t k, int parts) const {
  return parts == 1 ||
         (parts > 1 && n > 0 && k > 0 && k % (parts * kPartUnit) == 0 && slab_rows(n, parts) > 0);
}

View CublasLt::parts_view(int parts, std::int64_t rows, std::int64_t n) const {
  check(rows <= slab_rows(n, parts), "matmul: ", parts, " parts of ", rows, " x ", n,
        " do not fit in a workspace of ", workspace_.bytes(), " bytes");
  return View::contiguous(workspace_.as<std::byte>() + kLibraryBytes, DType::kF32, parts * rows, n);
}

std::size_t CublasLt::scratch_bytes(const Product& product) const {
  return product.parts == 1 ? workspace_.bytes() : kLibraryBytes;
}

std::vector<cublasLtMatmulAlgo_t> CublasLt::heuristics(const Product& product,
                                                       std::uint32_t reduction_mask,
                                                       int count) const {
  cublasLtMatmulPreferenceOpaque_t preference{};
  check_cublas(cublasLtMatmulPreferenceInit(&preference), "make a preference");
  const auto alignment = [](std::int32_t bytes) { return static_cast<std::uint32_t>(bytes); };
  prefer(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
         static_cast<std::uint64_t>(scratch_bytes(product)));
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
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= scratch_bytes(product))
      algorithms.push_back(result.algo);
  }
  return algorithms;
}

std::vector<cublasLtMatmulAlgo_t> CublasLt::sequential(const Product& product, int count) const {
  std::vector<cublasLtMatmulAlgo_t> found =
      heuristics(product, CUBLASLT_REDUCTION_SCHEME_NONE, count);
  std::erase_if(found, [](const cublasLtMatmulAlgo_t& algorithm) {
    return split_of(algorithm) != 1 || reduction_of(algorithm) != CUBLASLT_REDUCTION_SCHEME_NONE;
  });
  return found;
}

bool CublasLt::usable(const Product& product, const cublasLtMatmulAlgo_t& algorithm) const {
  Layouts layouts(product);
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_.get(), &operation_, layouts.weight(), layouts.x(),
                                 layouts.out(), layouts.out(), &algorithm,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= scratch_bytes(product);
}

cublasStatus_t CublasLt::launch(const Product& product, const cublasLtMatmulAlgo_t& algorithm,
                                const void* x, const void* weight, void* out,
                                bool accumulate) const {
  Layouts layouts(product);
  const float alpha = 1.0f, beta = accumulate ? 1.0f : 0.0f;
  return cublasLtMatmul(handle_.get(), &operation_, &alpha, weight, layouts.weight(), x,
                        layouts.x(), &beta, out, layouts.out(), out, layouts.out(), &algorithm,
                        workspace_.data(), scratch_bytes(product), stream_);
}

}  // namespace openjev::cuda
