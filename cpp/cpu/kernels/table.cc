// Fills the kernel table of the instruction set this file is compiled for.
#include "cpu/kernels/table.h"

#include "cpu/kernels/tile.h"

namespace openjev::cpu::OPENJEV_ISA {

void gemm(const GemmTask&, std::int64_t, std::int64_t, float*);
void rms_norm(const float*, const float*, float, std::int64_t, float*);
void add(float*, const float*, std::int64_t);
void gated_rms_norm(const float*, const float*, const float*, float, std::int64_t, float*);
void silu_mul(const float*, const float*, std::int64_t, float*);
void sigmoid_row(const float*, std::int64_t, float*);
void log_decay(const float*, const float*, const float*, std::int64_t, float*);
void conv_silu(const ConvTask&);
void l2_norm(const float*, float, std::int64_t, float*);
void rotate(const float*, const float*, const float*, int, int, float*);
float dot(const float*, const float*, std::int64_t);
void delta_chunk(const DeltaChunk&, float*);
std::int64_t delta_scratch(int, int);
void attention_begin(const AttentionTile&, float*);
void attention_block(const AttentionTile&, const float*, const float*, int, float*);
void attention_end(const AttentionTile&, float*);
std::int64_t attention_scratch(int);

#define OJ_STRING(x) #x
#define OJ_NAME(x) OJ_STRING(x)

extern const KernelTable kTable;
const KernelTable kTable{
    .name = OJ_NAME(OPENJEV_ISA),
    .panel = kTileCols,
    .gemm = gemm,
    .gemm_scratch = std::int64_t{kDepthBlock} * kTileCols,
    .rms_norm = rms_norm,
    .add = add,
    .gated_rms_norm = gated_rms_norm,
    .silu_mul = silu_mul,
    .sigmoid = sigmoid_row,
    .log_decay = log_decay,
    .conv_silu = conv_silu,
    .l2_norm = l2_norm,
    .rotate = rotate,
    .dot = dot,
    .delta_chunk = delta_chunk,
    .delta_scratch = delta_scratch,
    .attention_begin = attention_begin,
    .attention_block = attention_block,
    .attention_end = attention_end,
    .attention_scratch = attention_scratch,
};

}  // namespace openjev::cpu::OPENJEV_ISA
