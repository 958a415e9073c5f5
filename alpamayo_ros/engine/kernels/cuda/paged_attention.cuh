// Attention of 2 x 64 queries, two heads that share keys and values, to a sequence in a paged cache and to 64 tokens of
// their own behind it. Each of two warp groups takes one head; keys and values come in stages of 64.
#pragma once
#include "hopper.cuh"

constexpr int TOKENS = 64;
constexpr int DIM = 128;
constexpr int UNIT = 16;  // keys; whole units are dealt to programs, and a sequence's last one may be filled in part
constexpr int OWN_UNITS = TOKENS / UNIT;
constexpr int STAGE = 2 * HALF_STAGE;  // 64 keys or values, or 128 rows of weights by 64 numbers
constexpr float LOWEST = -1e30f;

struct Strides {  // of keys or values in the cache, in numbers
  long long block, place, head;
};

// Where the keys or the values of one KV head lie.
struct Pages {
  const bf16* memory;  // of the cache
  Strides strides;
  const bf16* own;
  int own_stride;  // from token to token
};

// A part of the units of a sequence: those of the cache, then the own ones.
struct Part {
  int first, end, in_cache, length;  // units, units, units, tokens
  __device__ static Part of(int length, int number, int parts) {
    int in_cache = (length + UNIT - 1) / UNIT;
    int units = in_cache + OWN_UNITS;
    return {number * units / parts, (number + 1) * units / parts, in_cache, length};
  }
  __device__ int stages() const { return (end - first + 3) / 4; }  // of keys, and as many of values
  __device__ bool has_own(int stage) const { return min(first + 4 * stage + 4, end) > in_cache; }
  __device__ bool all_seen(int stage) const {
    int unit = first + 4 * stage;
    return unit + 4 <= end && (unit + 4) * UNIT <= length;
  }
  __device__ bool seen(int stage, int key) const {
    int unit = first + 4 * stage + key / UNIT;
    return unit < end && (unit >= in_cache || unit * UNIT + key % UNIT < length);
  }
};

// The blocks of a stage's units; looked up before they are needed.
struct Blocks {
  int of[4];
  template <int BLOCK_SIZE>
  __device__ __forceinline__ static Blocks find(const int* table, const Part& part, int stage) {
    static_assert(BLOCK_SIZE % UNIT == 0);
    Blocks blocks;
#pragma unroll
    for (int each = 0; each < 4; ++each) {
      int unit = part.first + 4 * stage + each;
      blocks.of[each] = unit < part.in_cache ? table[unit * UNIT / BLOCK_SIZE] : 0;
    }
    return blocks;
  }
};

// One stage of keys or values by 64 threads.
template <int BLOCK_SIZE, typename Stages>
__device__ __forceinline__ void load_keys(Stages& ring, const Pages& pages, const Blocks& blocks, const Part& part,
                                          int stage, int thread) {
  int piece = thread % 8;
  ring.wait_empty();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    int row = thread / 8 + 8 * step;
    int unit = part.first + 4 * stage + step / 2;
    int token = unit * UNIT + row % UNIT;
    bool there = part.seen(stage, row);
    const bf16* from = pages.memory;
    if (there) {
      if (unit < part.in_cache)
        from += blocks.of[step / 2] * pages.strides.block + token % BLOCK_SIZE * pages.strides.place;
      else
        from = pages.own + (token - part.in_cache * UNIT) * pages.own_stride;
    }
    u32 to = ring.at() + place(row, piece);
    copy_piece_if(there, to, from + piece * 8);
    copy_piece_if(there, to + HALF_STAGE, from + 64 + piece * 8);
  }
  ring.filled();
}

// What a thread has of a row: its highest score in base 2, and the sum of the shares.
struct Softmax {
  float highest = LOWEST, total = 0.f;
  __device__ __forceinline__ float raise_to(float score) {  // gives what everything before counts less
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

struct Attention {
  Sum mixed[2];  // dimensions 0 to 63, 64 to 127
  Softmax upper, lower;  // of the thread's two rows
};

// One warp group over a part: queries in two matrices of 64 x 64 at `query`.
template <typename Stages>
__device__ __forceinline__ void attend(Attention& result, Stages& ring, const u32 (&query)[2], const Part& part,
                                       float scale) {
  for (int stage = 0; stage < part.stages(); ++stage) {
    Sum scores;
    scores.keep();
    ring.wait_full();
    copies_seen();
    products_begin();
#pragma unroll
    for (int step = 0; step < 8; ++step)
      add_product(scores, matrix_at(query[step / 4]) + 2 * (step % 4),
                  matrix_at(ring.at() + step / 4 * HALF_STAGE) + 2 * (step % 4));
    products_sent();
    products_wait<0>();
    scores.keep();
    ring.used();

    if (!part.all_seen(stage)) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (!part.seen(stage, i / 4 * 8 + lane() % 4 * 2 + i % 2)) scores.v[i] = LOWEST;
    }
    float upper = LOWEST, lower = LOWEST;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      scores.v[i] *= scale;
      if (i % 4 < 2)
        upper = fmaxf(upper, scores.v[i]);
      else
        lower = fmaxf(lower, scores.v[i]);
    }
    float upper_fade = result.upper.raise_to(upper), lower_fade = result.lower.raise_to(lower);
    u32 shares[4][4];
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      Softmax& row = i % 4 < 2 ? result.upper : result.lower;
      float one = power_of_two(scores.v[i] - row.highest), other = power_of_two(scores.v[i + 1] - row.highest);
      row.total += one + other;
      shares[i / 8][i % 8 / 2] = rounded(one, other);
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float fade = i % 4 < 2 ? upper_fade : lower_fade;
      result.mixed[0].v[i] *= fade;
      result.mixed[1].v[i] *= fade;
    }
    result.mixed[0].keep();
    result.mixed[1].keep();

    ring.wait_full();
    copies_seen();
    products_begin();
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_mixed(result.mixed[half], shares[step], matrix_at(ring.at() + half * HALF_STAGE + step * UNIT * LINE));
    products_sent();
    products_wait<0>();
    result.mixed[0].keep();
    result.mixed[1].keep();
    ring.used();
  }
}
