/* SPDX-License-Identifier: MIT
 *
 * autopar_rt.h - all that a compiled model needs, besides its own files.
 *
 * A *program* is a table made by the compiler: what the inputs and outputs are, and its *stages*. A stage runs on some
 * of the ranks: how much memory each of them needs, one function that does the work of one microbatch, and an
 * instruction list that says when it is done and what is received and sent around it. *Channels* carry values from
 * ranks of one stage to those of another. A *device* is a rank with an arena and a copy of its part of the parameters.
 * An *instance* is a program opened: memory, threads, loaded parameters. Any number of instances, of one program or
 * of several, may be open at a time; they share nothing. Calls on one instance are serialised by a lock, so that it
 * may be used from several threads.
 *
 * The first part of this file is scalar and vector arithmetic for kernels, the second the tables of a program, the
 * third what programs and applications call. Functions return APRT_OK or one of the other codes and never exit.
 */
#ifndef AUTOPAR_RT_H
#define AUTOPAR_RT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when tables or functions change their meaning; aprt_open refuses a program made for another one. */
#define APRT_ABI 6u

/* All that this file declares is seen outside of a shared library; the rest of the runtime is hidden. */
#pragma GCC visibility push(default)

#define APRT_HIDDEN __attribute__((visibility("hidden")))
#define APRT_MAX_RANK 8
#define APRT_MAX_AXES 6
#define APRT_MAX_LOOPS 16

typedef enum aprt_status {
    APRT_OK = 0,
    APRT_ERR_DATA = 1,  /* the data is wrong: an index out of range, an input that does not fit */
    APRT_ERR_USAGE = 2, /* a wrong call or command line */
    APRT_ERR_ENV = 4,   /* file (the program's own weights too: corrupt, short), memory, threads, library */
    APRT_ERR_BUG = 70
} aprt_status;

/* The numbers are those of ONNX's TensorProto.DataType. BOOL is a byte that holds 0 or 1. */
typedef enum aprt_dtype {
    APRT_F32 = 1,
    APRT_U8 = 2,
    APRT_I8 = 3,
    APRT_U16 = 4,
    APRT_I16 = 5,
    APRT_I32 = 6,
    APRT_I64 = 7,
    APRT_BOOL = 9,
    APRT_F16 = 10,
    APRT_F64 = 11,
    APRT_U32 = 12,
    APRT_U64 = 13,
    APRT_BF16 = 16
} aprt_dtype;

/* ------------------------------------------------------------------------------------------------------------------
 * Arithmetic for kernels. Everything here is branch-free where it matters, so that loops over it become vector code
 * without any of the "fast math" switches: NaN and infinities behave as they should. Kernels in CUDA have the same
 * formulas.
 */

/* A function that C, C++ and CUDA, on either side, may call. */
#ifdef __CUDACC__
#define APRT_FN static inline __host__ __device__
#else
#define APRT_FN static inline
#endif

APRT_FN uint32_t aprt_bits_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

APRT_FN float aprt_f32_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Half precision, round to nearest even. */
APRT_FN float aprt_f16_to_f32(uint16_t h)
{
#ifdef __CUDA_ARCH__ /* there is an instruction */
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
#else
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    /* 0x1p-14 * 1.m is put together as a normal number; subtracting 0x1p-14 leaves the subnormal's value. */
    uint32_t normal = (rest << 13) + (112u << 23), special = (rest << 13) | 0x7f800000u;
    uint32_t subnormal = aprt_bits_f32(aprt_f32_bits((rest << 13) + (113u << 23)) - 0x1p-14f);
    uint32_t u = rest >= 0x7c00u ? special : normal;
    return aprt_f32_bits((rest < 0x0400u ? subnormal : u) | sign);
#endif
}

APRT_FN uint16_t aprt_f32_to_f16(float x)
{
#ifdef __CUDA_ARCH__
    uint16_t y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
#else
    uint32_t u = aprt_bits_f32(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    uint32_t normal = (a - (112u << 23) + 0x0fffu + (a >> 13 & 1u)) >> 13;
    uint32_t subnormal = aprt_bits_f32(aprt_f32_bits(a) + 0.5f) - 0x3f000000u; /* the adder rounds */
    uint32_t h = a < 0x38800000u ? subnormal : normal;
    h = a >= 0x477ff000u ? 0x7c00u : h;
    h = a > 0x7f800000u ? 0x7e00u : h;
    return (uint16_t)(h | sign);
#endif
}

APRT_FN float aprt_bf16_to_f32(uint16_t h)
{
    return aprt_f32_bits((uint32_t)h << 16);
}

APRT_FN uint16_t aprt_f32_to_bf16(float x)
{
    uint32_t u = aprt_bits_f32(x), r = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)(x != x ? (u >> 16 | 0x40u) : r);
}

APRT_FN float aprt_round_f16(float x)
{
    return aprt_f16_to_f32(aprt_f32_to_f16(x));
}
APRT_FN float aprt_round_bf16(float x)
{
    return aprt_bf16_to_f32(aprt_f32_to_bf16(x));
}

/* e^x within 1.5 ulp: x = n ln 2 + r, a polynomial in r, and 2^n in two steps so that subnormal results come out. The
 * integer n is read from the bits of a sum whose last place is worth one. */
APRT_FN float aprt_exp_f32(float x)
{
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float z = c * 1.44269504f + 12582912.0f, n = z - 12582912.0f;
    float r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
    float q = ((((1.3813142e-3f * r + 8.369419e-3f) * r + 4.16684568e-2f) * r + 1.666651479e-1f) * r + 0.49999993f);
    float p = q * (r * r) + r + 1.0f;
    uint32_t k = aprt_bits_f32(z) - 0x4b400000u; /* n, two's complement */
    uint32_t half = (k >> 1) | (k & 0x80000000u);
    return p * aprt_f32_bits((half + 127u) << 23) * aprt_f32_bits((k - half + 127u) << 23);
}

APRT_FN float aprt_tanh_f32(float x)
{
    float a = fabsf(x), u = x * x;
    float p =
        ((((2.064662e-3f * u - 8.0919644e-3f) * u + 2.16663450e-2f) * u - 5.39405628e-2f) * u + 1.333315789e-1f) * u -
        3.333332961e-1f;
    float small = a + a * u * p, large = 1.0f - 2.0f / (aprt_exp_f32(2.0f * a) + 1.0f);
    return copysignf(a < 0.65f ? small : large, x); /* NaN goes through `large` */
}

/* |x| < 1: x times a polynomial in x². Beyond: 1 - e^q(|x|), where q approximates log erfc; 1 from 4 on. */
APRT_FN float aprt_erf_f32(float x)
{
    float a = fabsf(x), u = x * x;
    float p = (((((7.8538575507e-5f * u - 8.0101924749e-4f) * u + 5.1883275550e-3f) * u - 2.6853811867e-2f) * u +
                1.1283585147e-1f) *
                   u -
               3.7612625824e-1f) *
                  u +
              0.12837916571f;
    float small = a + a * p;
    float t = a > 4.0f ? 4.0f : a;
    float q = ((((((-2.1445603473e-5f * t + 4.3853034053e-4f) * t - 4.1908575762e-3f) * t + 2.5171813159e-2f) * t -
                 1.0836155880e-1f) *
                    t -
                6.3327240832e-1f) *
                   t -
               1.1295520439f) *
                  t +
              1.8246066986e-4f;
    float large = 1.0f - aprt_exp_f32(q);
    return copysignf(a < 1.0f ? small : large, x);
}

APRT_FN double aprt_exp_f64(double x)
{
    return exp(x);
}
APRT_FN double aprt_tanh_f64(double x)
{
    return tanh(x);
}
APRT_FN double aprt_erf_f64(double x)
{
    return erf(x);
}

/* `x`, or a NaN when `is_nan`, without a branch: chains of them become vector code. */
APRT_FN float aprt_or_nan_f32(float x, int is_nan)
{
    return aprt_f32_bits(aprt_bits_f32(x) | (uint32_t)-is_nan);
}
APRT_FN double aprt_or_nan_f64(double x, int is_nan)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    u |= (uint64_t)(-(int64_t)is_nan);
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Maximum and minimum where NaN wins; sign is 0 for 0 and NaN for NaN. */
#define APRT_FLOAT_OPS(T, s)                                                                                           \
    APRT_FN T aprt_max_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        return aprt_or_nan_##s(x > y ? x : y, x != x);                                                                 \
    }                                                                                                                  \
    APRT_FN T aprt_min_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        return aprt_or_nan_##s(x < y ? x : y, x != x);                                                                 \
    }                                                                                                                  \
    APRT_FN T aprt_sign_##s(T x)                                                                                       \
    {                                                                                                                  \
        return x > 0 ? (T)1 : x < 0 ? (T)-1 : x != x ? x : (T)0;                                                       \
    }
APRT_FLOAT_OPS(float, f32)
APRT_FLOAT_OPS(double, f64)
#undef APRT_FLOAT_OPS

/* Integers wrap; x/0 and x mod 0 are 0, MIN/-1 is MIN; mod has the sign of the divisor. U is the unsigned type in which
 * the sums are made, wide enough not to be promoted to a signed one. */
#define APRT_INT_COMMON(T, U, s)                                                                                       \
    APRT_FN T aprt_add_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        return (T)((U)x + (U)y);                                                                                       \
    }                                                                                                                  \
    APRT_FN T aprt_sub_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        return (T)((U)x - (U)y);                                                                                       \
    }                                                                                                                  \
    APRT_FN T aprt_mul_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        return (T)((U)x * (U)y);                                                                                       \
    }                                                                                                                  \
    APRT_FN T aprt_neg_##s(T x)                                                                                        \
    {                                                                                                                  \
        return (T)((U)0 - (U)x);                                                                                       \
    }                                                                                                                  \
    APRT_FN T aprt_max_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        return x > y ? x : y;                                                                                          \
    }                                                                                                                  \
    APRT_FN T aprt_min_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        return x < y ? x : y;                                                                                          \
    }
#define APRT_SIGNED_OPS(T, U, s)                                                                                       \
    APRT_INT_COMMON(T, U, s)                                                                                           \
    APRT_FN T aprt_abs_##s(T x)                                                                                        \
    {                                                                                                                  \
        return x < 0 ? aprt_neg_##s(x) : x;                                                                            \
    }                                                                                                                  \
    APRT_FN T aprt_sign_##s(T x)                                                                                       \
    {                                                                                                                  \
        return (T)((x > 0) - (x < 0));                                                                                 \
    }                                                                                                                  \
    APRT_FN T aprt_div_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        return y == 0 ? (T)0 : y == -1 ? aprt_neg_##s(x) : (T)(x / y);                                                 \
    }                                                                                                                  \
    APRT_FN T aprt_mod_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        T r = y == 0 || y == -1 ? (T)0 : (T)(x % y);                                                                   \
        return r != 0 && (r < 0) != (y < 0) ? (T)(r + y) : r;                                                          \
    }
#define APRT_UNSIGNED_OPS(T, U, s)                                                                                     \
    APRT_INT_COMMON(T, U, s)                                                                                           \
    APRT_FN T aprt_abs_##s(T x)                                                                                        \
    {                                                                                                                  \
        return x;                                                                                                      \
    }                                                                                                                  \
    APRT_FN T aprt_sign_##s(T x)                                                                                       \
    {                                                                                                                  \
        return (T)(x != 0);                                                                                            \
    }                                                                                                                  \
    APRT_FN T aprt_div_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        return y == 0 ? (T)0 : (T)(x / y);                                                                             \
    }                                                                                                                  \
    APRT_FN T aprt_mod_##s(T x, T y)                                                                                   \
    {                                                                                                                  \
        return y == 0 ? (T)0 : (T)(x % y);                                                                             \
    }
APRT_SIGNED_OPS(int8_t, uint32_t, i8)
APRT_SIGNED_OPS(int16_t, uint32_t, i16)
APRT_SIGNED_OPS(int32_t, uint32_t, i32)
APRT_SIGNED_OPS(int64_t, uint64_t, i64)
APRT_UNSIGNED_OPS(uint8_t, uint32_t, u8)
APRT_UNSIGNED_OPS(uint16_t, uint32_t, u16)
APRT_UNSIGNED_OPS(uint32_t, uint32_t, u32)
APRT_UNSIGNED_OPS(uint64_t, uint64_t, u64)
#undef APRT_SIGNED_OPS
#undef APRT_UNSIGNED_OPS
#undef APRT_INT_COMMON

/* Floats to integers truncate; what does not fit is clamped, NaN gives 0. END is the first value that is too large. */
#define APRT_OF_FLOAT(T, s, END, low, high)                                                                            \
    APRT_FN T aprt_##s##_of_float(double x)                                                                            \
    {                                                                                                                  \
        return x != x ? (T)0 : x >= END ? high : x <= (double)low ? low : (T)x;                                        \
    }
APRT_OF_FLOAT(int8_t, i8, 0x1p7, INT8_MIN, INT8_MAX)
APRT_OF_FLOAT(int16_t, i16, 0x1p15, INT16_MIN, INT16_MAX)
APRT_OF_FLOAT(int32_t, i32, 0x1p31, INT32_MIN, INT32_MAX)
APRT_OF_FLOAT(int64_t, i64, 0x1p63, INT64_MIN, INT64_MAX)
APRT_OF_FLOAT(uint8_t, u8, 0x1p8, 0, UINT8_MAX)
APRT_OF_FLOAT(uint16_t, u16, 0x1p16, 0, UINT16_MAX)
APRT_OF_FLOAT(uint32_t, u32, 0x1p32, 0, UINT32_MAX)
APRT_OF_FLOAT(uint64_t, u64, 0x1p64, 0, UINT64_MAX)
#undef APRT_OF_FLOAT

/* ------------------------------------------------------------------------------------------------------------------
 * The tables of a program.
 */

/* base + sum over axes of step[a] * coordinate[a]; for coordinates see aprt_stage */
typedef struct aprt_affine {
    int64_t base, step[APRT_MAX_AXES];
} aprt_affine;

/* Kept within lo ... hi. */
static inline int64_t aprt_clamp(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Of dimension `dim` of a box just the first value - per_peer * p elements are there, none at least and its extent at
 * most: `value` is that of the rank that asks, p the position of the peer whose box it is. */
typedef struct aprt_count {
    int32_t dim;
    aprt_affine value;
    int64_t per_peer;
} aprt_count;

/* A tensor of the caller: whole, row-major, little-endian. */
typedef struct aprt_port {
    const char *name;
    int32_t dtype;
    int32_t rank;
    int64_t dim[APRT_MAX_RANK];
} aprt_port;

/* How a parameter's copy lies in memory; the bytes are those of the box in any case.
 *
 *   PLAIN   the box, row-major
 *   PANELS  the last dimensions of the box are a matrix of k x n, for products. It lies in panels of columns, each k
 * rows of the panel's width, the last one as wide as what is left. The width is the runtime's own.
 *   PREPARED  the box, for those who ask for it while slots are prepared; it is not kept */
typedef enum aprt_store { APRT_PLAIN, APRT_PANELS, APRT_PREPARED } aprt_store;

/* A rank's part of a parameter: a box of the logical tensor (in elements), kept compactly at byte_offset. What its
 * counts leave out is not there, and its place stays as it is. */
typedef struct aprt_param {
    aprt_port port; /* the logical tensor; the name is that in the weights file */
    int32_t ndims;
    int64_t extent[APRT_MAX_LOOPS], stride[APRT_MAX_LOOPS];
    aprt_affine offset;
    int64_t byte_offset, bytes;
    int32_t ncounts;
    const aprt_count *count;
    aprt_store store;
    int64_t k, n; /* PANELS; no counts then */
} aprt_param;

/* Disjoint lists of ranks of the program, `size` each; every rank of the stage is in exactly one. */
typedef struct aprt_group {
    int32_t count, size;
    const int32_t *rank;
} aprt_group;

typedef enum aprt_exchange_kind {
    APRT_ALL_GATHER,     /* dst[dst_peer*p + box] = src of p [box] */
    APRT_REDUCE_SCATTER, /* dst[box] = fold over p of (src of p [src_me*me + box]) */
    APRT_ALL_REDUCE,     /* dst[box] = fold over p of (src of p [box]) */
    APRT_ALL_TO_ALL      /* dst[dst_peer*p + box] = src of p [src_me*me + box] */
} aprt_exchange_kind;

typedef enum aprt_fold { APRT_FOLD_SUM, APRT_FOLD_MAX, APRT_FOLD_MIN } aprt_fold;

/* me and p are positions in the group's list. Contributions are folded in the order of the list, f16 and bf16 in
 * single precision, by one owner per element: every rank gets the same bits, however many threads there are. Offsets
 * and strides in elements. */
typedef struct aprt_exchange {
    aprt_exchange_kind kind;
    aprt_fold fold;
    int32_t dtype;
    uint32_t group;
    int32_t ndims;
    int64_t extent[APRT_MAX_LOOPS], src_stride[APRT_MAX_LOOPS], dst_stride[APRT_MAX_LOOPS];
    int64_t src_me, dst_peer;
    int32_t ncounts;
    const aprt_count *count;
} aprt_exchange;

/* What an instruction does and where it comes from, for messages and profiles. */
typedef struct aprt_instr {
    const char *what;    /* kernel, or kind of exchange */
    const char *node;    /* ONNX node, "" if none */
    const char *op;      /* its operator, "" if none */
    int64_t picoseconds; /* predicted; 0 unknown */
} aprt_instr;

typedef struct aprt_instance aprt_instance;
typedef struct aprt_profile aprt_profile;
/* What the ranks of a stage are if not processors: a table of functions in a library of its own (runtime/target.h). */
typedef struct aprt_target aprt_target;

/* What a kernel found wrong. */
typedef struct aprt_bad {
    int64_t index, limit; /* an index that is not in [first, limit) */
    int64_t first;
} aprt_bad;

typedef struct aprt_device aprt_device;

/* What one rank sends to another one in each microbatch, as a box: element i of the slot at the source, counted from
 * src_offset by src_stride, goes to where dst_offset and dst_stride say. In elements; ranks are those of the program.
 */
typedef struct aprt_piece {
    int32_t src_rank, dst_rank, ndims;
    int64_t extent[APRT_MAX_LOOPS];
    int64_t src_offset, src_stride[APRT_MAX_LOOPS];
    int64_t dst_offset, dst_stride[APRT_MAX_LOOPS];
} aprt_piece;

/* A value on its way from one stage to another. Slot i of the source lies at src_at + i*src_bytes of the arena of each
 * of its ranks, microbatch k in slot k mod src_depth; the same at the destination. Several channels may have their
 * source slots at one place: it is written when all of them have been claimed, and read by all of them. */
typedef struct aprt_channel {
    const char *name;
    int32_t dtype, src_stage, dst_stage;
    int32_t src_output, dst_input; /* among the outputs and inputs of the stages */
    int64_t src_at, dst_at, src_bytes, dst_bytes;
    int32_t src_depth, dst_depth;
    int32_t npieces;
    const aprt_piece *piece;
} aprt_channel;

/* A box of output `output` of the program that a rank writes in each microbatch, if its coordinates on the axes of
 * when_mask are all 0. Counts as in a parameter. For collecting outputs where memory is not shared. */
typedef struct aprt_written {
    int32_t output, ndims;
    int64_t extent[APRT_MAX_LOOPS], stride[APRT_MAX_LOOPS];
    aprt_affine offset;
    uint32_t when_mask; /* bit per axis */
    int32_t ncounts;
    const aprt_count *count;
} aprt_written;

/* Coordinates of a rank in microbatch mb: (mb*nranks + place) / axis_stride % axis_size, with place = rank -
 * first_rank; where there is an axis of time, it is axis 0, of stride nranks. Parameters do not depend on it. */
typedef struct aprt_stage {
    const char *name;
    int32_t first_rank, nranks;
    int32_t naxes;
    int32_t axis_size[APRT_MAX_AXES], axis_stride[APRT_MAX_AXES];
    int64_t arena_bytes, param_bytes, scratch_bytes; /* per rank; slots of channels lie inside the arena */
    uint32_t ninputs, noutputs;
    const int32_t *input, *output; /* >= 0: of the program; < 0: -1 - channel (an output: any of those that share it) */
    uint32_t nparams, ngroups, ninstrs;
    const aprt_param *param;
    const aprt_group *group;
    const aprt_instr *instr;
    int (*run)(aprt_device *d);  /* one microbatch, d->mb */
    int (*list)(aprt_device *d); /* the instruction list: all microbatches; calls the functions under "lists" below */
    /* Slots of each device; `prepare` fills them when parameters are loaded, `release` empties them. NULL without any.
     */
    uint32_t nslots;
    int (*prepare)(aprt_device *d);
    void (*release)(aprt_device *d);
    uint32_t nwritten;
    const aprt_written *written;
    /* NULL: processors. Else all of the memory above is the device's, and so are inputs and outputs. */
    const aprt_target *target;
    int64_t workspace_bytes; /* for the libraries of a target, beside the arena */
    uint32_t nexchanges;     /* all that `run` does, for who prepares them when a program is opened */
    const aprt_exchange *exchange;
} aprt_stage;

/* One rank while it runs. Programs read it, only the runtime writes it. */
struct aprt_device {
    int32_t rank;  /* in the program */
    int32_t place; /* in its stage: rank - first_rank */
    int64_t mb;    /* microbatch in progress */
    uint32_t at;   /* instruction in progress */
    const aprt_stage *stage;
    char *arena;
    char *param;
    char *scratch;
    const void *const *input; /* one for each input and output of the stage; those of channels are in the arena */
    void *const *output;
    aprt_bad bad;
    aprt_instance *instance;
    aprt_profile *profile; /* NULL: not measuring */
    uint32_t nslots;
    void **slot; /* what libraries keep from open to close: one for each of the program's, NULL at first */
    /* Slots of channels as processors see them: byte `at` of the arena is host[at - host_from]. */
    char *host;
    int64_t host_from;
    void *on; /* the target's own */
};

/* Ranks of stages do not overlap, and every rank is in one. */
typedef struct aprt_program {
    uint32_t abi; /* APRT_ABI */
    const char *name;
    int32_t nranks;
    int64_t microbatches;
    uint32_t ninputs, noutputs;
    const aprt_port *input, *output;
    uint32_t nstages, nchannels;
    const aprt_stage *stage;
    const aprt_channel *channel;
    /* Predicted, in picoseconds from the beginning of a run, for traces; NULL: not known. */
    const int64_t *run_ps;  /* [stage * microbatches + mb]: when the stage begins with the microbatch */
    const int64_t *move_ps; /* [2 * (channel * microbatches + mb)]: when it is on its way: begin, end */
} aprt_program;

/* ------------------------------------------------------------------------------------------------------------------
 * Running.
 */

/* A tensor of the weights in memory: the logical tensor, whole and row-major. */
typedef struct aprt_tensor_source {
    const char *name; /* that of the parameter's port */
    const void *bytes;
    int64_t size;
    int32_t mapped; /* of a file: pages may be given back when they have been read */
} aprt_tensor_source;

typedef struct aprt_options {
    const char *weights; /* path of the weights; NULL: weights.safetensors beside the running program */
    /* Instead of a file; they are read while the instance is opened. */
    uint32_t nsources;
    const aprt_tensor_source *source;
} aprt_options;

/* *out is set on failure too (unless memory is out), to an instance that only tells the error and must be closed.
 *
 * Environment: AUTOPAR_WATCHDOG=SECONDS (60) ends a run in which nobody has moved for so long; AUTOPAR_COMM=local keeps
 * all devices in this process, whoever started it; AUTOPAR_RT_PLUGIN=FILE is the plugin for MPI. */
int aprt_open(const aprt_program *program, const aprt_options *options, aprt_instance **out);
/* One pointer per input and output, each to the whole tensor of aprt_port, not overlapping. Returns when all devices
 * are done. After APRT_ERR_DATA (an index out of range) outputs are undefined and the instance may be used again; after
 * any other failure of a device it can only be closed.
 *
 * Where each rank is a process (mpirun, srun), every process calls with the same inputs and buffers for whole outputs;
 * those of rank 0 are complete afterwards, and a failure ends all processes. */
int aprt_run(aprt_instance *instance, const void *const inputs[], void *const outputs[]);
void aprt_close(aprt_instance *instance); /* NULL is ignored */
/* The text of the last failure of this instance, "" if none; valid until the next call on it. NULL: memory was out. */
const char *aprt_error(const aprt_instance *instance);

/* Measured time per instruction of the first rank of a stage, summed over the runs since profiling was switched on;
 * NULL when it is not, and where that rank is another process. */
int aprt_profile_enable(aprt_instance *instance);
const double *aprt_profile_seconds(const aprt_instance *instance, uint32_t stage);

/* From now on, each run is traced on all ranks; the latest one is written as JSON that Perfetto (ui.perfetto.dev)
 * reads: a track for each device and one of predicted times. With AUTOPAR_TRACE=FILE in the environment an instance
 * does so when it is closed. */
int aprt_trace_enable(aprt_instance *instance);
struct aprt_failure;
int aprt_trace_write(const aprt_instance *instance, const char *path, struct aprt_failure *why);

/* File name that aprt_main gives output `i`: NAME.npy, where what is not a letter, digit, '.', '-' or '_' is '_'. */
void aprt_output_file(const aprt_port *output, uint32_t noutputs, uint32_t i, char *out, size_t size);

/* The main function of a compiled model: see `model --help`. Returns the exit code. */
int aprt_main(int argc, char **argv, const aprt_program *program);
/* The same with weights that are given; --weights goes before them. */
int aprt_main_with(int argc, char **argv, const aprt_program *program, const aprt_options *options);

/* ---- called by programs ---- */
void aprt_profile_mark(aprt_device *d);
static inline void aprt_at(aprt_device *d, uint32_t instruction)
{
    d->at = instruction;
    if (d->profile)
        aprt_profile_mark(d);
}
/* Reports d->bad for the instruction in progress. Returns the status for the device function to return. */
int aprt_fail_index(aprt_device *d);
/* The same for any failure; the runtime says where. */
int aprt_fail_call(aprt_device *d, int status, const char *text);
/* While slots are prepared: this rank's part of a parameter, until the next one is fetched. */
int aprt_param_fetch(aprt_device *d, uint32_t index, const void **out);
/* Collective over the group of d->rank. Anything but APRT_OK must be returned by the device function. */
int aprt_exchange_run(aprt_device *d, const aprt_exchange *x, const void *src, void *dst);

/* ---- called by instruction lists; anything but APRT_OK must be returned by the list ----
 *
 *   recv c k   waits until microbatch k of channel c is whole in this rank's slot k mod dst_depth
 *   claim c k  waits until slot k mod src_depth may be written again: its sends of microbatch k - src_depth are done
 *   run k      the stage's function for microbatch k
 *   free c k   the slot of microbatch k at the destination may be filled again
 *   send c k   starts the transfers of microbatch k and does not wait
 *
 * The microbatches of a channel are received, claimed, freed and sent in ascending order, none left out. */
int aprt_recv(aprt_device *d, uint32_t channel, int64_t mb);
int aprt_claim(aprt_device *d, uint32_t channel, int64_t mb);
int aprt_stage_run(aprt_device *d, int64_t mb);
int aprt_free(aprt_device *d, uint32_t channel, int64_t mb);
int aprt_send(aprt_device *d, uint32_t channel, int64_t mb);

/* The first k of n elements of x in order (largest: from the largest down), and their positions. Equals stand in order
 * of position; NaN is larger than any number. Strides in elements; 1 <= k <= n. */
void aprt_topk_f32(int64_t n, int64_t k, int32_t largest, const float *x, int64_t sx, float *value, int64_t sv,
                   int64_t *at, int64_t sat);
void aprt_topk_f64(int64_t n, int64_t k, int32_t largest, const double *x, int64_t sx, double *value, int64_t sv,
                   int64_t *at, int64_t sat);
void aprt_topk_f16(int64_t n, int64_t k, int32_t largest, const uint16_t *x, int64_t sx, uint16_t *value, int64_t sv,
                   int64_t *at, int64_t sat);
void aprt_topk_bf16(int64_t n, int64_t k, int32_t largest, const uint16_t *x, int64_t sx, uint16_t *value, int64_t sv,
                    int64_t *at, int64_t sat);
void aprt_topk_i8(int64_t n, int64_t k, int32_t largest, const int8_t *x, int64_t sx, int8_t *value, int64_t sv,
                  int64_t *at, int64_t sat);
void aprt_topk_u8(int64_t n, int64_t k, int32_t largest, const uint8_t *x, int64_t sx, uint8_t *value, int64_t sv,
                  int64_t *at, int64_t sat);
void aprt_topk_i16(int64_t n, int64_t k, int32_t largest, const int16_t *x, int64_t sx, int16_t *value, int64_t sv,
                   int64_t *at, int64_t sat);
void aprt_topk_u16(int64_t n, int64_t k, int32_t largest, const uint16_t *x, int64_t sx, uint16_t *value, int64_t sv,
                   int64_t *at, int64_t sat);
void aprt_topk_i32(int64_t n, int64_t k, int32_t largest, const int32_t *x, int64_t sx, int32_t *value, int64_t sv,
                   int64_t *at, int64_t sat);
void aprt_topk_u32(int64_t n, int64_t k, int32_t largest, const uint32_t *x, int64_t sx, uint32_t *value, int64_t sv,
                   int64_t *at, int64_t sat);
void aprt_topk_i64(int64_t n, int64_t k, int32_t largest, const int64_t *x, int64_t sx, int64_t *value, int64_t sv,
                   int64_t *at, int64_t sat);
void aprt_topk_u64(int64_t n, int64_t k, int32_t largest, const uint64_t *x, int64_t sx, uint64_t *value, int64_t sv,
                   int64_t *at, int64_t sat);

/* What follows a product: called for rows i0 ... i1 and columns j0 ... j1 of C when they are done, while they are in a
 * cache. Each element of C is in one call. */
typedef void aprt_after(const void *with, int64_t i0, int64_t i1, int64_t j0, int64_t j1);

/* C[m,n] = beta*C + A[m,k]*B[k,n], strides in elements between rows and columns, beta 0 or 1; the columns of C are
 * adjacent. With beta 0 C is only written. Any strides are right; unit strides in A and B are fast. `after` may be
 * NULL. */
void aprt_gemm_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t rsa, int64_t csa, const float *b,
                   int64_t rsb, int64_t csb, int beta, float *c, int64_t rsc, aprt_after *after, const void *with);
void aprt_gemm_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t rsa, int64_t csa, const double *b,
                   int64_t rsb, int64_t csb, int beta, double *c, int64_t rsc, aprt_after *after, const void *with);
/* The same for a B in panels, as a parameter is stored (aprt_store). */
void aprt_gemm_panels_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t rsa, int64_t csa, const float *b,
                          int beta, float *c, int64_t rsc, aprt_after *after, const void *with);
void aprt_gemm_panels_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t rsa, int64_t csa, const double *b,
                          int beta, double *c, int64_t rsc, aprt_after *after, const void *with);

/* ---- convolutions: libautopar_rt_conv, which only programs that have some are linked with ----
 *
 * x [n,g,c,...] by weights [g,m,c,...] to y [n,g,m,...], spatial dimensions last; strides are in that order. Result i
 * and kernel element k of a spatial dimension meet in element i*stride + k*dilate - lo of the operand with hole - 1
 * zeros between its elements; with flip the kernel is read from its end. `turns`, n, g, m and c of a rank, may be less
 * than the extents: the places behind those of g, m and c are there all the same in x, y and whole operands; what is
 * written to them is not said, and x holds finite numbers behind those of c.
 *
 * Steps: y = the sum, then one after the other relu(y), y + o, y * o, max(y, o), min(y, o). o is a number, or
 * operand[i] with strides in the order of y; operand -1 is what y held before. A NaN becomes the limit in relu, max and
 * min. */
#define APRT_MAX_SPATIAL 5
#define APRT_MAX_CONV_STEPS 6
typedef enum aprt_conv_op { APRT_CONV_RELU, APRT_CONV_ADD, APRT_CONV_MUL, APRT_CONV_MAX, APRT_CONV_MIN } aprt_conv_op;
typedef enum aprt_conv_other { APRT_CONV_NONE, APRT_CONV_NUMBER, APRT_CONV_OPERAND } aprt_conv_other;

typedef struct aprt_conv_step {
    aprt_conv_op op;
    aprt_conv_other other;
    double number;
    int32_t operand;
    int64_t stride[APRT_MAX_RANK];
} aprt_conv_step;

typedef struct aprt_conv_dim {
    int64_t in, kernel, out, lo, stride, dilate, hole;
    int32_t flip;
} aprt_conv_dim;

typedef struct aprt_conv {
    int32_t dtype;
    int64_t n, g, m, c;
    int32_t nspatial;
    aprt_conv_dim dim[APRT_MAX_SPATIAL];
    int64_t x[APRT_MAX_RANK], w[APRT_MAX_RANK], y[APRT_MAX_RANK];
    int32_t nsteps;
    aprt_conv_step step[APRT_MAX_CONV_STEPS];
} aprt_conv;

/* Fills a slot, when parameters are loaded. `w`: weights that never change, which are put into the order of the
 * processor's instructions once; NULL: that is done in every run. `passing`: 0, or how many bytes of weights there are
 * that are gone when it runs, with NULL for `w`. */
int aprt_conv_prepare(aprt_device *d, uint32_t slot, const aprt_conv *conv, const int64_t turns[4], const void *w,
                      int64_t passing);
int aprt_conv_run(aprt_device *d, uint32_t slot, const void *x, const void *w, void *y, const void *const *operand);
void aprt_conv_release(aprt_device *d);

/* ---- tensors in files ---- */
typedef struct aprt_failure {
    char text[512];
} aprt_failure;

typedef struct aprt_tensor {
    int32_t dtype;
    int32_t rank;
    int64_t dim[APRT_MAX_RANK];
    int64_t bytes;
    void *data;     /* malloc; row-major, little-endian */
    char name[256]; /* .pb: the tensor's name, cut to what fits; else "" */
} aprt_tensor;

int aprt_dtype_bytes(int32_t dtype);        /* 0: not one of ours */
const char *aprt_dtype_name(int32_t dtype); /* "f32" ..., "?" */
/* f32[2,3]; the buffer always ends in NUL. */
void aprt_shape_text(int32_t dtype, int32_t rank, const int64_t *dim, char *out, size_t size);

/* By content: NumPy's .npy (versions 1 to 3, little-endian, either order) or an ONNX TensorProto. */
int aprt_tensor_read(const char *path, aprt_tensor *out, aprt_failure *why);
int aprt_tensor_parse(const void *bytes, size_t size, aprt_tensor *out, aprt_failure *why);
void aprt_tensor_free(aprt_tensor *t);
/* Written beside their final names and renamed. bf16 becomes NumPy's |V2. */
int aprt_npy_write(const char *path, const aprt_port *port, const void *data, aprt_failure *why);
int aprt_proto_write(const char *path, const aprt_port *port, const void *data, aprt_failure *why);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
