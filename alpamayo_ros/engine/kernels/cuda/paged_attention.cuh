// Attention of 64 queries of one head, by a warp group, to a sequence in a paged cache and to tokens of their own. Keys and
// values come in stages of 64.
#pragma once
#include "hopper.cuh"

constexpr int TOKENS = 64;
constexpr int DIM = 128;
constexpr int UNIT = 16;  // keys that lie in one block; whole units are dealt to programs
constexpr int UNITS = 64 / UNIT;  // in a stage
constexpr int UNIT_BYTES = UNIT * LINE;  // of half of the dimensions
constexpr int STAGE = 2 * HALF_STAGE;  // 64 keys or values, or 128 rows of weights by 64 numbers
constexpr float LOWEST = -1e30f;
// BLOCK, tokens in a block of the cache, is given at compilation.
static_assert(BLOCK % UNIT == 0);

// A part of the units of a sequence. The last part also has its own tokens, and less of the others for it.
struct Part {
  int first, end;  // units
  int length;  // tokens of the sequence
  bool own;
  __device__ static Part of(int length, int number, int parts) {
    int in_cache = (length + UNIT - 1) / UNIT, units = in_cache + TOKENS / UNIT;
    return {min(number * units / parts, in_cache), min((number + 1) * units / parts, in_cache), length,
            number == parts - 1};
  }
  __device__ int stages() const { return (end - first + UNITS - 1) / UNITS; }  // of keys, and as many of values
  __device__ int units(int stage) const { return min(end - first - stage * UNITS, UNITS); }
  __device__ int seen(int stage) const {  // keys of a stage that there are, or more
    return min(end * UNIT, length) - (first + stage * UNITS) * UNIT;
  }
};

// Fill stages with keys and values of one KV head; by one thread. Maps: dimension, head, place in a block, block.
template <typename Stages>
__device__ __forceinline__ void load_keys(Stages& ring, const Map& keys, const Map& values, int head, const int* table,
                                          const Part& part, u64 policy) {
  for (int stage = 0; stage < part.stages(); ++stage) {
    int units = part.units(stage), blocks[UNITS];
#pragma unroll
    for (int each = 0; each < UNITS; ++each)
      if (each < units) blocks[each] = table[(part.first + stage * UNITS + each) * UNIT / BLOCK];
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      ring.wait_empty(units * 2 * UNIT_BYTES);
#pragma unroll
      for (int each = 0; each < UNITS; ++each) {
        if (each == units) break;
        int place = (part.first + stage * UNITS + each) * UNIT % BLOCK;
        for (int half = 0; half < 2; ++half)
          copy_box(ring.at() + half * HALF_STAGE + each * UNIT_BYTES, ring.barrier(), which ? values : keys, policy,
                   half * 64, head, place, blocks[each]);
      }
      ring.advance();
    }
  }
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

// 64 queries over what was taken so far.
struct Attention {
  u32 query[2];  // in shared memory: dimensions 0 to 63, 64 to 127, of which each matrix has a half
  float scale;  // of scores, to base 2
  Sum mixed[2];
  Softmax upper, lower;  // of the thread's two rows
  u32 shares[UNITS][4];  // of the last stage

  __device__ Attention(u32 first, u32 second, float scale) : query{first, second}, scale(scale) {}

  // Scores of 64 keys, and their shares; `seen` of the keys count.
  __device__ __forceinline__ void score(u32 first, u32 second, int seen) {
    Sum scores;
    scores.keep();
    products_begin();
#pragma unroll
    for (int step = 0; step < 8; ++step)
      add_product(scores, matrix_at(query[step / 4]) + 2 * (step % 4), matrix_at(step < 4 ? first : second) + 2 * (step % 4));
    products_sent();
    products_wait<0>();
    scores.keep();
    if (seen < 64) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (i / 4 * 8 + lane() % 4 * 2 + i % 2 >= seen) scores.v[i] = LOWEST;
    }
    float most_upper = LOWEST, most_lower = LOWEST;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      scores.v[i] *= scale;
      (i % 4 < 2 ? most_upper : most_lower) = fmaxf(i % 4 < 2 ? most_upper : most_lower, scores.v[i]);
    }
    float upper_fade = upper.raise_to(most_upper), lower_fade = lower.raise_to(most_lower);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      Softmax& row = i % 4 < 2 ? upper : lower;
      float one = power_of_two(scores.v[i] - row.highest), other = power_of_two(scores.v[i + 1] - row.highest);
      row.total += one + other;
      shares[i / 8][i % 8 / 2] = rounded(one, other);
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float fade = i % 4 < 2 ? upper_fade : lower_fade;
      mixed[0].v[i] *= fade;
      mixed[1].v[i] *= fade;
    }
  }

  // Mix their values by these shares.
  __device__ __forceinline__ void mix(u32 first, u32 second) {
    mixed[0].keep();
    mixed[1].keep();
    products_begin();
#pragma unroll
    for (int step = 0; step < UNITS; ++step) {
      add_mixed(mixed[0], shares[step], matrix_at(first + step * UNIT_BYTES));
      add_mixed(mixed[1], shares[step], matrix_at(second + step * UNIT_BYTES));
    }
    products_sent();
    products_wait<0>();
    mixed[0].keep();
    mixed[1].keep();
  }

  // All stages of a part.
  template <typename Stages>
  __device__ __forceinline__ void take(Stages& ring, const Part& part, int group) {
    for (int stage = 0; stage < part.stages(); ++stage) {
      int seen = part.seen(stage);
      ring.wait_full();
      score(ring.at(), ring.at() + HALF_STAGE, seen);
      ring.used();
      ring.wait_full();
      if (seen < 64) clear_behind(ring.at(), seen, group);
      mix(ring.at(), ring.at() + HALF_STAGE);
      ring.used();
    }
  }

 private:
  // Values that don't count may be anything, also no numbers, of which a share of 0 would make none either.
  __device__ __forceinline__ static void clear_behind(u32 values, int seen, int group) {
    for (int each = threadIdx.x % 128; each < (64 - seen) * 16; each += 128) {
      int row = seen + each / 16, piece = each % 16;
      u32 to = values + piece / 8 * HALF_STAGE + row * LINE + piece % 8 * 16;
      asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
    }
    writes_seen();
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
  }
};
