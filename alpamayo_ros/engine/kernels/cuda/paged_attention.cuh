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

// Fill a stage with keys or values of one KV head; by one thread. Map: dimension, head, place in a block, block.
template <typename Stages>
__device__ __forceinline__ void load_stage(Stages& ring, const Map& map, int head, const int* table, const Part& part,
                                           int stage, u64 policy) {
  int units = part.units(stage), blocks[UNITS];
#pragma unroll
  for (int each = 0; each < UNITS; ++each)
    if (each < units) blocks[each] = table[(part.first + stage * UNITS + each) * UNIT / BLOCK];
  ring.wait_empty(units * 2 * UNIT_BYTES);
#pragma unroll
  for (int each = 0; each < UNITS; ++each) {
    if (each == units) break;
    int place = (part.first + stage * UNITS + each) * UNIT % BLOCK;
    for (int half = 0; half < 2; ++half)
      copy_box(ring.at() + half * HALF_STAGE + each * UNIT_BYTES, ring.barrier(), map, policy, half * 64, head, place,
               blocks[each]);
  }
  ring.advance();
}

// All stages of a part, in the order in which `Attention::take` uses them: keys are a stage ahead of values.
template <typename Stages>
__device__ __forceinline__ void load_part(Stages& ring, const Map& keys, const Map& values, int head, const int* table,
                                          const Part& part, u64 policy) {
  for (int stage = 0; stage <= part.stages(); ++stage) {
    if (stage < part.stages()) load_stage(ring, keys, head, table, part, stage, policy);
    if (stage > 0) load_stage(ring, values, head, table, part, stage - 1, policy);
  }
}

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

// Of 64 keys, how much each counts: as `add_mixed` reads them.
struct Shares {
  u32 of[UNITS][4];
  __device__ __forceinline__ void round(const Sum& shares) {
#pragma unroll
    for (int i = 0; i < 32; i += 2) of[i / 8][i % 8 / 2] = rounded(shares.v[i], shares.v[i + 1]);
  }
};

// 64 queries over what was taken so far.
struct Attention {
  u32 query[8][4];  // 16 dimensions each; from shared memory they would take half of its bandwidth
  float scale;  // of scores, to base 2
  Sum mixed[2];
  Softmax upper, lower;  // of the thread's two rows

  // The queries' matrices: dimensions 0 to 63, 64 to 127. warp: of the group.
  __device__ Attention(u32 first, u32 second, int warp, float scale) : scale(scale) {
#pragma unroll
    for (int step = 0; step < 8; ++step) load_left(query[step], step < 4 ? first : second, warp, step % 4);
  }

  // 64 keys and values, whose halves lie there; one product after the other.
  __device__ __forceinline__ void take(u32 first_key, u32 second_key, u32 first_value, u32 second_value) {
    Sum scores;
    Shares shares;
    send_scores(scores, first_key, second_key);
    products_wait<0>();
    scores.keep();
    fade(weigh(scores, 64));
    shares.round(scores);
    send_mix(shares, first_value, second_value);
    products_wait<0>();
    keep();
  }

  // All stages of a part: while the tensor cores compute a stage's scores and mix the one before, nobody waits but at the end.
  template <typename Stages>
  __device__ __forceinline__ void take(Stages& ring, const Part& part, int group) {
    if (part.stages() == 0) return;
    Shares shares;
    {
      Sum scores;
      ring.wait_full();
      send_scores(scores, ring.at(), ring.at() + HALF_STAGE);
      products_wait<0>();
      scores.keep();
      ring.used();
      fade(weigh(scores, part.seen(0)));
      shares.round(scores);
    }
    for (int stage = 1; stage < part.stages(); ++stage) {
      Sum scores;
      Stages values = ring;
      values.advance();
      ring.wait_full();
      values.wait_full();
      send_scores(scores, ring.at(), ring.at() + HALF_STAGE);
      send_mix(shares, values.at(), values.at() + HALF_STAGE);
      products_wait<1>();
      scores.keep();
      ring.used();
      Two fades = weigh(scores, part.seen(stage));
      products_wait<0>();
      keep();
      ring.used();
      shares.round(scores);
      fade(fades);
    }
    ring.wait_full();
    int seen = part.seen(part.stages() - 1);
    if (seen < 64) clear_behind(ring.at(), seen, group);
    send_mix(shares, ring.at(), ring.at() + HALF_STAGE);
    products_wait<0>();
    keep();
    ring.used();
  }

 private:
  __device__ __forceinline__ void keep() {
    mixed[0].keep();
    mixed[1].keep();
  }

  __device__ __forceinline__ void send_scores(Sum& scores, u32 first, u32 second) {
    scores.keep();
    products_begin();
#pragma unroll
    for (int step = 0; step < 8; ++step)
      add_product(scores, query[step], matrix_at(step < 4 ? first : second) + 2 * (step % 4));
    products_sent();
  }

  // Scores of 64 keys, of which `seen` count, to shares; gives what everything before counts less, in both rows.
  __device__ __forceinline__ Two weigh(Sum& scores, int seen) {
    if (seen < 64) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (i / 4 * 8 + lane() % 4 * 2 + i % 2 >= seen) scores.v[i] = LOWEST;
    }
    float most_upper = LOWEST, most_lower = LOWEST;
#pragma unroll
    for (int i = 0; i < 32; ++i)
      (i % 4 < 2 ? most_upper : most_lower) = fmaxf(i % 4 < 2 ? most_upper : most_lower, scores.v[i]);
    Two fades{upper.raise_to(most_upper * scale), lower.raise_to(most_lower * scale)};
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      Softmax& row = i % 4 < 2 ? upper : lower;
      float one = power_of_two(fmaf(scores.v[i], scale, -row.highest));
      float other = power_of_two(fmaf(scores.v[i + 1], scale, -row.highest));
      row.total += one + other;
      scores.v[i] = one;
      scores.v[i + 1] = other;
    }
    return fades;
  }

  __device__ __forceinline__ void fade(Two fades) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float factor = i % 4 < 2 ? fades.x : fades.y;
      mixed[0].v[i] *= factor;
      mixed[1].v[i] *= factor;
    }
  }

  __device__ __forceinline__ void send_mix(const Shares& shares, u32 first, u32 second) {
    keep();
    products_begin();
#pragma unroll
    for (int step = 0; step < UNITS; ++step) {
      add_mixed(mixed[0], shares.of[step], matrix_at(first + step * UNIT_BYTES));
      add_mixed(mixed[1], shares.of[step], matrix_at(second + step * UNIT_BYTES));
    }
    products_sent();
  }

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
