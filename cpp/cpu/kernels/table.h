// The kernels of one instruction set, by pointer. Arguments are plain pointers and strides (in
// floats), so that a file compiled for AVX-512 shares no inline function with the rest of the
// library. Who calls: cpp/cpu/ops.cc.
#pragma once

#include <cstdint>

namespace openjev::cpu {

inline constexpr int kDepthBlock =
    256;  // k values of a matrix product between two additions to the output
inline constexpr int kMaxPanel = 32;

struct Rows {
  float* data = nullptr;
  std::int64_t stride = 0;
};
struct ConstRows {
  const float* data = nullptr;
  std::int64_t stride = 0;
};

// out[M, N] = x[M, K] W[N, K]^T with W packed in panels of `panel` columns: packed[N /
// panel][K][panel], zero-padded.
struct GemmTask {
  ConstRows x;
  const void* packed;
  bool bf16;
  std::int64_t m, n, k;  // n counts from first_panel's first column
  std::int64_t first_panel;
  Rows out;
};

struct ConvTask {        // one row of delta_inputs
  const float* taps[4];  // `mixed` of the row's third, second, first ancestor and of the row itself
  const float* conv;     // [4][channels]
  std::int64_t channels;
  float* out;  // [channels] silu(conv)
};

struct DeltaChunk {
  int length;  // rows of the chunk
  int owned;   // first row to write
  int dk, dv;
  const float* const*
      q;  // [kChunk] row pointers of this key head; rows from `length` on are not read
  const float* const* k;
  const float* const* v;  // of this value head
  const float* beta;      // [kChunk]
  const float* log_decay;
  float* const* out;
  float* state;  // [dk][dv], updated when length == kChunk
};

struct AttentionTile {
  int count;  // queries, <= kChunk
  int head_dim;
  const float* const* q;  // [count] row pointers of this head
  const float* const* gate;
  float* const* out;
  float scale;
};

struct KernelTable {
  const char* name;
  int panel;  // columns of a packed panel

  void (*gemm)(const GemmTask&, std::int64_t panel_begin, std::int64_t panel_end, float* scratch);
  std::int64_t gemm_scratch;  // floats

  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t cols, float* out);
  void (*add)(float* residual, const float* update, std::int64_t cols);
  void (*gated_rms_norm)(const float* x, const float* z, const float* weight, float eps,
                         std::int64_t cols, float* out);
  void (*silu_mul)(const float* gate, const float* up, std::int64_t cols, float* out);
  void (*sigmoid)(const float* x, std::int64_t cols, float* out);
  // out = log decay = -exp(a_log) * softplus(x + dt_bias)
  void (*log_decay)(const float* x, const float* a_log, const float* dt_bias, std::int64_t cols,
                    float* out);
  void (*conv_silu)(const ConvTask&);
  void (*l2_norm)(const float* x, float scale, std::int64_t cols, float* out);
  // out[0..rotary) = rotation of x by cos, sin [rotary / 2] (half-split pairs); the rest is copied
  void (*rotate)(const float* x, const float* cos, const float* sin, int rotary, int head_dim,
                 float* out);
  float (*dot)(const float* a, const float* b, std::int64_t cols);

  void (*delta_chunk)(const DeltaChunk&, float* scratch);
  std::int64_t (*delta_scratch)(int dk, int dv);  // floats

  // Online softmax over key chunks: begin, then block for each key chunk from the root on, then
  // end. keys: [head_dim][kChunk] transposed and zero-padded; values: [kChunk][head_dim]
  // zero-padded. A query at row i of the tile sees keys j <= first_visible + i of the block.
  void (*attention_begin)(const AttentionTile&, float* scratch);
  void (*attention_block)(const AttentionTile&, const float* keys, const float* values,
                          int first_visible, float* scratch);
  void (*attention_end)(const AttentionTile&, float* scratch);
  std::int64_t (*attention_scratch)(int head_dim);  // floats
};

namespace generic {
extern const KernelTable kTable;
}
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}

// The table of an instruction set by name, or the best this processor has for "". Throws
// kBadRequest for an unknown name, kDeviceUnavailable for one the processor lacks.
const KernelTable& select_kernels(const char* isa);

}  // namespace openjev::cpu
