// Attention of many trajectories to the prefix that they share, or to one each, and to their own tokens: a program for each
// trajectory and KV head, with its two query heads. Two warps load keys and values ahead, eight multiply.
#include "paged_attention.cuh"

// HEADS, KV_HEADS and BLOCK (tokens in a block of the cache) are given at compilation.
static_assert(HEADS == 2 * KV_HEADS);
constexpr int USERS = 256, LOADERS = 64, THREADS = USERS + LOADERS;
constexpr int STAGES = 11;
using Keys = Ring<STAGES, STAGE, LOADERS, USERS / 32>;
constexpr int QUERIES = 4 * HALF_STAGE;  // two heads of 64 tokens, in bytes
constexpr int SHARED = 1024 + QUERIES + Keys::SIZE + Keys::BARRIER_BYTES;
static_assert(SHARED <= 227 * 1024);

__device__ __forceinline__ void copy_queries(u32 to, const bf16* query) {
  for (int each = threadIdx.x; each < QUERIES / PIECE; each += THREADS) {
    int piece = each % 8, row = each / 8 % TOKENS, matrix = each / 8 / TOKENS;
    copy_piece(to + matrix * HALF_STAGE + place(row, piece),
               query + row * HEADS * DIM + matrix / 2 * DIM + matrix % 2 * 64 + piece * 8);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// query, mixed [T, HEADS, 128]; own keys and values [T, KV_HEADS, 128]: 64 tokens of each trajectory. tables: a row of
// `table_row` blocks, and lengths one number, for `samples` trajectories. Then the strides of keys and values. scale: of
// scores, to base 2. Grid: KV heads, trajectories.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sample_attention(const bf16* query, const bf16* own_keys, const bf16* own_values, const bf16* keys, const bf16* values,
                     bf16* mixed, const int* tables, const int* lengths, long long table_row, long long samples,
                     long long key_block, long long key_place, long long key_head, long long value_block,
                     long long value_place, long long value_head, float scale) {
  extern __shared__ unsigned char memory[];
  u32 base = (shared_address(memory) + 1023) & ~1023u;
  Keys ring(base + QUERIES, base + QUERIES + Keys::SIZE);
  if (threadIdx.x == 0) {
    ring.init();
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  int head = blockIdx.x, trajectory = blockIdx.y, row = trajectory / static_cast<int>(samples);
  long long first = static_cast<long long>(trajectory) * TOKENS;
  wait_for_kernel_before();
  copy_queries(base, query + (first * HEADS + 2 * head) * DIM);
  __syncthreads();

  int thread = threadIdx.x;
  Part part = Part::of(lengths[row], 0, 1);
  if (thread >= USERS) {
    Pages key_pages{keys + head * key_head, {key_block, key_place, key_head},
                    own_keys + (first * KV_HEADS + head) * DIM, KV_HEADS * DIM};
    Pages value_pages{values + head * value_head, {value_block, value_place, value_head},
                      own_values + (first * KV_HEADS + head) * DIM, KV_HEADS * DIM};
    const int* table = tables + row * table_row;
    Blocks blocks, next = Blocks::find<BLOCK>(table, part, 0);
    for (int stage = 0; stage < part.stages(); ++stage) {
      blocks = next;
      next = Blocks::find<BLOCK>(table, part, stage + 1);
      load_keys<BLOCK>(ring, key_pages, blocks, part, stage, thread - USERS);
      load_keys<BLOCK>(ring, value_pages, blocks, part, stage, thread - USERS);
    }
    return;
  }
  int group = thread / 128;
  u32 queries[2] = {base + group * 2 * HALF_STAGE, base + (group * 2 + 1) * HALF_STAGE};
  Attention attention;
  attend(attention, ring, queries, part, scale);
  float upper = 1.f / attention.upper.sum(), lower = 1.f / attention.lower.sum();
  bf16* to = mixed + ((first + thread % 128 / 32 * 16 + lane() / 4) * HEADS + 2 * head + group) * DIM + lane() % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      bool above = i % 4 < 2;
      float share = above ? upper : lower;
      *reinterpret_cast<u32*>(to + (above ? 0 : 8 * HEADS * DIM) + half * 64 + i / 4 * 8) =
          rounded(attention.mixed[half].v[i] * share, attention.mixed[half].v[i + 1] * share);
    }
}
