/* SPDX-License-Identifier: MIT
 *
 * autopar_profile_cuda: what the GPUs of this machine reach. It is a program like those that autopar emits, written by
 * hand: one stage with a rank per GPU, whose products, convolutions and exchanges are calls of libautopar_rt_cuda, with
 * a few kernels in the form of emitted ones. Its output is a tensor: the seconds of each case on each rank. What these
 * mean, as the figures of a cluster, is for those who read what it prints (`autopar profile --target cuda`). */
#ifndef APRT_PROFILE_H
#define APRT_PROFILE_H

#include "autopar_rt_cuda.h"

#include <stdbool.h>

enum { PROFILE_NAME = 64 };

typedef enum profile_kind {
    PROFILE_LAUNCH,   /* a kernel of 16 elements */
    PROFILE_MEMORY,   /* as many elements read as written */
    PROFILE_ROWS,     /* softmax, norm, GELU, a polynomial */
    PROFILE_PRODUCT,  /* cuBLASLt */
    PROFILE_CONV,     /* cuDNN, or our own kernel where that is what runs */
    PROFILE_EXCHANGE, /* NCCL */
    PROFILE_UPLOAD,   /* from pinned memory of the host, all GPUs at once */
    PROFILE_DOWNLOAD,
    PROFILE_KINDS
} profile_kind;
const char *profile_kind_name(profile_kind kind);

typedef enum profile_rows { PROFILE_POLYNOMIAL, PROFILE_SOFTMAX, PROFILE_GELU, PROFILE_NORM } profile_rows;

/* One thing that is measured. Work is counted as plans count it. */
typedef struct profile_case {
    profile_kind kind;
    int32_t dtype;
    char name[PROFILE_NAME];
    const char *what;       /* "matrix"; of a convolution "spatial", "pointwise", "depthwise"; otherwise "" */
    int64_t each;           /* FLOPs of one product */
    int64_t flops;          /* of all products, of a convolution */
    int64_t columns, depth; /* of one: columns or result channels, terms of a sum */
    int64_t simple;         /* FLOPs of pointwise work and folds */
    int64_t functions, row; /* FLOPs of functions, in rows of so many elements */
    int64_t bytes;          /* touched; EXCHANGE: that cross a link; copies: that are copied */
    int64_t steps;          /* EXCHANGE: latencies */
    aprt_cuda_product product;
    aprt_conv conv;
    uint32_t number;       /* of a slot of convolutions, of an exchange of the stage */
    profile_rows rows;     /* ROWS */
    int64_t extent[2];     /* ROWS: rows, columns; LAUNCH, MEMORY: elements */
    int64_t a, b, c;       /* places in the arena: operands, result */
    int64_t step, weights; /* PRODUCT: bytes between right operands that come one after the other, and how many */
} profile_case;

/* All cases, and the tables of the stage that they need. */
typedef struct profile_cases {
    uint32_t n, capacity, nslots, nexchanges, ngroups;
    profile_case *at;
    aprt_exchange *exchange;
    aprt_group *group;
    int32_t *rank; /* of the groups */
    int64_t arena_bytes;
} profile_cases;

typedef struct profile_options {
    int32_t devices;
    bool quick;    /* fewer cases, and small ones */
    bool tf32;     /* only what TF32 changes: products and convolutions of f32 */
    int64_t limit; /* cases of more FLOPs, or bytes, are left out; 0: none */
} profile_options;

/* false: out of memory. */
bool profile_cases_make(const profile_options *options, profile_cases *out);
void profile_cases_free(profile_cases *c);

/* The stage; the runtime knows the first member only. */
typedef struct profile_stage {
    aprt_stage stage;
    const profile_cases *cases;
    int turns, most_calls; /* how often each case is measured, of at most so many calls */
} profile_stage;
/* Functions of the stage. The output of rank r is row r of f64[ranks, cases]: seconds of one call. */
int profile_prepare(aprt_device *d);
int profile_run(aprt_device *d);

/* ---- measured.cu: put on the stream; for captures as well ---- */
#ifdef __cplusplus
extern "C" {
#endif
/* Numbers of both signs whose size is from 2^-7 to 2 in f32 and bf16, 1 to 2 in f16. */
void profile_fill(aprt_device *d, void *at, int64_t bytes);
void profile_negate(aprt_device *d, const float *x, float *y, int64_t n);
void profile_rows_run(aprt_device *d, profile_rows what, const float *x, float *y, int64_t rows, int64_t columns);
#ifdef __cplusplus
}
#endif

#endif
