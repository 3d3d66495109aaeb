/* Integer arithmetic that says when it overflows, and a few bounds. */
#ifndef AP_IR_BASE_NUM_H
#define AP_IR_BASE_NUM_H

#include <stdbool.h>
#include <stdint.h>

#define AP_NONE UINT32_MAX /* "no such id" for every kind of 32-bit id */

/* Each returns false, and leaves *out alone, when the exact result does not fit. */
static inline bool ap_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool ap_add_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline int64_t ap_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t ap_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The greatest common divisor of a, b >= 0; of 0 and b it is b. */
static inline int64_t ap_gcd_i64(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* a, b >= 0; saturating, for costs and byte counts that only compare. */
static inline int64_t ap_sat_add(int64_t a, int64_t b)
{
    int64_t r;
    return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
}

static inline int64_t ap_sat_mul(int64_t a, int64_t b)
{
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

#endif
