// What the kernels here need of Hopper's instructions (PTX ISA 8.0): barriers and rings in shared memory, asynchronous
// copies, products of warp groups. No header is included, so NVRTC needs none.
#pragma once

using u32 = unsigned int;
using u64 = unsigned long long;
using bf16 = unsigned short;  // its bits

constexpr u64 PATIENCE = 4'000'000'000;  // ns, with what never comes: an error is better than a hang

__device__ __forceinline__ int lane() { return threadIdx.x % 32; }

struct Patience {
  u64 since = 0;
  int looks = 0;
  __device__ __forceinline__ void look_again() {
    if (++looks % 1024) return;
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (since == 0) since = now;
    if (now - since > PATIENCE) __trap();
  }
};

// --- numbers

constexpr float LOWEST = -1e30f;  // of scores: with it a key's share is 0

// Both rounded to the nearest; `low` is the one that stands first in memory.
__device__ __forceinline__ u32 rounded(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ float power_of_two(float exponent) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

// Of three warp groups with 168 registers a thread, two that multiply take some of those of the third one, which loads.
__device__ __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
__device__ __forceinline__ void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }

// Programmatic dependent launch: wait until the kernel before has written everything, and let the one after start.
__device__ __forceinline__ void wait_for_kernel_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// --- barriers in shared memory

__device__ __forceinline__ u32 shared_address(const void* at) {
  return static_cast<u32>(__cvta_generic_to_shared(at));
}
__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After `barrier_init`: the accelerator, and other programs, see them.
__device__ __forceinline__ void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
  for (Patience patience;; patience.look_again()) {
    u32 passed;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(passed)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (passed) return;
  }
}

// --- clusters: programs that run at the same time and reach each other's shared memory

__device__ __forceinline__ u32 place_in_cluster() {
  u32 place;
  asm volatile("mov.u32 %0, %cluster_ctarank;" : "=r"(place));
  return place;
}
// That a program runs, which it has to before others reach for its memory.
__device__ __forceinline__ void cluster_started() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
// What all threads of a cluster's programs wrote before they arrived is seen by those who have waited.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// The same place of shared memory in another program.
__device__ __forceinline__ u32 address_at(u32 address, u32 place) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(place));
  return there;
}
__device__ __forceinline__ void store_there(u32 there, float first, float second) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(there), "f"(first), "f"(second) : "memory");
}

// --- copies from global to shared memory, by the tensor memory accelerator

constexpr int LINE = 128;  // bytes of a row in shared memory: 64 numbers, in eight pieces that are turned by the row

struct alignas(64) Map {  // of a tensor, made by the host: "tensor map"
  unsigned char opaque[128];
};

// Fetch a map that will soon be copied by.
__device__ __forceinline__ void prefetch_map(const Map& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The tensor cores and the accelerator read memory by a way of their own: before, what threads have written has to be seen.
__device__ __forceinline__ void writes_seen() { asm volatile("fence.proxy.async;" ::: "memory"); }

// A box of a tensor, whose sizes are the map's: from these coordinates on, the innermost first.
__device__ __forceinline__ void copy_box(u32 to, u32 barrier, const Map& map, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::
          "r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// A matrix of 64 rows by 64 numbers, by the first COPYING threads together, turned as the accelerator does.
template <int COPYING>
__device__ __forceinline__ void copy_matrix(u32 to, const bf16* from, int stride) {
#pragma unroll
  for (int each = threadIdx.x; each < 64 * 8; each += COPYING) {
    int row = each / 8, piece = each % 8;
    u32 a, b, c, d;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(from + row * stride + piece * 8)
                 : "memory");
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to + row * LINE + ((piece ^ (row % 8)) * 16)), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
  }
}

// Values that don't count may be anything, also no numbers, of which a share of 0 would make none either: so rows `first` to
// `end` of 128 numbers become zeros. Halves of a row are in matrices `half` bytes apart; by CLEARING threads.
template <int CLEARING>
__device__ __forceinline__ void clear_rows(u32 matrix, int half, int first, int end, int thread) {
  for (int each = thread; each < (end - first) * 16; each += CLEARING) {
    u32 to = matrix + each % 16 / 8 * half + (first + each / 16) * LINE + each % 8 * 16;
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  }
}

// Stages in shared memory that one warp fills and others use, in the same order, each at its own pace.
template <int STAGES, int BYTES, int USERS>
struct Ring {
  static constexpr int SIZE = STAGES * BYTES;
  static constexpr int BARRIER_BYTES = 16 * STAGES;
  u32 memory, full, empty;
  u32 stage = 0, parity = 0;

  __device__ Ring(u32 memory, u32 barriers) : memory(memory), full(barriers), empty(barriers + 8 * STAGES) {}

  __device__ void init() const {  // by one thread
    for (int each = 0; each < STAGES; ++each) {
      barrier_init(full + 8 * each, 1);
      barrier_init(empty + 8 * each, USERS);
    }
  }
  __device__ __forceinline__ u32 at() const { return memory + stage * BYTES; }
  __device__ __forceinline__ u32 barrier() const { return full + 8 * stage; }
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
  // For the warp that fills: wait, copy that many bytes to `at()` by `barrier()`, and advance.
  __device__ __forceinline__ void wait_empty(int bytes) const {
    barrier_wait(empty + 8 * stage, parity ^ 1);
    if (lane() == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier()), "r"(bytes) : "memory");
    __syncwarp();
  }
  // For those who use it: one arrival of each warp.
  __device__ __forceinline__ void wait_full() const { barrier_wait(full + 8 * stage, parity); }
  __device__ __forceinline__ void used() {
    __syncwarp();
    if (lane() == 0) barrier_arrive(empty + 8 * stage);
    advance();
  }
};

// --- products of a warp group: 64 rows, 128 columns, the sum in float32

// Rows of 128 bytes, turned ("128-byte swizzle"); moved along a row by adding (bytes / 16). The columns of a matrix whose
// rows are the sum's dimension go on `next` bytes further, each 64 of them.
__device__ __forceinline__ u64 matrix_at(u32 address, u32 next = 16) {
  return (static_cast<u64>(1) << 62) | (static_cast<u64>(8 * LINE / 16) << 32) | (static_cast<u64>(next / 16) << 16) |
         ((address & 0x3ffff) >> 4);
}
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_sent() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// A thread's numbers: of row 16 warp + lane / 4 (first and second of four) and the row 8 below (third and fourth),
// columns 8 i + 2 (lane % 4) and the next.
struct Sum {
  float v[64];
  __device__ Sum() {
#pragma unroll
    for (int i = 0; i < 64; ++i) v[i] = 0.f;
  }
  __device__ __forceinline__ void keep() {  // the compiler must not touch them while products are under way
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(v[i])::"memory");
  }
};

#define SUM_OPERANDS \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define SUM_FLOATS(s) \
  "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]), \
  "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15]), \
  "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]), "+f"(s[21]), "+f"(s[22]), "+f"(s[23]), \
  "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]), "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31]), \
  "+f"(s[32]), "+f"(s[33]), "+f"(s[34]), "+f"(s[35]), "+f"(s[36]), "+f"(s[37]), "+f"(s[38]), "+f"(s[39]), \
  "+f"(s[40]), "+f"(s[41]), "+f"(s[42]), "+f"(s[43]), "+f"(s[44]), "+f"(s[45]), "+f"(s[46]), "+f"(s[47]), \
  "+f"(s[48]), "+f"(s[49]), "+f"(s[50]), "+f"(s[51]), "+f"(s[52]), "+f"(s[53]), "+f"(s[54]), "+f"(s[55]), \
  "+f"(s[56]), "+f"(s[57]), "+f"(s[58]), "+f"(s[59]), "+f"(s[60]), "+f"(s[61]), "+f"(s[62]), "+f"(s[63])

// sum += left right^T; both matrices have the sum's 16 numbers side by side.
__device__ __forceinline__ void add_product(Sum& sum, u64 left, u64 right) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.eq.u32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " SUM_OPERANDS
      ", %64, %65, p, 1, 1, 0, 0;\n"
      "}"
      : SUM_FLOATS(sum.v)
      : "l"(left), "l"(right));
}

// sum += left right: `left` in registers as a thread's numbers of `Sum` are, 16 columns of it; `right` has 16 rows.
__device__ __forceinline__ void add_mixed(Sum& sum, const u32 (&left)[4], u64 right) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.eq.u32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " SUM_OPERANDS
      ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
      "}"
      : SUM_FLOATS(sum.v)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

// --- products of one warp: 16 rows by 8 columns, the sum in float32

// Four matrices of 8 rows by 8 numbers. Lane 8 i + j says where row j of the i-th stands, and gets two numbers of each: of
// row lane / 4, numbers 2 (lane % 4) and the next; or the same of the transposed matrix.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void load_transposed(u32 (&to)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ u32 transposed(u32 pair) {  // one such matrix, of which each lane has two numbers
  u32 result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

// sum += left right^T. left: the matrices of rows 0 and 8 with the first 8 of the sum's 16 numbers, then with the others.
// right: 8 rows likewise. A thread's sums: of row lane / 4, columns 2 (lane % 4) and the next; then of the row 8 below.
__device__ __forceinline__ void add_small_product(float (&sum)[4], const u32 (&left)[4], const u32 (&right)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}
