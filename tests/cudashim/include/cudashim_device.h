/* cudashim_device.h - what kernels see: qualifiers, built-in variables, barriers, warps, atomics, arithmetic. */
#ifndef CUDASHIM_DEVICE_H
#define CUDASHIM_DEVICE_H

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "vector_types.h"

#define __host__
#define __device__
#define __global__
#define __constant__ static
#define __managed__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
/* Shared memory belongs to the host thread that runs the block; the section says where it is, for the checks. */
#define __shared__ static __thread __attribute__((section("cudashim_shared")))

#ifndef __restrict__
#define __restrict__ __restrict
#endif

/* Where a fiber stands: the built-in variables of the thread that runs. */
typedef struct cudashim_builtin {
    uint3 thread_index, block_index;
    dim3 block_extent, grid_extent;
} cudashim_builtin;
extern __thread cudashim_builtin cudashim_self;

#define threadIdx (cudashim_self.thread_index)
#define blockIdx (cudashim_self.block_index)
#define blockDim (cudashim_self.block_extent)
#define gridDim (cudashim_self.grid_extent)
enum { warpSize = 32 };

/* What a group of threads meets for. */
enum cudashim_meeting {
    CUDASHIM_SYNCTHREADS,
    CUDASHIM_SYNC_COUNT,
    CUDASHIM_SYNC_AND,
    CUDASHIM_SYNC_OR,
    CUDASHIM_SYNCWARP,
    CUDASHIM_SHFL,
    CUDASHIM_SHFL_UP,
    CUDASHIM_SHFL_DOWN,
    CUDASHIM_SHFL_XOR,
    CUDASHIM_BALLOT,
    CUDASHIM_ALL,
    CUDASHIM_ANY,
    CUDASHIM_MATCH_ANY,
    CUDASHIM_REDUCE_ADD,
    CUDASHIM_REDUCE_MIN,
    CUDASHIM_REDUCE_MAX,
    CUDASHIM_REDUCE_AND,
    CUDASHIM_REDUCE_OR,
    CUDASHIM_REDUCE_XOR
};

/* Waits for the others of the block or, with `mask`, of the warp; returns what the meeting gives this thread. A place
 * (file, line) is one barrier: threads of a group that wait at different ones are an error. */
unsigned long long cudashim_meet(enum cudashim_meeting kind, unsigned mask, unsigned long long value, int lane,
                                 int width, const char *file, int line);
void *cudashim_dynamic_shared(void);
void cudashim_atomic(const volatile void *p, unsigned bytes);
void cudashim_fence(void);
[[noreturn]] void cudashim_trap(void);
unsigned cudashim_lane(void);
unsigned cudashim_active(void);

#define APRT_SHARED(T, name) T *const name = (T *)cudashim_dynamic_shared()

#define CUDASHIM_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(CUDASHIM_HERE)
{
    cudashim_meet(CUDASHIM_SYNCTHREADS, 0, 0, 0, 0, file, line);
}
static inline int __syncthreads_count(int p, CUDASHIM_HERE)
{
    return (int)cudashim_meet(CUDASHIM_SYNC_COUNT, 0, p != 0, 0, 0, file, line);
}
static inline int __syncthreads_and(int p, CUDASHIM_HERE)
{
    return (int)cudashim_meet(CUDASHIM_SYNC_AND, 0, p != 0, 0, 0, file, line);
}
static inline int __syncthreads_or(int p, CUDASHIM_HERE)
{
    return (int)cudashim_meet(CUDASHIM_SYNC_OR, 0, p != 0, 0, 0, file, line);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, CUDASHIM_HERE)
{
    cudashim_meet(CUDASHIM_SYNCWARP, mask, 0, 0, 0, file, line);
}
static inline unsigned __activemask(void)
{
    return cudashim_active();
}

template <typename T> static inline unsigned long long cudashim_pack(T v)
{
    static_assert(sizeof(T) <= 8, "shuffles take up to eight bytes");
    unsigned long long u = 0;
    memcpy(&u, &v, sizeof v);
    return u;
}
template <typename T> static inline T cudashim_unpack(unsigned long long u)
{
    T v;
    memcpy(&v, &u, sizeof v);
    return v;
}

#define CUDASHIM_SHUFFLE(name, kind, Lane)                                                                             \
    template <typename T> static inline T name(unsigned mask, T value, Lane lane, int width = warpSize, CUDASHIM_HERE) \
    {                                                                                                                  \
        return cudashim_unpack<T>(cudashim_meet(kind, mask, cudashim_pack(value), (int)lane, width, file, line));      \
    }
CUDASHIM_SHUFFLE(__shfl_sync, CUDASHIM_SHFL, int)
CUDASHIM_SHUFFLE(__shfl_up_sync, CUDASHIM_SHFL_UP, unsigned)
CUDASHIM_SHUFFLE(__shfl_down_sync, CUDASHIM_SHFL_DOWN, unsigned)
CUDASHIM_SHUFFLE(__shfl_xor_sync, CUDASHIM_SHFL_XOR, int)
#undef CUDASHIM_SHUFFLE

static inline unsigned __ballot_sync(unsigned mask, int p, CUDASHIM_HERE)
{
    return (unsigned)cudashim_meet(CUDASHIM_BALLOT, mask, p != 0, 0, 32, file, line);
}
static inline int __all_sync(unsigned mask, int p, CUDASHIM_HERE)
{
    return (int)cudashim_meet(CUDASHIM_ALL, mask, p != 0, 0, 32, file, line);
}
static inline int __any_sync(unsigned mask, int p, CUDASHIM_HERE)
{
    return (int)cudashim_meet(CUDASHIM_ANY, mask, p != 0, 0, 32, file, line);
}
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T v, CUDASHIM_HERE)
{
    return (unsigned)cudashim_meet(CUDASHIM_MATCH_ANY, mask, cudashim_pack(v), 0, 32, file, line);
}

/* Integers of 32 bits, signed ones by their order. */
#define CUDASHIM_REDUCE(name, kind, T)                                                                                 \
    static inline T name(unsigned mask, T v, CUDASHIM_HERE)                                                            \
    {                                                                                                                  \
        return (T)(long long)cudashim_meet(kind, mask, (unsigned long long)(long long)v, 0, 32, file, line);           \
    }
CUDASHIM_REDUCE(__reduce_add_sync, CUDASHIM_REDUCE_ADD, unsigned)
CUDASHIM_REDUCE(__reduce_add_sync, CUDASHIM_REDUCE_ADD, int)
CUDASHIM_REDUCE(__reduce_min_sync, CUDASHIM_REDUCE_MIN, unsigned)
CUDASHIM_REDUCE(__reduce_min_sync, CUDASHIM_REDUCE_MIN, int)
CUDASHIM_REDUCE(__reduce_max_sync, CUDASHIM_REDUCE_MAX, unsigned)
CUDASHIM_REDUCE(__reduce_max_sync, CUDASHIM_REDUCE_MAX, int)
CUDASHIM_REDUCE(__reduce_and_sync, CUDASHIM_REDUCE_AND, unsigned)
CUDASHIM_REDUCE(__reduce_or_sync, CUDASHIM_REDUCE_OR, unsigned)
CUDASHIM_REDUCE(__reduce_xor_sync, CUDASHIM_REDUCE_XOR, unsigned)
#undef CUDASHIM_REDUCE

static inline void __threadfence(void)
{
    cudashim_fence();
}
static inline void __threadfence_block(void)
{
    cudashim_fence();
}
static inline void __threadfence_system(void)
{
    cudashim_fence();
}
static inline void __nanosleep(unsigned) {}
#define __trap() cudashim_trap()

#include "cudashim_arith.h"
#include "cudashim_launch.h"

#endif
