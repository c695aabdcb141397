// The gated delta rule in chunks of 64 tokens. Per value head, with b_i = g_0 + ... + g_i inside
// the chunk and S [dk, dv] the state before it:
//
//   A_ij = beta_i (k_i . k_j) exp(b_i - b_j)   j < i       M = (I + A)^-1
//   P_ij =        (q_i . k_j) exp(b_i - b_j)   j <= i
//   U = M diag(beta) V                                     W = M diag(beta exp(b)) K
//   X = U - W S
//   O = diag(exp(b)) Q S + P X
//   S <- exp(b_63) S + K^T diag(exp(b_63 - b)) X
//
// Operands of the tensor cores are float16: as fast as bfloat16 with an eighth of its rounding
// error. Keys and queries are unit vectors, what is formed from them and the values stays far
// inside its range, and what does not saturates. Accumulators and the state are float32.
//
// (Yang et al., "Gated Delta Networks".) All but X, O and S is independent of other chunks:
// delta_chunks computes it for all chunks at once, delta_scan walks the chunks of every segment. In
// long prompts the scan of the first level runs beside delta_chunks and waits for each chunk's
// flag.
#include <initializer_list>

#include "cuda/kernels/delta_chunks.cuh"
#include "cuda/kernels/delta_scan.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

void check_rows(const char* name, const View& view, DType dtype, std::int64_t cols) {
  check(view.dtype == dtype && view.cols == cols, "delta_rule: ", name, " is ", name_of(view.dtype),
        " with ", view.cols, " columns, expected ", name_of(dtype), " with ", cols);
  check(view.stride % kVector == 0 && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0,
        "delta_rule: rows of ", name, " are not aligned to 16 bytes (stride ", view.stride, ")");
}

void check_args(const DeltaRuleArgs& args, const PlanView& plan) {
  const DeltaShape& s = args.shape;
  check(s.key_dim == kDeltaDim && s.value_dim == kDeltaDim, "delta_rule: key_dim ", s.key_dim,
        " and value_dim ", s.value_dim, ", both have to be ", kDeltaDim);
  check(s.key_heads > 0 && s.value_heads % s.key_heads == 0, "delta_rule: ", s.value_heads,
        " value heads are not a multiple of ", s.key_heads, " key heads");
  check_rows("q", args.q, DType::kF16, s.keys());
  check_rows("k", args.k, DType::kF16, s.keys());
  check_rows("v", args.v, DType::kF16, s.values());
  check_rows("out", args.out, DType::kBF16, s.values());
  for (const View* view : {&args.beta, &args.log_decay}) {
    check(view->dtype == DType::kF32 && view->cols == s.value_heads,
          "delta_rule: beta and log_decay are float32 with ", s.value_heads, " columns");
  }
  const std::size_t needed = delta_scratch_bytes(s, plan);
  const std::size_t given =
      static_cast<std::size_t>(args.scratch.rows * args.scratch.cols) * size_of(args.scratch.dtype);
  check(given >= needed, "delta_rule: scratch of ", given, " bytes, ", needed, " are needed");
}

}  // namespace

std::size_t delta_scratch_bytes(const DeltaShape& shape, const PlanView& plan) {
  return static_cast<std::size_t>(plan.chunks) * static_cast<std::size_t>(shape.value_heads) *
         (ChunkProducts::bytes + sizeof(std::uint32_t));
}

// Beside each other the two kernels win from four rounds of chunks on: 96, 720 and 2592 products
// (27B, 107, 936 and 3399 tokens) took 17.4, 57.6 and 173 us, and 14.8, 55.6 and 199 one after the
// other.
std::uint32_t* ready_flags(const DeltaRuleArgs& args, const PlanView& plan) {
  const std::int64_t items = static_cast<std::int64_t>(plan.chunks) * args.shape.value_heads;
  if (items < 4 * kFollowedBlocksPerSm * multiprocessors()) return nullptr;
  return reinterpret_cast<std::uint32_t*>(args.scratch.row<unsigned char>(0) +
                                          items * ChunkProducts::bytes);
}

void delta_rule(const DeltaRuleArgs& args, const PlanView& plan, cudaStream_t stream) {
  check_args(args, plan);
  delta_chunks(args, plan, stream);
  delta_scan(args, plan, stream);
}

void prepare_delta_rule() {
  prepare_delta_chunks();
  prepare_delta_scan();
}

}  // namespace openjev::cuda
