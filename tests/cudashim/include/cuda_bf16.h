/* cuda_bf16.h - of the test shim, see cudashim.h: the type, conversions, and pairs. */
#ifndef CUDASHIM_BF16_H
#define CUDASHIM_BF16_H

#include "cuda_runtime.h"

typedef struct __attribute__((aligned(2))) __nv_bfloat16_raw {
    unsigned short x;
} __nv_bfloat16_raw;

#ifdef __cplusplus
static inline float cudashim_bf16_to_float(unsigned short h)
{
    return __uint_as_float((unsigned)h << 16);
}

/* To nearest, ties to even; NaN stays one. */
static inline unsigned short cudashim_float_to_bf16(float f)
{
    unsigned u = __float_as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float f) : bits(cudashim_float_to_bf16(f)) {}
    __nv_bfloat16(const __nv_bfloat16_raw &r) : bits(r.x) {}
    operator float() const { return cudashim_bf16_to_float(bits); }
    operator __nv_bfloat16_raw() const { return __nv_bfloat16_raw{bits}; }
};
typedef __nv_bfloat16 nv_bfloat16;
struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 h)
{
    return cudashim_bf16_to_float(h.bits);
}
static inline __nv_bfloat16 __float2bfloat16(float f)
{
    return __nv_bfloat16(f);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
    return __nv_bfloat16(f);
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return __nv_bfloat162{__nv_bfloat16(a), __nv_bfloat16(b)};
}
static inline float2 __bfloat1622float2(__nv_bfloat162 h)
{
    return make_float2(h.x, h.y);
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u)
{
    return __nv_bfloat16(__nv_bfloat16_raw{u});
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h)
{
    return h.bits;
}
#endif
#endif
