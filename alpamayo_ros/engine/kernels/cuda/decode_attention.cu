// A decoded token's attention, from the product that gives its queries, key and value on: norm and rotary embedding of the
// heads, the cache's new entry, and attention to all tokens before it and to itself. A cluster of programs for each KV head,
// with its query heads. Each warp has units of keys of its own, of which the first is on its way to shared memory while the
// product still runs; then the warps' parts are put together, and then the programs'.
#include "hopper.cuh"

// Given at compilation, by decode_attention.py: GROUP (query heads of a KV head), KV_HEADS, BLOCK (tokens in a block of the
// cache), DIM, UNIT (keys that are copied at once: they lie in one block), PROGRAMS (of a cluster), WARPS and MOST_ROUNDS.
static_assert(1 <= GROUP && GROUP <= 8 && DIM == 128 && UNIT == 16 && BLOCK % UNIT == 0);
static_assert(GROUP + 2 <= WARPS && MOST_ROUNDS == 32);
constexpr int THREADS = WARPS * 32;
constexpr int COLUMNS = 8;  // of products: one for each query head, the others are zero

constexpr int HALF = UNIT * LINE;  // bytes of a unit's keys or values in half of the dimensions
constexpr int AHEAD = 1;  // units on their way: with two it takes as long, and leaves no room for another kernel's programs
using Units = Ring<AHEAD, 4 * HALF, 1>;  // of a warp, which fills it itself: keys, then values
constexpr int QUERY_ROW = DIM + 8;  // numbers from one query to the next, so that they lie in different banks
constexpr int PART_ROW = DIM + 4;
constexpr int FINISHED = GROUP * DIM / PROGRAMS;  // numbers of the result, by each program
static_assert(GROUP * PART_ROW * sizeof(float) <= Units::SIZE && FINISHED % 4 == 0);

struct alignas(8) Weight {
  float highest, total;  // score in base 2, and sum of the shares
};

// Shared memory. Once a warp is done, its part [GROUP, PART_ROW] stands where its units were.
constexpr int OWN = WARPS * Units::SIZE;  // the new token as a unit
constexpr int QUERIES = OWN + 4 * HALF;  // [GROUP, QUERY_ROW]
constexpr int WEIGHTS = QUERIES + GROUP * QUERY_ROW * sizeof(bf16);  // [WARPS, COLUMNS]
constexpr int ARRIVED = WEIGHTS + WARPS * COLUMNS * sizeof(Weight);  // [PROGRAMS, FINISHED], from all programs
constexpr int ARRIVED_WEIGHTS = ARRIVED + PROGRAMS * FINISHED * sizeof(float);  // [PROGRAMS, COLUMNS]
constexpr int BARRIERS = ARRIVED_WEIGHTS + PROGRAMS * COLUMNS * sizeof(Weight);
constexpr int SHARED = 1024 + BARRIERS + WARPS * Units::BARRIER_BYTES;
static_assert(SHARED <= 227 * 1024);
extern "C" __device__ u32 shared_bytes = SHARED;

__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000); }

__device__ __forceinline__ u32 pair_of(const bf16* numbers, int which) {
  return reinterpret_cast<const u32*>(numbers)[which];
}

// --- norm and rotary embedding of a head, by a warp: a lane has numbers 2 lane and the next of both halves

__device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, other));
  return x;
}

__device__ __forceinline__ float inverse_root(float x) {
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

struct Turn {
  u32 norm[2], cosine, sine;

  __device__ __forceinline__ Turn(const bf16* weight, const bf16* cosines, const bf16* sines)
      : norm{pair_of(weight, lane()), pair_of(weight, 32 + lane())},
        cosine(pair_of(cosines, lane())),
        sine(pair_of(sines, lane())) {}

  // In the order, and with the roundings, of the kernel in between_products.py for the keys of up to four query heads, so
  // that the same bits get into the cache.
  __device__ __forceinline__ void apply(u32 (&halves)[2], float eps) const {
    float a[2] = {low(halves[0]), high(halves[0])}, b[2] = {low(halves[1]), high(halves[1])};
    float squares = sum_of_warp(__fmaf_rn(a[0], a[0], __fmul_rn(a[1], a[1])));
    float others = sum_of_warp(__fmaf_rn(b[0], b[0], __fmul_rn(b[1], b[1])));
    float scale = inverse_root(__fmaf_rn(__fadd_rn(squares, others), 1.f / DIM, eps));
    float first[2], second[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float c = i ? high(cosine) : low(cosine), s = i ? high(sine) : low(sine);
      float x = __fmul_rn(__fmul_rn(a[i], scale), i ? high(norm[0]) : low(norm[0]));
      float y = __fmul_rn(__fmul_rn(b[i], scale), i ? high(norm[1]) : low(norm[1]));
      first[i] = __fmaf_rn(x, c, -__fmul_rn(y, s));
      second[i] = __fmaf_rn(y, c, __fmul_rn(x, s));
    }
    halves[0] = rounded(first[0], first[1]);
    halves[1] = rounded(second[0], second[1]);
  }
};

// --- keys and values

// A layer's keys or values in global memory, [blocks, BLOCK, KV_HEADS, DIM].
struct Memory {
  bf16* at;
  long long block, place, head;  // strides
};

// Where a lane's two numbers of each half go: into the cache, and into the first row of the new token's unit.
__device__ __forceinline__ void write_new(const u32 (&halves)[2], const Memory& to, long long slot, int head, char* unit) {
  bf16* entry = to.at + slot / BLOCK * to.block + slot % BLOCK * to.place + head * to.head;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    reinterpret_cast<u32*>(entry)[half * 32 + lane()] = halves[half];
    reinterpret_cast<u32*>(unit + half * HALF)[lane()] = halves[half];
  }
}

__device__ __forceinline__ void copy_unit(Units& ahead, const Map& keys, const Map& values, int head, int place, int block) {
  ahead.wait_empty(4 * HALF);
  if (lane() < 2) {
    copy_box(ahead.at() + lane() * HALF, ahead.barrier(), keys, lane() * 64, head, place, block);
    copy_box(ahead.at() + (2 + lane()) * HALF, ahead.barrier(), values, lane() * 64, head, place, block);
  }
  ahead.advance();
}

// --- what a warp has seen: keys are rows of its products and queries the columns, of which a thread has two

struct Attention {
  u32 query[DIM / 16][2];
  float scale;  // of scores, to base 2
  float mixed[DIM / 16][4] = {};  // dimensions 16 i + lane / 4 and 8 further on, each for both queries
  Weight weight[2] = {{LOWEST, 0.f}, {LOWEST, 0.f}};  // the total is of this thread's keys

  __device__ __forceinline__ Attention(const bf16* queries, float scale) : scale(scale) {
    bool exists = lane() / 4 < GROUP;
#pragma unroll
    for (int i = 0; i < DIM / 8; ++i)
      query[i / 2][i % 2] = exists ? pair_of(queries + lane() / 4 * QUERY_ROW, i * 4 + lane() % 4) : 0;
  }

  // A unit in shared memory, of which the first `seen` count.
  __device__ __forceinline__ void take(u32 unit, int seen) {
    float scores[4], fades[2];
    if (seen < UNIT) {
      clear_rows<32>(unit + 2 * HALF, HALF, seen, UNIT, lane());
      __syncwarp();
    }
    score(scores, unit, seen);
    weigh(scores, fades);
    u32 shares[2] = {transposed(rounded(scores[0], scores[1])), transposed(rounded(scores[2], scores[3]))};
    u32 row = unit + 2 * HALF + (lane() / 16 * 8 + lane() % 8) * LINE;
#pragma unroll
    for (int i = 0; i < DIM / 16; ++i) {
      u32 values[4];
      load_transposed(values, row + i / 4 * HALF + (i % 4 * 2 + lane() / 8 % 2 ^ lane() % 8) * 16);
#pragma unroll
      for (int j = 0; j < 4; ++j) mixed[i][j] *= fades[j % 2];
      add_small_product(mixed[i], values, shares);
    }
  }

  // Where others find it: [GROUP, PART_ROW] and [COLUMNS].
  __device__ __forceinline__ void leave(float* part, Weight* weights) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float total = weight[j].total;
      total += __shfl_xor_sync(~0u, total, 4);
      total += __shfl_xor_sync(~0u, total, 8);
      total += __shfl_xor_sync(~0u, total, 16);
      int query = lane() % 4 * 2 + j;
      if (lane() < 4) weights[query] = {weight[j].highest, total};
      if (query >= GROUP) continue;
#pragma unroll
      for (int i = 0; i < DIM / 8; ++i) part[query * PART_ROW + i * 8 + lane() / 4] = mixed[i / 2][i % 2 * 2 + j];
    }
  }

 private:
  __device__ __forceinline__ void score(float (&scores)[4], u32 unit, int seen) {
    float sums[2][4] = {};
    u32 row = unit + lane() % 16 * LINE;
#pragma unroll
    for (int i = 0; i < DIM / 16; ++i) {
      u32 keys[4];
      load_matrices(keys, row + i / 4 * HALF + (i % 4 * 2 + lane() / 16 ^ lane() % 8) * 16);
      add_small_product(sums[i % 2], keys, query[i]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) scores[j] = lane() / 4 + j / 2 * 8 < seen ? sums[0][j] + sums[1][j] : LOWEST;
  }

  // Scores to shares; gives what everything before counts less.
  __device__ __forceinline__ void weigh(float (&scores)[4], float (&fades)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float most = fmaxf(scores[j], scores[j + 2]);
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 4));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 8));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 16));
      float higher = fmaxf(weight[j].highest, most * scale);
      fades[j] = power_of_two(weight[j].highest - higher);
      scores[j] = power_of_two(fmaf(scores[j], scale, -higher));
      scores[j + 2] = power_of_two(fmaf(scores[j + 2], scale, -higher));
      weight[j] = {higher, fmaf(weight[j].total, fades[j], scores[j] + scores[j + 2])};
    }
  }
};

// --- parts of the keys put together, always in the same order

template <int COUNT>
struct alignas(COUNT * sizeof(float)) Numbers {  // read at once
  float v[COUNT];
};

template <int PARTS, int COUNT>
struct Together {
  Weight weight{LOWEST, 0.f};
  Numbers<COUNT> sum{};

  // From the first part's weight and numbers on; a next weight is COLUMNS further, and next numbers so many bytes.
  __device__ __forceinline__ Together(const Weight* weights, const char* numbers, int bytes) {
    Weight of[PARTS];
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      of[i] = weights[i * COLUMNS];
      weight.highest = fmaxf(weight.highest, of[i].highest);
    }
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      float share = power_of_two(of[i].highest - weight.highest);
      weight.total = fmaf(of[i].total, share, weight.total);
      Numbers<COUNT> part = *reinterpret_cast<const Numbers<COUNT>*>(numbers + i * bytes);
#pragma unroll
      for (int j = 0; j < COUNT; ++j) sum.v[j] = fmaf(part.v[j], share, sum.v[j]);
    }
  }
};

// This program's parts, sent to those that finish them.
__device__ __forceinline__ void send_parts(const char* shared, u32 base, int program) {
  for (int each = threadIdx.x; each < GROUP * DIM / 4; each += THREADS) {
    int query = each * 4 / DIM, rest = each % (DIM / 4);
    const Weight* weights = reinterpret_cast<const Weight*>(shared + WEIGHTS) + query;
    Together<WARPS, 4> parts(weights, shared + (query * PART_ROW + rest * 4) * sizeof(float), Units::SIZE);
    u32 to = base + ARRIVED + (program * FINISHED + each * 4 % FINISHED) * sizeof(float);
    to = address_at(to, each * 4 / FINISHED);
    store_there(to, parts.sum.v[0], parts.sum.v[1]);
    store_there(to + 8, parts.sum.v[2], parts.sum.v[3]);
    u32 weight = base + ARRIVED_WEIGHTS + (program * COLUMNS + query) * sizeof(Weight);
    if (rest < PROGRAMS) store_there(address_at(weight, rest), parts.weight.highest, parts.weight.total);
    __syncwarp();
  }
}

__device__ __forceinline__ void finish(const char* shared, int program, bf16* mixed) {
  int number = threadIdx.x * 2;
  if (number >= FINISHED) return;
  const Weight* weights = reinterpret_cast<const Weight*>(shared + ARRIVED_WEIGHTS);
  weights += (program * FINISHED + number) / DIM;
  Together<PROGRAMS, 2> parts(weights, shared + ARRIVED + number * sizeof(float), FINISHED * sizeof(float));
  float share = 1.f / parts.weight.total;
  *reinterpret_cast<u32*>(mixed + program * FINISHED + number) = rounded(parts.sum.v[0] * share, parts.sum.v[1] * share);
}

// states [(GROUP + 2) KV_HEADS DIM]: queries, keys and values of one token. norms, cosines, sines [DIM]. slot: where it
// goes, block times BLOCK plus place. table: `blocks` numbers; length: tokens before. mixed [GROUP KV_HEADS DIM]. scale: of
// scores, to base 2. Grid: PROGRAMS, KV_HEADS. Maps, of the cache: dimension, KV head, place in a block, block; boxes of 64
// dimensions by UNIT places.
extern "C" __global__ void __cluster_dims__(PROGRAMS, 1, 1) __launch_bounds__(THREADS, 1)
    decode_attention(const __grid_constant__ Map keys, const __grid_constant__ Map values, const bf16* states,
                     const bf16* query_norm, const bf16* key_norm, const bf16* cosines, const bf16* sines, bf16* key_memory,
                     bf16* value_memory, long long key_block, long long key_place, long long key_head, long long value_block,
                     long long value_place, long long value_head, const long long* slot, const int* table, const int* length,
                     bf16* mixed, long long blocks, float eps, float scale) {
  extern __shared__ char memory[];
  u32 base = (shared_address(memory) + 1023) & ~1023u;
  char* shared = memory + (base - shared_address(memory));
  int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // so that the compiler knows: a warp's threads go the same way
  int head = blockIdx.y, program = place_in_cluster();
  cluster_started();  // others may write here
  if (threadIdx.x == 0) {
    prefetch_map(keys);
    prefetch_map(values);
  }

  // All that is read before the wait was there before what the kernel before writes. A warp's units are every STEP-th one,
  // so that their blocks are looked up without the length: lane i has that of the i-th.
  constexpr int STEP = PROGRAMS * WARPS;
  int first = program + PROGRAMS * warp, number = (first + STEP * lane()) * UNIT / BLOCK;
  int my_block = number < blocks ? table[number] : 0, before = *length;
  Turn turn(warp < GROUP ? query_norm : key_norm, cosines, sines);
  long long to = *slot;

  Units units(base + warp * Units::SIZE, base + BARRIERS + warp * Units::BARRIER_BYTES);
  if (lane() == 0) {
    units.init();
    barriers_made();
  }
  __syncwarp();
  int count = max(0, ((before + UNIT - 1) / UNIT - first + STEP - 1) / STEP);
  Units ahead = units;
  auto ask = [&](int round) {
    int block = __shfl_sync(~0u, my_block, round);
    copy_unit(ahead, keys, values, head, (first + STEP * round) * UNIT % BLOCK, block);
  };
  for (int round = 0; round < min(count, AHEAD); ++round) ask(round);
  bool has_new = program == PROGRAMS - 1;  // the one with the fewest units takes the new token as well

  wait_for_kernel_before();
  bf16* queries = reinterpret_cast<bf16*>(shared + QUERIES);
  if (warp < GROUP || (has_new && warp < GROUP + 2)) {
    int row = warp < GROUP ? head * GROUP + warp : warp * KV_HEADS + head;
    u32 halves[2] = {pair_of(states + row * DIM, lane()), pair_of(states + row * DIM, 32 + lane())};
    if (warp <= GROUP) turn.apply(halves, eps);
    if (warp < GROUP) {
      u32* query = reinterpret_cast<u32*>(queries + warp * QUERY_ROW);
      query[lane()] = halves[0];
      query[32 + lane()] = halves[1];
    } else if (warp == GROUP) {
      write_new(halves, {key_memory, key_block, key_place, key_head}, to, head, shared + OWN);
    } else {
      write_new(halves, {value_memory, value_block, value_place, value_head}, to, head, shared + OWN + 2 * HALF);
    }
  }
  __syncthreads();

  Attention attention(queries, scale);
  for (int round = has_new && warp == WARPS - 1 ? -1 : 0; round < count; ++round) {  // -1: the new token
    bool cached = round >= 0;
    if (cached) units.wait_full();
    attention.take(cached ? units.at() : base + OWN, cached ? min(UNIT, before - (first + STEP * round) * UNIT) : 1);
    if (cached) units.used();
    if (cached && round + AHEAD < count) ask(round + AHEAD);
  }
  Weight* weights = reinterpret_cast<Weight*>(shared + WEIGHTS) + warp * COLUMNS;
  attention.leave(reinterpret_cast<float*>(shared + warp * Units::SIZE), weights);
  __syncthreads();
  cluster_wait();
  send_parts(shared, base, program);
  cluster_arrive();
  cluster_wait();
  finish(shared, program, mixed + head * GROUP * DIM);
}
