/* cuda_fp16.h - of the test shim, see cudashim.h: the type, conversions, and pairs. */
#ifndef CUDASHIM_FP16_H
#define CUDASHIM_FP16_H

#include "cuda_runtime.h"

typedef struct __attribute__((aligned(2))) __half_raw {
    unsigned short x;
} __half_raw;

#ifdef __cplusplus
static inline float cudashim_half_to_float(unsigned short h)
{
    unsigned sign = (unsigned)(h >> 15) << 31, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 31)
        return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) {
        float v = (float)mantissa * 0x1p-24f;
        return sign ? -v : v;
    }
    return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* To nearest, ties to even; NaN stays one. */
static inline unsigned short cudashim_float_to_half(float f)
{
    unsigned u = __float_as_uint(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return 0x7fff;
    if (a >= 0x477ff000u)
        return (unsigned short)(sign | 0x7c00u);
    if (a < 0x38800000u) /* denormal: the sum rounds it */
        return (unsigned short)(sign | (__float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u));
    return (unsigned short)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13));
}

struct __half {
    unsigned short bits;
    __half() = default;
    __half(float f) : bits(cudashim_float_to_half(f)) {}
    __half(const __half_raw &r) : bits(r.x) {}
    operator float() const { return cudashim_half_to_float(bits); }
    operator __half_raw() const { return __half_raw{bits}; }
};
typedef __half half;
struct __attribute__((aligned(4))) __half2 {
    __half x, y;
};
typedef __half2 half2;

static inline float __half2float(__half h)
{
    return cudashim_half_to_float(h.bits);
}
static inline __half __float2half(float f)
{
    return __half(f);
}
static inline __half __float2half_rn(float f)
{
    return __half(f);
}
static inline __half2 __floats2half2_rn(float a, float b)
{
    return __half2{__half(a), __half(b)};
}
static inline float2 __half22float2(__half2 h)
{
    return make_float2(h.x, h.y);
}
static inline __half __ushort_as_half(unsigned short u)
{
    return __half(__half_raw{u});
}
static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}
#endif
#endif
