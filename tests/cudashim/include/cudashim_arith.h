/* cudashim_arith.h - device functions of arithmetic and atomics. Included by cudashim_device.h. */
#ifndef CUDASHIM_ARITH_H
#define CUDASHIM_ARITH_H

/* ---- atomics: of integers as the hardware has them, of floats by comparing and exchanging ---- */

template <typename T, typename F> __attribute__((no_sanitize("thread"))) static inline T cudashim_update(T *p, F f)
{
    typedef typename std::conditional<sizeof(T) == 8, unsigned long long, unsigned>::type bits;
    cudashim_atomic(p, sizeof(T));
    bits *b = (bits *)p, old = __atomic_load_n(b, __ATOMIC_RELAXED), fresh;
    T was;
    do {
        memcpy(&was, &old, sizeof was);
        T now = f(was);
        memcpy(&fresh, &now, sizeof now);
    } while (!__atomic_compare_exchange_n(b, &old, fresh, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return was;
}

#define CUDASHIM_ATOMIC(name, T, expression)                                                                           \
    static inline T name(T *p, T v)                                                                                    \
    {                                                                                                                  \
        return cudashim_update(p, [v](T was) -> T { return expression; });                                             \
    }
#define CUDASHIM_ATOMIC_INTEGERS(name, expression)                                                                     \
    CUDASHIM_ATOMIC(name, int, expression)                                                                             \
    CUDASHIM_ATOMIC(name, unsigned, expression)                                                                        \
    CUDASHIM_ATOMIC(name, unsigned long long, expression)
CUDASHIM_ATOMIC_INTEGERS(atomicAdd, was + v)
CUDASHIM_ATOMIC(atomicAdd, float, was + v)
CUDASHIM_ATOMIC(atomicAdd, double, was + v)
CUDASHIM_ATOMIC(atomicSub, int, was - v)
CUDASHIM_ATOMIC(atomicSub, unsigned, was - v)
CUDASHIM_ATOMIC_INTEGERS(atomicMin, v < was ? v : was)
CUDASHIM_ATOMIC(atomicMin, long long, v < was ? v : was)
CUDASHIM_ATOMIC_INTEGERS(atomicMax, v > was ? v : was)
CUDASHIM_ATOMIC(atomicMax, long long, v > was ? v : was)
CUDASHIM_ATOMIC_INTEGERS(atomicAnd, was &v)
CUDASHIM_ATOMIC_INTEGERS(atomicOr, was | v)
CUDASHIM_ATOMIC_INTEGERS(atomicXor, was ^ v)
CUDASHIM_ATOMIC_INTEGERS(atomicExch, ((void)was, v))
CUDASHIM_ATOMIC(atomicExch, float, ((void)was, v))
CUDASHIM_ATOMIC(atomicInc, unsigned, was >= v ? 0 : was + 1)
CUDASHIM_ATOMIC(atomicDec, unsigned, was == 0 || was > v ? v : was - 1)
#undef CUDASHIM_ATOMIC_INTEGERS
#undef CUDASHIM_ATOMIC

#define CUDASHIM_CAS(T)                                                                                                \
    static inline T atomicCAS(T *p, T compare, T v)                                                                    \
    {                                                                                                                  \
        return cudashim_update(p, [compare, v](T was) -> T { return was == compare ? v : was; });                      \
    }
CUDASHIM_CAS(int)
CUDASHIM_CAS(unsigned)
CUDASHIM_CAS(unsigned long long)
#undef CUDASHIM_CAS

/* ---- loads and stores with a hint ---- */

template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldca(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcg(T *p, T v)
{
    *p = v;
}
template <typename T> static inline void __stcs(T *p, T v)
{
    *p = v;
}
template <typename T> static inline void __stwt(T *p, T v)
{
    *p = v;
}

/* ---- bits ---- */

static inline float __int_as_float(int v)
{
    return cudashim_unpack<float>((unsigned)v);
}
static inline float __uint_as_float(unsigned v)
{
    return cudashim_unpack<float>(v);
}
static inline int __float_as_int(float v)
{
    return cudashim_unpack<int>(cudashim_pack(v));
}
static inline unsigned __float_as_uint(float v)
{
    return cudashim_unpack<unsigned>(cudashim_pack(v));
}
static inline double __longlong_as_double(long long v)
{
    return cudashim_unpack<double>((unsigned long long)v);
}
static inline long long __double_as_longlong(double v)
{
    return (long long)cudashim_pack(v);
}
static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
static inline int __popcll(unsigned long long v)
{
    return __builtin_popcountll(v);
}
static inline int __clz(int v)
{
    return v ? __builtin_clz((unsigned)v) : 32;
}
static inline int __clzll(long long v)
{
    return v ? __builtin_clzll((unsigned long long)v) : 64;
}
static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
static inline int __ffsll(long long v)
{
    return __builtin_ffsll(v);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((unsigned long long)a * b) >> 32);
}
static inline int __mulhi(int a, int b)
{
    return (int)(((long long)a * b) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

/* ---- floats: what rounds to nearest is exact, what is approximate on a GPU is precise here ---- */

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}
/* Products and sums that are not to be joined into an fma, whatever the compiler's settings. */
static inline float __fmul_rn(float a, float b)
{
    volatile float v = a * b;
    return v;
}
static inline float __fadd_rn(float a, float b)
{
    volatile float v = a + b;
    return v;
}
static inline float __fsub_rn(float a, float b)
{
    volatile float v = a - b;
    return v;
}
static inline double __dmul_rn(double a, double b)
{
    volatile double v = a * b;
    return v;
}
static inline double __dadd_rn(double a, double b)
{
    volatile double v = a + b;
    return v;
}
static inline double __dsub_rn(double a, double b)
{
    volatile double v = a - b;
    return v;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
static inline double __dsqrt_rn(double a)
{
    return sqrt(a);
}
static inline float rsqrtf(float a)
{
    return 1.0f / sqrtf(a);
}
static inline double rsqrt(double a)
{
    return 1.0 / sqrt(a);
}
static inline float __saturatef(float a)
{
    return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f;
}
/* macros, because the C library has these names */
#define __expf expf
#define __logf logf
#define __powf powf
#define __fdividef(a, b) ((a) / (b))

/* Conversions clamp, NaN gives zero, as on a GPU. */
template <typename T> static inline T cudashim_to_integer(double v, double low, double above)
{
    if (!(v == v))
        return 0;
    return v < low ? (T)low : v >= above ? (T)((unsigned long long)above - 1) : (T)v;
}
static inline int __float2int_rz(float v)
{
    return cudashim_to_integer<int>(v, -0x1p31, 0x1p31);
}
static inline int __float2int_rn(float v)
{
    return cudashim_to_integer<int>(nearbyint(v), -0x1p31, 0x1p31);
}
static inline unsigned __float2uint_rz(float v)
{
    return cudashim_to_integer<unsigned>(v, 0, 0x1p32);
}
static inline int __double2int_rz(double v)
{
    return cudashim_to_integer<int>(v, -0x1p31, 0x1p31);
}
static inline long long __float2ll_rz(float v)
{
    return cudashim_to_integer<long long>(v, -0x1p63, 0x1p63);
}
static inline long long __double2ll_rz(double v)
{
    return cudashim_to_integer<long long>(v, -0x1p63, 0x1p63);
}
static inline float __int2float_rn(int v)
{
    return (float)v;
}
static inline float __ll2float_rn(long long v)
{
    return (float)v;
}
static inline float __uint2float_rn(unsigned v)
{
    return (float)v;
}
static inline double __ll2double_rn(long long v)
{
    return (double)v;
}
static inline float __double2float_rn(double v)
{
    return (float)v;
}

/* min and max: of floats a number wins over NaN, as fminf does. */
#define CUDASHIM_MINMAX(T)                                                                                             \
    static inline T min(T a, T b)                                                                                      \
    {                                                                                                                  \
        return b < a ? b : a;                                                                                          \
    }                                                                                                                  \
    static inline T max(T a, T b)                                                                                      \
    {                                                                                                                  \
        return a < b ? b : a;                                                                                          \
    }
CUDASHIM_MINMAX(int)
CUDASHIM_MINMAX(unsigned)
CUDASHIM_MINMAX(long)
CUDASHIM_MINMAX(unsigned long)
CUDASHIM_MINMAX(long long)
CUDASHIM_MINMAX(unsigned long long)
#undef CUDASHIM_MINMAX
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}

#endif
