/* The work of the conformance suite on GPUs. */
#include "autopar_rt_cuda.h"
#include "comm_values.h"
#include "comm_work.h"

enum { THREADS = 64 };
#define EACH(i, n)                                                                                                     \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (int64_t)gridDim.x * blockDim.x)

static __global__ void set(uint64_t word, int64_t n, uint64_t *dst)
{
    EACH(i, n)
    {
        dst[i] = word;
    }
}

static __global__ void copy(int64_t n, const uint64_t *src, uint64_t *dst)
{
    EACH(i, n)
    {
        dst[i] = src[i];
    }
}

static __global__ void fill(int32_t dtype, bool special, int32_t rank, int64_t round, int64_t n, void *dst)
{
    EACH(i, n)
    comm_put(dtype, dst, i, comm_value(dtype, special, rank, round, i));
}

static __global__ void first(uint64_t seed, bool coarse, int32_t rank, int64_t mb, float *v)
{
    EACH(i, COMM_LENGTH)
    v[i] = comm_first_value(seed, coarse, rank, mb, i);
}

static __global__ void add_slot(int32_t dtype, const void *slot, float *v)
{
    EACH(i, COMM_LENGTH)
    v[i] += comm_from_slot(dtype, slot, i);
}

/* The first elements stay as they are. */
static __global__ void spread(int64_t n, float *v, float *y)
{
    EACH(i, n)
    {
        if (i >= COMM_LENGTH)
            v[i] = v[i % COMM_LENGTH];
        y[i] = 0;
    }
}

static __global__ void halve_add(float *v, const float *y)
{
    EACH(i, COMM_LENGTH)
    v[i] = 0.5f * v[i] + y[i];
}

static __global__ void wrap_all(float *v)
{
    EACH(i, COMM_LENGTH)
    v[i] = comm_wrap(v[i]);
}

static __global__ void fill_slot(int32_t dtype, const float *v, void *slot)
{
    EACH(i, COMM_LENGTH)
    comm_put(dtype, slot, i, comm_to_slot(dtype, v[i]));
}

#define RUN(d, kernel, n, ...)                                                                                         \
    do {                                                                                                               \
        APRT_LAUNCH(kernel, aprt_cuda_grid(d, ((n) + THREADS - 1) / THREADS), THREADS, 0, aprt_cuda_stream(d),         \
                    __VA_ARGS__);                                                                                      \
        aprt_cuda_launched(d);                                                                                         \
    } while (0)

static void do_at(aprt_device *d, uint32_t instruction)
{
    aprt_cuda_at(d, instruction);
}

static int do_exchange(aprt_device *d, uint32_t number, const void *src, void *dst)
{
    if (number % 2 == 0)
        return aprt_exchange_run(d, &d->stage->exchange[number], src, dst);
    aprt_cuda_exchange(d, number, src, dst);
    aprt_cuda_arrived(d, number + 1);
    return APRT_OK;
}

static void do_set(aprt_device *d, void *dst, int byte, int64_t bytes)
{
    RUN(d, set, bytes / 8, 0x0101010101010101u * (uint64_t)byte, bytes / 8, (uint64_t *)dst);
}

static void do_copy(aprt_device *d, void *dst, const void *src, int64_t bytes)
{
    RUN(d, copy, bytes / 8, bytes / 8, (const uint64_t *)src, (uint64_t *)dst);
}

static void do_fill(aprt_device *d, int32_t dtype, bool special, int64_t round, int64_t n, void *dst)
{
    RUN(d, fill, n, dtype, special, d->rank, round, n, dst);
}

static void do_first(aprt_device *d, uint64_t seed, bool coarse, float *v)
{
    RUN(d, first, COMM_LENGTH, seed, coarse, d->rank, d->mb, v);
}

static void do_add_slot(aprt_device *d, int32_t dtype, const void *slot, float *v)
{
    RUN(d, add_slot, COMM_LENGTH, dtype, slot, v);
}

static void do_spread(aprt_device *d, int64_t n, float *v, float *y)
{
    RUN(d, spread, n, n, v, y);
}

static void do_halve_add(aprt_device *d, float *v, const float *y)
{
    RUN(d, halve_add, COMM_LENGTH, v, y);
}

static void do_wrap_all(aprt_device *d, float *v)
{
    RUN(d, wrap_all, COMM_LENGTH, v);
}

static void do_fill_slot(aprt_device *d, int32_t dtype, const float *v, void *slot)
{
    RUN(d, fill_slot, COMM_LENGTH, dtype, v, slot);
}

extern "C" const comm_work comm_on_gpus = {
    &aprt_target_cuda, false,       do_at,     do_exchange,  do_set,      do_copy,      do_fill,
    do_first,          do_add_slot, do_spread, do_halve_add, do_wrap_all, do_fill_slot,
};
