// All layers of the action expert over the 64 tokens of one trajectory, in one launch.
//
// A layer's weights take 30 us to come from memory, and as nine kernels it took 67: between kernels the memory stood
// idle. Here every multiprocessor keeps one program for the whole stack. One of its warps does nothing but load weights,
// keys and values, in the order in which they are needed, as far ahead as shared memory has room; they need no result, so
// the memory is busy while the others wait for each other. Another loads the rows that the weights are multiplied with, as
// soon as a flag says that they are there. Eight multiply.
//
// Each of five stages of a layer is cut into a task per program:
//   qkv       [64, 2048] x [4096, 2048]: 32 heads by 4 parts of the sum
//   attention 8 KV heads by 16 parts of the keys
//   out       [64, 2048] x [2048, 2048]: 16 times 128 columns by 8 parts of the sum
//   gate, up  [64, 2048] x [16512, 2048]: 64 columns of each
//   down      [64, 8256] x [2048, 8256]: 16 times 128 columns by 8 parts of the sum
// After a product whose sum is in parts, the programs of the same columns wait for each other, and each adds the parts up
// for some of the tokens, in always the same order. The norms' scales are applied after the products, so that what is
// multiplied needs no sum over a row.
#include "paged_attention.cuh"

constexpr int HIDDEN = 2048;
constexpr int HEADS = 16;
constexpr int KV_HEADS = 8;
// INNER, BLOCK (tokens in a block of the cache) and EPSILON (of the norms) are given at compilation.

constexpr int CHUNK = 64;  // numbers of a sum in a stage
constexpr int WIDTH = 128;  // columns of a product, and rows of weights in a stage
constexpr int COLUMNS = HIDDEN / WIDTH;
constexpr int ALL_HEADS = HEADS + 2 * KV_HEADS;
constexpr int QKV_PARTS = 4;
constexpr int KEY_PARTS = 16;
constexpr int SUM_PARTS = 8;  // of out and down
constexpr int TASKS = ALL_HEADS * QKV_PARTS;
constexpr int INNER_TASKS = INNER / CHUNK;
static_assert(TASKS == KV_HEADS * KEY_PARTS && TASKS == COLUMNS * SUM_PARTS && HEADS == 2 * KV_HEADS);
static_assert(HEADS * DIM / CHUNK == SUM_PARTS * 4 && INNER % CHUNK == 0);
static_assert(SUM_PARTS <= INNER_TASKS && INNER_TASKS <= 136);

struct Layer {
  Map qkv, out, down;  // [columns, sum]: boxes of 128 x 64
  Map gate_up;  // [2, INNER, HIDDEN]: boxes of 2 x 32 x 64
  Map keys, values;  // of the cache: see load_stage
  const bf16 *first_norm, *second_norm, *query_norm, *key_norm;
  u64 unused[4];
};
static_assert(sizeof(Layer) == 832);

struct WorkMaps {  // boxes of 64 tokens by 64 numbers
  Map rows, mixed, inner;  // [tokens, numbers]
  Map query, own;  // [heads, tokens, dimensions]
};

// Flags of a layer.
struct Flags {
  u32 hidden[COLUMNS];  // the layer's input
  u32 qkv_parts[ALL_HEADS];
  u32 qkv[KV_HEADS];
  u32 mixed_parts[KV_HEADS];
  u32 mixed[KV_HEADS];
  u32 out_parts[COLUMNS];
  u32 second[COLUMNS];  // the input of gate and up
  u32 down_parts[COLUMNS];
  u32 inner[136];
};
static_assert(sizeof(Flags) == 1024);

// What programs hand to each other; in the second cache.
struct Work {
  float qkv_parts[QKV_PARTS][ALL_HEADS][TOKENS][DIM];
  float sum_parts[SUM_PARTS][COLUMNS][TOKENS][WIDTH];
  float mixed_parts[HEADS][KEY_PARTS][TOKENS][DIM];
  float softmax[HEADS][KEY_PARTS][TOKENS][2];  // highest score and sum of the shares
  float squares[COLUMNS][TOKENS];  // sums of the residual stream's squares
  bf16 rows[TOKENS][HIDDEN];  // the residual stream times the next norm's weight
  bf16 query[HEADS][TOKENS][DIM];
  bf16 own[2][KV_HEADS][TOKENS][DIM];  // keys and values of the tokens themselves
  bf16 mixed[TOKENS][HEADS * DIM];
  bf16 inner[TOKENS][INNER];
};

constexpr int USERS = 256;  // threads that multiply: two warp groups
constexpr int THREADS = USERS + 128;  // a third group: one warp loads weights, one loads rows
constexpr int WEIGHT_STAGES = 10;
constexpr int ROW_STAGES = 8;
constexpr int WEIGHT_WINDOW = 4;  // as many bytes as the memory gives in the time that it takes to answer
using Weights = Ring<WEIGHT_STAGES, WEIGHT_WINDOW, STAGE, USERS / 32>;
using Rows = Ring<ROW_STAGES, ROW_STAGES, HALF_STAGE, USERS / 32>;
constexpr int SHARED = 1024 + Weights::SIZE + Rows::SIZE + Weights::BARRIER_BYTES + Rows::BARRIER_BYTES;
static_assert(SHARED <= 227 * 1024);

struct Task {
  int program;
  __device__ bool any() const { return program < TASKS; }
  __device__ bool inner() const { return program < INNER_TASKS; }
  __device__ int head() const { return program % ALL_HEADS; }
  __device__ int qkv_part() const { return program / ALL_HEADS; }
  __device__ int kv_head() const { return program % KV_HEADS; }
  __device__ int key_part() const { return program / KV_HEADS; }
  __device__ int columns() const { return program % COLUMNS; }
  __device__ int sum_part() const { return program / COLUMNS; }
  __device__ int inner_first() const { return sum_part() * INNER_TASKS / SUM_PARTS; }
  __device__ int inner_end() const { return (sum_part() + 1) * INNER_TASKS / SUM_PARTS; }
};
constexpr int QKV_CHUNKS = HIDDEN / CHUNK / QKV_PARTS;
constexpr int OUT_CHUNKS = HEADS * DIM / CHUNK / SUM_PARTS;
constexpr int INNER_CHUNKS = HIDDEN / CHUNK;

// --- weights, keys and values: by one thread

// 128 columns of a product, from column `first` on.
__device__ __forceinline__ void load_weights(Weights& ring, const Map& map, int first, int chunk, int chunks, u64 policy) {
  for (int each = 0; each < chunks; ++each) {
    ring.wait_empty();
    copy_box(ring.at(), ring.barrier(), map, policy, (chunk + each) * CHUNK, first);
    ring.advance();
  }
}

// For each warp group 32 columns of the gate, and the same of what it gates.
__device__ __forceinline__ void load_gate_up(Weights& ring, const Map& map, int first, u64 policy) {
  for (int chunk = 0; chunk < INNER_CHUNKS; ++chunk) {
    ring.wait_empty();
    for (int group = 0; group < 2; ++group)
      copy_box(ring.at() + group * HALF_STAGE, ring.barrier(), map, policy, chunk * CHUNK, first + 32 * group, 0);
    ring.advance();
  }
}

__device__ __forceinline__ void load_all_weights(Weights ring, Task task, const Layer* layers, int count,
                                                 const int* table, int length) {
  u64 policy = read_once();
  Part part = Part::of(length, task.key_part(), KEY_PARTS);
  for (int index = 0; index < count; ++index) {
    const Layer& layer = layers[index];
    if (task.any()) {
      fetch_map(layer.keys);
      fetch_map(layer.values);
      load_weights(ring, layer.qkv, task.head() * WIDTH, task.qkv_part() * QKV_CHUNKS, QKV_CHUNKS, policy);
      fetch_map(layer.out);
      load_part(ring, layer.keys, layer.values, task.kv_head(), table, part, policy);
      fetch_map(layer.gate_up);
      load_weights(ring, layer.out, task.columns() * WIDTH, task.sum_part() * OUT_CHUNKS, OUT_CHUNKS, policy);
    }
    fetch_map(layer.down);
    if (task.inner()) load_gate_up(ring, layer.gate_up, task.program * CHUNK, policy);
    fetch_map(layers[index + 1].qkv);
    if (task.any())
      load_weights(ring, layer.down, task.columns() * WIDTH, task.inner_first(), task.inner_end() - task.inner_first(),
                   policy);
  }
}

// --- rows: by one warp, of which one thread copies

__device__ __forceinline__ void load_rows(Rows& ring, const Map& map, int chunk, int chunks, u64 policy) {
  if (lane() != 0) return;
  writes_seen();
  for (int each = 0; each < chunks; ++each) {
    ring.wait_empty();
    copy_box(ring.at(), ring.barrier(), map, policy, (chunk + each) * CHUNK, 0);
    ring.advance();
  }
}

// The tokens of one head.
__device__ __forceinline__ void load_head(Rows& ring, const Map& map, int head, u64 policy) {
  if (lane() != 0) return;
  writes_seen();
  for (int half = 0; half < 2; ++half) {
    ring.wait_empty();
    copy_box(ring.at(), ring.barrier(), map, policy, half * CHUNK, 0, head);
    ring.advance();
  }
}

__device__ __forceinline__ void load_all_rows(Rows ring, Task task, int count, const Flags* flags, const WorkMaps& maps) {
  u64 policy = kept();
  Part part = Part::of(0, task.key_part(), KEY_PARTS);
  for (int index = 0; index < count; ++index, ++flags) {
    if (task.any()) {
      int first = task.qkv_part() * QKV_CHUNKS, head = task.kv_head();
      wait_for_all(flags->hidden + first * CHUNK / WIDTH, QKV_CHUNKS * CHUNK / WIDTH, SUM_PARTS);
      load_rows(ring, maps.rows, first, QKV_CHUNKS, policy);
      wait_for_all(flags->qkv + head, 1, 4 * QKV_PARTS);
      for (int each = 0; each < 2; ++each) load_head(ring, maps.query, 2 * head + each, policy);
      if (part.own)
        for (int each = 0; each < 2; ++each) load_head(ring, maps.own, head + KV_HEADS * each, policy);
      wait_for_all(flags->mixed + task.sum_part(), 1, KEY_PARTS);
      load_rows(ring, maps.mixed, task.sum_part() * OUT_CHUNKS, OUT_CHUNKS, policy);
    }
    if (task.inner()) {
      wait_for_all(flags->second, COLUMNS, SUM_PARTS);
      load_rows(ring, maps.rows, 0, INNER_CHUNKS, policy);
    }
    if (task.any()) {
      int first = task.inner_first(), chunks = task.inner_end() - first;
      wait_for_all(flags->inner + first, chunks, 1);
      load_rows(ring, maps.inner, first, chunks, policy);
    }
  }
}

// --- products, and what comes after them

struct User {
  int thread, group, warp;  // of those that multiply; warp of its group
  __device__ explicit User(int thread) : thread(thread), group(thread / 128), warp(thread / 32 % 4) {}
  __device__ int upper() const { return warp * 16 + lane() / 4; }  // the first of a thread's two rows in a Sum
  __device__ int column() const { return lane() % 4 * 2; }  // and its first column
};

// What all of them have written may be read by other programs.
__device__ __forceinline__ void announce(u32* flag) {
  asm volatile("bar.sync 1, %0;" ::"n"(USERS) : "memory");
  if (threadIdx.x == 0) raise(flag);
}

// Add 64 rows by a warp group's half of the 128 columns, over chunks of the sum.
__device__ __forceinline__ void multiply(Sum& sum, Weights& weights, Rows& rows, int chunks, int group) {
  for (int chunk = 0; chunk < chunks; ++chunk) {
    weights.wait_full();
    rows.wait_full();
    sum.keep();
    products_begin();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      add_product(sum, matrix_at(rows.at()) + 2 * step, matrix_at(weights.at() + group * HALF_STAGE) + 2 * step);
    products_sent();
    products_wait<0>();
    sum.keep();
    weights.used();
    rows.used();
  }
}

// A part of a sum, [64, 128] float32.
__device__ __forceinline__ void store_part(const Sum& sum, float* to, const User& user) {
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    int row = user.upper() + (i % 4 < 2 ? 0 : 8);
    int column = user.group * 64 + i / 4 * 8 + user.column();
    store(to + row * WIDTH + column, Two{sum.v[i], sum.v[i + 1]});
  }
}

// The scale of a token's norm: one over the root of the mean of its squares.
__device__ __forceinline__ float scale_of(const Work& work, int token) {
  float total = 0.f;
#pragma unroll
  for (int each = 0; each < COLUMNS; ++each) total += load_one(&work.squares[each][token]);
  return rsqrtf(total / HIDDEN + EPSILON);
}

// A warp's share of the residual stream: one token, 128 columns. Nobody else touches it, so it can be read ahead.
struct Residual {
  int token, within, column;
  Words before, factors;
  __device__ __forceinline__ Residual(const bf16* hidden, const bf16* norm, const Task& task, const User& user)
      : token(task.sum_part() * SUM_PARTS + user.thread / 32),
        within(lane() * 4),
        column(task.columns() * WIDTH + within),
        before(load_words(hidden + token * HIDDEN + column)),
        factors(load_words(norm + column)) {}
};

// Add the parts of a product to it. PARTS 0: nothing is added.
template <int PARTS>
__device__ __forceinline__ void add_to_hidden(const Residual& residual, bf16* hidden, Work& work, const Task& task) {
  const auto& [token, within, column, before, factors] = residual;
  Four total{low_number(before.x), high_number(before.x), low_number(before.y), high_number(before.y)};
  Four parts[PARTS ? PARTS : 1];
#pragma unroll
  for (int part = 0; part < PARTS; ++part) parts[part] = load_four(&work.sum_parts[part][task.columns()][token][within]);
  Four sum{0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int part = 0; part < PARTS; ++part)
    sum = {sum.x + parts[part].x, sum.y + parts[part].y, sum.z + parts[part].z, sum.w + parts[part].w};
  Words after{rounded(total.x + sum.x, total.y + sum.y), rounded(total.z + sum.z, total.w + sum.w)};
  total = {low_number(after.x), high_number(after.x), low_number(after.y), high_number(after.y)};
  store(hidden + token * HIDDEN + column, after);
  store(&work.rows[token][column], Words{rounded(total.x * low_number(factors.x), total.y * high_number(factors.x)),
                                         rounded(total.z * low_number(factors.y), total.w * high_number(factors.y))});
  float squares = total.x * total.x + total.y * total.y + total.z * total.z + total.w * total.w;
#pragma unroll
  for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
  if (lane() == 0) store(&work.squares[task.columns()][token], squares);
}

// A half warp's share of a head: one token, four dimensions a thread and the four that they are rotated with.
struct HeadShare {
  int token, dim;
  Words first_norm, second_norm, cosines, sines;
  __device__ __forceinline__ HeadShare(const Layer& layer, const bf16* cosines_at, const bf16* sines_at, const Task& task,
                                       const User& user)
      : token(task.qkv_part() * 16 + user.thread / 16), dim(lane() % 16 * 4) {
    const bf16* norm = task.head() < HEADS ? layer.query_norm : layer.key_norm;
    first_norm = load_words(norm + dim);
    second_norm = load_words(norm + 64 + dim);
    cosines = load_words(cosines_at + token * DIM + dim);
    sines = load_words(sines_at + token * DIM + dim);
  }
};
__device__ __forceinline__ float number_of(const Words& words, int index) {
  u32 pair = index < 2 ? words.x : words.y;
  return index % 2 ? high_number(pair) : low_number(pair);
}

// Add up its parts; norm and rotate queries and keys.
__device__ __forceinline__ void finish_head(const HeadShare& share, Work& work, const Task& task) {
  const auto& [token, dim, first_norm, second_norm, cosines, sines] = share;
  int head = task.head(), half_lane = lane() % 16;
  float first[4], second[4];  // dimensions dim to dim + 3, and 64 further on
  float squares = load_one(&work.squares[half_lane][token]);
  Four parts[QKV_PARTS][2];
#pragma unroll
  for (int part = 0; part < QKV_PARTS; ++part)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      parts[part][half] = load_four(&work.qkv_parts[part][head][token][dim + 64 * half]);
#pragma unroll
  for (int step = 8; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
  float scale = rsqrtf(squares / HIDDEN + EPSILON);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Four sum = parts[0][half];
#pragma unroll
    for (int part = 1; part < QKV_PARTS; ++part)
      sum = {sum.x + parts[part][half].x, sum.y + parts[part][half].y, sum.z + parts[part][half].z,
             sum.w + parts[part][half].w};
    float* to = half ? second : first;
    to[0] = sum.x * scale, to[1] = sum.y * scale, to[2] = sum.z * scale, to[3] = sum.w * scale;
  }
  bf16* result = head < HEADS ? &work.query[head][token][0] : &work.own[(head - HEADS) / KV_HEADS][head % KV_HEADS][token][0];
  if (head < HEADS + KV_HEADS) {
    float total = 0.f;
#pragma unroll
    for (int i = 0; i < 4; ++i) total += first[i] * first[i] + second[i] * second[i];
#pragma unroll
    for (int step = 8; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    float head_scale = rsqrtf(total / DIM + EPSILON);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float cosine = number_of(cosines, i), sine = number_of(sines, i);
      float one = first[i] * head_scale * number_of(first_norm, i);
      float other = second[i] * head_scale * number_of(second_norm, i);
      first[i] = one * cosine - other * sine;
      second[i] = other * cosine + one * sine;
    }
  }
  store(result + dim, Words{rounded(first[0], first[1]), rounded(first[2], first[3])});
  store(result + 64 + dim, Words{rounded(second[0], second[1]), rounded(second[2], second[3])});
}

// Where the next two stages lie; they have arrived.
struct Halves {
  u32 first, second;
  __device__ __forceinline__ explicit Halves(Rows& rows) {
    rows.wait_full();
    first = rows.at();
    rows.advance();
    rows.wait_full();
    second = rows.at();
    rows.advance();
  }
};

__device__ __forceinline__ void attend_to_part(Work& work, Weights& weights, Rows& rows, int length, float scale,
                                               const Task& task, const User& user) {
  Part part = Part::of(length, task.key_part(), KEY_PARTS);
  Halves one(rows), other(rows);
  Attention attention(user.group ? other.first : one.first, user.group ? other.second : one.second, user.warp, scale);
  attention.take(weights, part, user.group);
  if (part.own) {
    Halves keys(rows), values(rows);
    attention.take(keys.first, keys.second, values.first, values.second);
  }
  rows.last_used(part.own ? 8 : 4);

  int head = 2 * task.kv_head() + user.group;
  float upper = attention.upper.sum(), lower = attention.lower.sum();
  if (lane() % 4 == 0) {
    auto to = work.softmax[head][task.key_part()];
    store(to[user.upper()], Two{attention.upper.highest, upper});
    store(to[user.upper() + 8], Two{attention.lower.highest, lower});
  }
  auto to = work.mixed_parts[head][task.key_part()];
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      int row = user.upper() + (i % 4 < 2 ? 0 : 8), dim = half * 64 + i / 4 * 8 + user.column();
      store(&to[row][dim], Two{attention.mixed[half].v[i], attention.mixed[half].v[i + 1]});
    }
}

// Put the parts of the keys together: one token of one head a warp.
__device__ __forceinline__ void mix_parts(Work& work, const Task& task, const User& user) {
  int row = task.key_part() * 8 + user.thread / 32;
  int head = 2 * task.kv_head() + row / TOKENS, token = row % TOKENS, dim = lane() * 4;
  Two softmax = load_two(work.softmax[head][lane() % KEY_PARTS][token]);
  Four parts[KEY_PARTS];
#pragma unroll
  for (int part = 0; part < KEY_PARTS; ++part) parts[part] = load_four(&work.mixed_parts[head][part][token][dim]);
  float highest = softmax.x;
#pragma unroll
  for (int step = 8; step; step /= 2) highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
  float share = power_of_two(softmax.x - highest), total = share * softmax.y;
#pragma unroll
  for (int step = 8; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
  share /= total;
  Four sum{0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int part = 0; part < KEY_PARTS; ++part) {
    float its = __shfl_sync(~0u, share, part);
    sum = {sum.x + its * parts[part].x, sum.y + its * parts[part].y, sum.z + its * parts[part].z,
           sum.w + its * parts[part].w};
  }
  store(&work.mixed[token][head * DIM + dim], Words{rounded(sum.x, sum.y), rounded(sum.z, sum.w)});
}

// silu(gate) * up: both stand in the same thread.
__device__ __forceinline__ void store_gated(const Sum& sum, const float (&scales)[2], Work& work, const Task& task,
                                            const User& user) {
#pragma unroll
  for (int i = 0; i < 16; i += 2) {
    int row = user.upper() + (i % 4 < 2 ? 0 : 8);
    float scale = scales[i % 4 < 2 ? 0 : 1], gated[2];
#pragma unroll
    for (int each = 0; each < 2; ++each) {
      float gate = sum.v[i + each] * scale, up = sum.v[16 + i + each] * scale;
      gated[each] = gate / (1.f + __expf(-gate)) * up;
    }
    int column = task.program * CHUNK + user.group * 32 + i / 4 * 8 + user.column();
    store(&work.inner[row][column], rounded(gated[0], gated[1]));
  }
}

// Out and down: the product's parts, and their sum in the residual stream.
__device__ __forceinline__ void add_product_to_hidden(Weights& weights, Rows& rows, int chunks, bf16* hidden,
                                                      const bf16* norm, u32* flags, Work& work, const Task& task,
                                                      const User& user) {
  Residual residual(hidden, norm, task, user);
  Sum sum;
  multiply(sum, weights, rows, chunks, user.group);
  store_part(sum, &work.sum_parts[task.sum_part()][task.columns()][0][0], user);
  announce(flags + task.columns());
  wait_for_all(flags + task.columns(), 1, SUM_PARTS);
  add_to_hidden<SUM_PARTS>(residual, hidden, work, task);
}

__device__ __forceinline__ void multiply_all(Weights weights, Rows rows, Task task, const Layer* layers, int count, Flags* flags,
                             Work& work, bf16* hidden, const bf16* cosines, const bf16* sines, int length, float scale,
                             User user) {
  if (task.any()) {
    add_to_hidden<0>(Residual(hidden, layers[0].first_norm, task, user), hidden, work, task);
    announce(flags->hidden + task.columns());
  }
  for (int index = 0; index < count; ++index, ++flags) {
    const Layer& layer = layers[index];
    if (task.any()) {
      int head = task.head(), kv_head = head < HEADS ? head / 2 : head % KV_HEADS;
      HeadShare share(layer, cosines, sines, task, user);
      Sum sum;
      multiply(sum, weights, rows, QKV_CHUNKS, user.group);
      store_part(sum, &work.qkv_parts[task.qkv_part()][head][0][0], user);
      announce(flags->qkv_parts + head);
      // the parts of this head; and all of `hidden`, since the squares of whole rows are read
      bool parts = lane() == COLUMNS;
      wait_for(parts ? flags->qkv_parts + head : lane() < COLUMNS ? flags->hidden + lane() : nullptr,
               parts ? QKV_PARTS : SUM_PARTS);
      finish_head(share, work, task);
      announce(flags->qkv + kv_head);

      attend_to_part(work, weights, rows, length, scale, task, user);
      announce(flags->mixed_parts + task.kv_head());
      wait_for_all(flags->mixed_parts + task.kv_head(), 1, KEY_PARTS);
      mix_parts(work, task, user);
      announce(flags->mixed + task.kv_head());

      add_product_to_hidden(weights, rows, OUT_CHUNKS, hidden, layer.second_norm, flags->out_parts, work, task, user);
      announce(flags->second + task.columns());
    }
    if (task.inner()) {
      constexpr int LAST = 4;
      Sum sum;
      multiply(sum, weights, rows, INNER_CHUNKS - LAST, user.group);
      float scales[2] = {scale_of(work, user.upper()), scale_of(work, user.upper() + 8)};  // while weights come
      multiply(sum, weights, rows, LAST, user.group);
      store_gated(sum, scales, work, task, user);
      announce(flags->inner + task.program);
    }
    if (task.any()) {
      add_product_to_hidden(weights, rows, task.inner_end() - task.inner_first(), hidden, layers[index + 1].first_norm,
                            flags->down_parts, work, task, user);
      announce(flags[1].hidden + task.columns());
    }
  }
}

// hidden [64, 2048]: the residual stream, in place. layers: `count` and one more, whose weights may be any. flags: `count`
// + 1, zero. cosines, sines [64, 128]. table, length: the prefix in the cache. scale: of scores, to base 2. Launched with a
// program for each task of a stage, all at once.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    expert_layers(const Layer* layers, long long count, const WorkMaps* maps, Flags* flags, Work* work, bf16* hidden,
                  const bf16* cosines, const bf16* sines, const int* table, const int* length_at, float scale) {
  extern __shared__ unsigned char memory[];
  u32 base = (shared_address(memory) + 1023) & ~1023u;
  Weights weights(base, base + Weights::SIZE + Rows::SIZE);
  Rows rows(base + Weights::SIZE, base + Weights::SIZE + Rows::SIZE + Weights::BARRIER_BYTES);
  if (threadIdx.x == 0) {
    weights.init();
    rows.init();
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  Task task{static_cast<int>(blockIdx.x)};
  int length = *length_at, thread = threadIdx.x;
  int warp = __shfl_sync(~0u, thread / 32, 0);  // so that the compiler knows: all threads of a warp go the same way
  if (warp < USERS / 32) {
    take_registers();
    multiply_all(weights, rows, task, layers, count, flags, *work, hidden, cosines, sines, length, scale, User(thread));
  } else {
    give_registers();
    if (warp == USERS / 32) {
      if (lane() == 0) load_all_weights(weights, task, layers, count, table, length);
    } else if (warp == USERS / 32 + 1) {
      load_all_rows(rows, task, count, flags, *maps);
    }
  }
}
