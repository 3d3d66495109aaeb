/* The work of the conformance suite on processors. */
#include "comm_work.h"
#include "comm_values.h"

static void at(aprt_device *d, uint32_t instruction)
{
    aprt_at(d, instruction);
}

static int exchange(aprt_device *d, uint32_t number, const void *src, void *dst)
{
    return aprt_exchange_run(d, &d->stage->exchange[number], src, dst);
}

static void set(aprt_device *d, void *dst, int byte, int64_t bytes)
{
    (void)d;
    memset(dst, byte, (size_t)bytes);
}

static void copy(aprt_device *d, void *dst, const void *src, int64_t bytes)
{
    (void)d;
    memcpy(dst, src, (size_t)bytes);
}

static void fill(aprt_device *d, int32_t dtype, bool special, int64_t round, int64_t n, void *dst)
{
    for (int64_t i = 0; i < n; i++)
        comm_put(dtype, dst, i, comm_value(dtype, special, d->rank, round, i));
}

static void first(aprt_device *d, uint64_t seed, bool coarse, float *v)
{
    for (int64_t i = 0; i < COMM_LENGTH; i++)
        v[i] = comm_first_value(seed, coarse, d->rank, d->mb, i);
}

static void add_slot(aprt_device *d, int32_t dtype, const void *slot, float *v)
{
    (void)d;
    for (int64_t i = 0; i < COMM_LENGTH; i++)
        v[i] += comm_from_slot(dtype, slot, i);
}

static void spread(aprt_device *d, int64_t n, float *v, float *y)
{
    (void)d;
    for (int64_t i = 0; i < n; i++) {
        v[i] = v[i % COMM_LENGTH];
        y[i] = 0;
    }
}

static void halve_add(aprt_device *d, float *v, const float *y)
{
    (void)d;
    for (int64_t i = 0; i < COMM_LENGTH; i++)
        v[i] = 0.5f * v[i] + y[i];
}

static void wrap_all(aprt_device *d, float *v)
{
    (void)d;
    for (int64_t i = 0; i < COMM_LENGTH; i++)
        v[i] = comm_wrap(v[i]);
}

static void fill_slot(aprt_device *d, int32_t dtype, const float *v, void *slot)
{
    (void)d;
    for (int64_t i = 0; i < COMM_LENGTH; i++)
        comm_put(dtype, slot, i, comm_to_slot(dtype, v[i]));
}

const comm_work comm_on_processors = {
    .in_order = true,
    .at = at,
    .exchange = exchange,
    .set = set,
    .copy = copy,
    .fill = fill,
    .first = first,
    .add_slot = add_slot,
    .spread = spread,
    .halve_add = halve_add,
    .wrap_all = wrap_all,
    .fill_slot = fill_slot,
};
