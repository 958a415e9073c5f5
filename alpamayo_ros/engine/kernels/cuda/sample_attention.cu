// Attention of many trajectories to the prefix that they share, or to one each, and to their own tokens: a program for each
// trajectory and KV head, with its two query heads. One thread loads keys and values ahead, two warp groups multiply.
#include "paged_attention.cuh"

// HEADS and KV_HEADS are given at compilation.
static_assert(HEADS == 2 * KV_HEADS);
constexpr int USERS = 256, THREADS = USERS + 128;  // of the third group, one thread loads
constexpr int STAGES = 10;
using Keys = Ring<STAGES, STAGES, STAGE, USERS / 32>;
constexpr int MATRICES = 8;  // queries of two heads, own keys, own values: each in two halves of the dimensions
constexpr int SHARED = 1024 + MATRICES * HALF_STAGE + Keys::SIZE + Keys::BARRIER_BYTES;
static_assert(SHARED <= 227 * 1024);

struct Maps {
  Map keys, values;  // of the cache: see load_stage
};

// query, mixed [T, HEADS, 128]; own keys and values [T, KV_HEADS, 128]: 64 tokens of each trajectory. tables: a row of
// `table_row` blocks, and lengths one number, for `samples` trajectories. scale: of scores, to base 2. Grid: KV heads,
// trajectories.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sample_attention(const Maps* maps, const bf16* query, const bf16* own_keys, const bf16* own_values, bf16* mixed,
                     const int* tables, const int* lengths, long long table_row, long long samples, float scale) {
  extern __shared__ unsigned char memory[];
  u32 base = (shared_address(memory) + 1023) & ~1023u;
  u32 after = base + MATRICES * HALF_STAGE;
  Keys ring(after, after + Keys::SIZE);
  if (threadIdx.x == 0) {
    ring.init();
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  int head = blockIdx.x, trajectory = blockIdx.y, row = trajectory / static_cast<int>(samples);
  int thread = threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0);
  Part part = Part::of(lengths[row], 0, 1);
  long long first = static_cast<long long>(trajectory) * TOKENS;
  if (warp >= USERS / 32) {  // the prefix is there before what the kernel before writes
    give_registers();
    if (thread == USERS) load_part(ring, maps->keys, maps->values, head, tables + row * table_row, part, kept());
    return;
  }
  take_registers();
  wait_for_kernel_before();
#pragma unroll
  for (int each = 0; each < MATRICES; ++each) {
    int half = each % 2 * 64;
    const bf16* from = each < 4   ? query + (first * HEADS + 2 * head + each / 2) * DIM + half
                       : each < 6 ? own_keys + (first * KV_HEADS + head) * DIM + half
                                  : own_values + (first * KV_HEADS + head) * DIM + half;
    copy_matrix<USERS>(base + each * HALF_STAGE, from, (each < 4 ? HEADS : KV_HEADS) * DIM);
  }
  writes_seen();
  asm volatile("bar.sync 1, %0;" ::"n"(USERS) : "memory");

  int group = warp / 4;
  Attention attention(base + group * 2 * HALF_STAGE, base + (group * 2 + 1) * HALF_STAGE, warp % 4, scale);
  attention.take(ring, part, group);
  attention.take(base + 4 * HALF_STAGE, base + 5 * HALF_STAGE, base + 6 * HALF_STAGE, base + 7 * HALF_STAGE);

  float upper = 1.f / attention.upper.sum(), lower = 1.f / attention.lower.sum();
  bf16* to = mixed + ((first + warp % 4 * 16 + lane() / 4) * HEADS + 2 * head + group) * DIM + lane() % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      bool above = i % 4 < 2;
      float share = above ? upper : lower;
      store(to + (above ? 0 : 8 * HEADS * DIM) + half * 64 + i / 4 * 8,
            rounded(attention.mixed[half].v[i] * share, attention.mixed[half].v[i + 1] * share));
    }
}
