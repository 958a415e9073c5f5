// Attention of many trajectories to the prefix that they share, or to one each, and to their own tokens: a program for each
// trajectory and KV head, with its two query heads. One warp loads keys and values ahead, in stages of 128; two warp groups
// multiply, each for one head, and mix the values of one stage while the tensor cores compute the scores of the next.
#include "hopper.cuh"

// Given at compilation, by sample_attention.py: HEADS, KV_HEADS, BLOCK (tokens in a block of the cache), TOKENS (of a
// trajectory), DIM, UNIT (keys that are copied at once: they lie in one block) and THREADS.
static_assert(HEADS == 2 * KV_HEADS && TOKENS == 64 && DIM == 128 && BLOCK % UNIT == 0);
constexpr int KEYS = 128;  // in a stage

constexpr int HALF = KEYS * LINE;  // bytes of a stage's keys or values in half of the dimensions
constexpr int OWN_HALF = TOKENS * LINE;
constexpr int MATRICES = 8;  // queries of two heads, own keys, own values: each in two halves of the dimensions
constexpr int USERS = 256;
static_assert(THREADS == USERS + 128);  // of the third group, one warp loads
using Stages = Ring<5, 2 * HALF, USERS / 32>;
constexpr int SHARED = 1024 + MATRICES * OWN_HALF + Stages::SIZE + Stages::BARRIER_BYTES;
static_assert(SHARED <= 227 * 1024);
extern "C" __device__ u32 shared_bytes = SHARED;

// --- keys and values, by one warp, of which a lane copies a unit

__device__ __forceinline__ void load_stage(Stages& stages, const Map& map, int head, int first, int block, int units) {
  stages.wait_empty(units * 2 * UNIT * LINE);
  if (lane() < units) {
    int place = (first + lane()) * UNIT % BLOCK;
    for (int half = 0; half < 2; ++half)
      copy_box(stages.at() + half * HALF + lane() * UNIT * LINE, stages.barrier(), map, half * 64, head, place, block);
  }
  stages.advance();
}

// In the order in which they are used: keys are a stage ahead of values.
__device__ __forceinline__ void load_all(Stages stages, const Map& keys, const Map& values, int head, const int* table,
                                         int length) {
  constexpr int UNITS = KEYS / UNIT;
  int units = (length + UNIT - 1) / UNIT, count = (units + UNITS - 1) / UNITS;
  int blocks[2];  // of this lane's unit, in the stage and the one before
  for (int stage = 0; stage <= count; ++stage) {
    int first = stage * UNITS;
    blocks[1] = blocks[0];
    if (first + lane() < units && lane() < UNITS) blocks[0] = table[(first + lane()) * UNIT / BLOCK];
    if (stage < count) load_stage(stages, keys, head, first, blocks[0], min(units - first, UNITS));
    if (stage > 0) load_stage(stages, values, head, first - UNITS, blocks[1], min(units - first + UNITS, UNITS));
  }
}

// --- 64 queries of one head, by a warp group

// What a thread has of a row: its highest score in base 2, and the sum of the shares.
struct Softmax {
  float highest = LOWEST, total = 0.f;
  __device__ __forceinline__ float raise_to(float score) {  // of this thread; gives what everything before counts less
    score = fmaxf(score, __shfl_xor_sync(~0u, score, 1));
    score = fmaxf(score, __shfl_xor_sync(~0u, score, 2));
    float higher = fmaxf(highest, score);
    float fade = power_of_two(highest - higher);
    highest = higher;
    total *= fade;
    return fade;
  }
  __device__ __forceinline__ float sum() const {  // over the row's four threads
    float all = total + __shfl_xor_sync(~0u, total, 1);
    return all + __shfl_xor_sync(~0u, all, 2);
  }
};

// How much each of a stage's keys counts, as `add_mixed` reads them.
struct Shares {
  u32 of[KEYS / 16][4];
  __device__ __forceinline__ void round(const Sum& shares) {
#pragma unroll
    for (int i = 0; i < 64; i += 2) of[i / 8][i % 8 / 2] = rounded(shares.v[i], shares.v[i + 1]);
  }
};

struct Fades {
  float upper, lower;
};

struct Attention {
  u32 query;  // in shared memory, in halves of the dimensions
  float scale;  // of scores, to base 2
  int group;
  Sum mixed;
  Softmax upper, lower;  // of the thread's two rows
  Shares shares;

  __device__ Attention(u32 query, float scale, int group) : query(query), scale(scale), group(group) {}

  // All tokens of the cache.
  __device__ __forceinline__ void take(Stages& stages, int length) {
    int count = (length + KEYS - 1) / KEYS;
    {
      Sum scores;
      stages.wait_full();
      send_scores(scores, stages.at(), HALF);
      products_wait<0>();
      scores.keep();
      stages.used();
      fade(weigh(scores, length));
      shares.round(scores);
    }
    for (int stage = 1; stage < count; ++stage) {
      Sum scores;
      Stages values = stages;
      values.advance();
      stages.wait_full();
      values.wait_full();
      send_scores(scores, stages.at(), HALF);
      send_mix<KEYS>(values.at(), HALF);
      products_wait<1>();
      scores.keep();
      stages.used();
      Fades fades = weigh(scores, length - stage * KEYS);
      products_wait<0>();
      mixed.keep();
      stages.used();
      shares.round(scores);
      fade(fades);
    }
    stages.wait_full();
    int seen = length - (count - 1) * KEYS;
    if (seen < KEYS) clear_behind(stages.at(), seen);
    send_mix<KEYS>(stages.at(), HALF);
    products_wait<0>();
    mixed.keep();
    stages.used();
  }

  // The trajectory's own tokens. (Behind their keys others are read, and don't count.)
  __device__ __forceinline__ void take_own(u32 keys, u32 values) {
    Sum scores;
    send_scores(scores, keys, OWN_HALF);
    products_wait<0>();
    scores.keep();
    fade(weigh(scores, TOKENS));
    shares.round(scores);
    send_mix<TOKENS>(values, OWN_HALF);
    products_wait<0>();
    mixed.keep();
  }

 private:
  __device__ __forceinline__ void send_scores(Sum& scores, u32 keys, u32 half) {
    scores.keep();
    products_begin();
#pragma unroll
    for (int step = 0; step < 8; ++step)
      add_product(scores, matrix_at(query + step / 4 * OWN_HALF) + 2 * (step % 4),
                  matrix_at(keys + step / 4 * half) + 2 * (step % 4));
    products_sent();
  }

  template <int COUNT>
  __device__ __forceinline__ void send_mix(u32 values, u32 half) {
    mixed.keep();
    products_begin();
#pragma unroll
    for (int step = 0; step < COUNT / 16; ++step)
      add_mixed(mixed, shares.of[step], matrix_at(values + step * 16 * LINE, half));
    products_sent();
  }

  // Scores of keys, of which `seen` count, to shares; gives what everything before counts less.
  __device__ __forceinline__ Fades weigh(Sum& scores, int seen) {
    if (seen < KEYS) {
#pragma unroll
      for (int i = 0; i < 64; ++i)
        if (i / 4 * 8 + lane() % 4 * 2 + i % 2 >= seen) scores.v[i] = LOWEST;
    }
    float most_upper = LOWEST, most_lower = LOWEST;
#pragma unroll
    for (int i = 0; i < 64; ++i)
      (i % 4 < 2 ? most_upper : most_lower) = fmaxf(i % 4 < 2 ? most_upper : most_lower, scores.v[i]);
    Fades fades{upper.raise_to(most_upper * scale), lower.raise_to(most_lower * scale)};
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      Softmax& row = i % 4 < 2 ? upper : lower;
      scores.v[i] = power_of_two(fmaf(scores.v[i], scale, -row.highest));
      row.total += scores.v[i];
    }
    return fades;
  }

  __device__ __forceinline__ void fade(Fades fades) {
#pragma unroll
    for (int i = 0; i < 64; ++i) mixed.v[i] *= i % 4 < 2 ? fades.upper : fades.lower;
  }

  __device__ __forceinline__ void clear_behind(u32 values, int seen) {
    clear_rows<128>(values, HALF, seen, KEYS, threadIdx.x % 128);
    writes_seen();
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
  }
};

// Two warp groups: queries and own tokens to shared memory, then both heads.
__device__ __forceinline__ void multiply_all(Stages stages, u32 base, const bf16* query, const bf16* own_keys,
                                             const bf16* own_values, bf16* mixed, int warp, int length, float scale) {
  wait_for_kernel_before();
#pragma unroll
  for (int each = 0; each < MATRICES; ++each) {
    const bf16* from = each < 4 ? query + each / 2 * DIM : each < 6 ? own_keys : own_values;
    copy_matrix<USERS>(base + each * OWN_HALF, from + each % 2 * 64, (each < 4 ? HEADS : KV_HEADS) * DIM);
  }
  writes_seen();
  asm volatile("bar.sync 1, %0;" ::"n"(USERS) : "memory");

  int group = warp / 4;
  Attention attention(base + group * 2 * OWN_HALF, scale, group);
  attention.take(stages, length);
  attention.take_own(base + 4 * OWN_HALF, base + 6 * OWN_HALF);

  float upper = 1.f / attention.upper.sum(), lower = 1.f / attention.lower.sum();
  bf16* to = mixed + ((warp % 4 * 16 + lane() / 4) * HEADS + group) * DIM + lane() % 4 * 2;
#pragma unroll
  for (int i = 0; i < 64; i += 2) {
    bool above = i % 4 < 2;
    float share = above ? upper : lower;
    *reinterpret_cast<u32*>(to + (above ? 0 : 8 * HEADS * DIM) + i / 4 * 8) =
        rounded(attention.mixed.v[i] * share, attention.mixed.v[i + 1] * share);
  }
}

// query, mixed [T, HEADS, 128]; own keys and values [T, KV_HEADS, 128]: 64 tokens of each trajectory. tables: a row of
// `table_row` blocks, and lengths one number, for `samples` trajectories. scale: of scores, to base 2. Grid: KV heads,
// trajectories. Maps, of the cache: dimension, KV head, place in a block, block; boxes of 64 dimensions by UNIT places.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sample_attention(const __grid_constant__ Map keys, const __grid_constant__ Map values, const bf16* query,
                     const bf16* own_keys, const bf16* own_values, bf16* mixed, const int* tables, const int* lengths,
                     long long table_row, long long samples, float scale) {
  extern __shared__ unsigned char memory[];
  u32 base = (shared_address(memory) + 1023) & ~1023u;
  u32 after = base + MATRICES * OWN_HALF;
  Stages stages(after, after + Stages::SIZE);
  if (threadIdx.x == 0) {
    stages.init();
    barriers_made();
  }
  __syncthreads();
  int head = blockIdx.x, trajectory = blockIdx.y, row = trajectory / static_cast<int>(samples);
  int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // so that the compiler knows: a warp's threads go the same way
  int length = lengths[row];
  long long first = static_cast<long long>(trajectory) * TOKENS;
  if (warp < USERS / 32) {
    take_registers();
    long long asked = (first * HEADS + 2 * head) * DIM, own = (first * KV_HEADS + head) * DIM;
    multiply_all(stages, base, query + asked, own_keys + own, own_values + own, mixed + asked, warp, length, scale);
  } else {  // the prefix is there before what the kernel before writes
    give_registers();
    if (warp == USERS / 32) load_all(stages, keys, values, head, tables + row * table_row, length);
  }
}
