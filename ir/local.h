/* State *local*: what one device does, as data. Every rank runs the same instruction list; where ranks
 * differ, a number is affine in the rank's coordinates. No mesh, no sharding and no operator is left, so
 * this record is all that a back end reads (DESIGN §3, §5, §10).
 *
 *   values    places: (space, offset, strides); `view` and `slice` have become strides and offsets
 *   kernels   loop nests and matrix products, one per signature; twelve equal layers share one
 *   instrs    kernel calls and exchanges in order
 */
#ifndef AP_IR_LOCAL_H
#define AP_IR_LOCAL_H

#include "ir/base/text.h"
#include "ir/module.h"
#include "ir/pointwise.h"
#include "ir/tensor.h"

#define AP_MAX_LOOPS 16
#define AP_LOCAL_ALIGN 64 /* bytes; of arena and parameter places */

/* base + sum over axes of step[a] * coordinate[a]; in elements unless said otherwise */
typedef struct ap_affine {
    int64_t base;
    int64_t step[AP_MAX_AXES];
} ap_affine;

/* An integer that a call passes to its kernel: `value` kept within lo ... hi. Counts of what a rank has of a padded
 * factor are of this kind: what is left of the logical extent, none at least, a whole shard at most. */
typedef struct ap_int {
    ap_affine value;
    int64_t lo, hi;
} ap_int;

/* Of dimension `dim` of a box just the first elements are there: value - per_peer * p of them, none at least, the box's
 * extent at most. `value` is that of the rank that asks; p is the peer whose box it is. */
typedef struct ap_count {
    uint8_t dim;
    ap_affine value;
    int64_t per_peer; /* exchanges */
} ap_count;

typedef enum ap_space { AP_SPACE_ARENA, AP_SPACE_PARAM, AP_SPACE_INPUT, AP_SPACE_OUTPUT, AP_SPACE_COUNT } ap_space;

/* Where an operand starts. ARENA: byte_offset into the device's arena. PARAM: parameter `index`, stored
 * compactly at its own place. INPUT, OUTPUT: the caller's whole logical tensor, row-major. */
typedef struct ap_ref {
    ap_space space;
    uint32_t index;      /* PARAM, INPUT, OUTPUT */
    int64_t byte_offset; /* ARENA */
    ap_affine offset;    /* elements, on top */
} ap_ref;

typedef enum ap_sop_kind {
    AP_SOP_LOAD,   /* operand[ loops * strides ] */
    AP_SOP_GATHER, /* operand[ loops * strides + (arg0 - ints[imm.i]) * stride ]; 0 where arg0 - ints[imm.i] is outside
                      [0, extent). arg0 must lie in [0, limit): else the kernel reports the index and stops */
    AP_SOP_CHECK,  /* arg0, an index into `limit` entries, from the end when negative, made non-negative. It must lie in
                      [-limit, limit): else the kernel reports it and stops */
    AP_SOP_CONST,  /* imm */
    AP_SOP_INDEX,  /* i64: sum of loop index * stride_loop[...] + ints[imm.i] (imm.i < 0: no int) */
    AP_SOP_POINTWISE, /* pw(arg0, arg1, arg2) */
    AP_SOP_REDUCE,    /* folds arg0 over the inner loops; visible in later sections */
    AP_SOP_SCAN,      /* folds arg0 over the inner loops, the value so far: with arg0, or (imm.i 1) without it */
    AP_SOP_STORE,     /* operand[ loops * strides ] = arg0 (inner strides unused in a row section) */
    AP_SOP_UPDATE, /* as STORE, but what is there is set, added to, ... (`reduce` is an ap_scatter_kind) in the order of
                      the loops. With imm.i >= 0 at (arg1 - ints[imm.i]) * stride further, for arg1 in
                      [ints[imm.i], ints[imm.i] + extent) only; arg1 must lie in [0, limit), as in GATHER */
    AP_SOP_TEMP_STORE, /* row temporary imm.i [inner index] = arg0 */
    AP_SOP_TEMP_LOAD,
    AP_SOP_KIND_COUNT
} ap_sop_kind;

typedef struct ap_sop {
    ap_sop_kind kind;
    ap_dtype dtype;  /* of the value it makes (STORE: that it stores) */
    uint8_t section; /* non-decreasing along the list */
    uint8_t operand;
    uint8_t reduce;  /* REDUCE, SCAN: ap_reduce_kind; ARGMAX, ARGMIN fold (value, row-major inner index) and give the
                        index */
    uint16_t pw;     /* ap_pointwise */
    uint32_t arg[3]; /* sop ids; an inner value is visible only in its own section */
    ap_scalar imm;
    int64_t stride, extent, limit;     /* GATHER, UPDATE; CHECK: limit */
    int64_t loop_stride[AP_MAX_LOOPS]; /* INDEX */
} ap_sop;

/* A loop whose number of turns depends on the rank has `turns` 1 + the number of the int that says it; `extent` is then
 * the most that it can be. 0: just extent.
 *
 * for outer loops { for each section: once (row section) or for inner loops (inner section) } */
typedef struct ap_nest {
    uint8_t nouter, ninner;
    int64_t extent[AP_MAX_LOOPS]; /* outer loops, then inner ones */
    uint32_t turns[AP_MAX_LOOPS];
    uint8_t nsections;
    bool inner[16]; /* per section */
    uint8_t ntemps; /* row temporaries, each of inner-extent elements */
    ap_dtype temp_dtype[8];
    uint32_t nsops;
    ap_sop *sop;
} ap_nest;

/* for loops: C[m,n] (+)= sum over k A[m,k] * B[k,n]. Guaranteed: A and B each have a unit row or column
 * stride (or extent 1 there) and a leading dimension that BLAS takes; csc == 1. `turns` as in a nest; where k or a
 * summed loop has none, C is zero.
 *
 * The kernel's `nest` may say what follows, element by element, tile by tile while they are in a cache: one row section
 * over the loops, m and n, where operand 2 is C and holds the sums; operands from 3 on are its own. Nothing else that
 * the kernel reads or writes lies in C, unlike in a nest, where an operand may be overwritten in place. */
typedef struct ap_gemm {
    ap_dtype dtype; /* f32 or f64; f16 and bf16 where the target has a library for them: sums in f32, rounded once */
    bool panels;    /* B is a parameter stored as AP_STORE_PANELS: rsb is n, csb 1, and no turns of n or k */
    uint8_t nloops;
    int64_t extent[AP_MAX_LOOPS], stride_a[AP_MAX_LOOPS], stride_b[AP_MAX_LOOPS], stride_c[AP_MAX_LOOPS];
    bool sum[AP_MAX_LOOPS]; /* the loop runs over a summed letter: C accumulates after its first turn */
    uint32_t turns[AP_MAX_LOOPS];
    int64_t m, n, k;
    uint32_t turns_m, turns_n, turns_k;
    int64_t rsa, csa, rsb, csb, rsc, csc;
} ap_gemm;

/* for loops: y = windows of x, each of `dim` as in ir/pool.h. Operand 0 is x, operand 1 is y. `turns` as in a nest. */
typedef struct ap_pooling {
    ap_pool_kind kind;
    uint8_t nloops, ndims;
    int64_t extent[AP_MAX_LOOPS], from[AP_MAX_LOOPS], to[AP_MAX_LOOPS]; /* strides of x and y */
    uint32_t turns[AP_MAX_LOOPS];
    ap_pool_dim dim[AP_MAX_RANK];
} ap_pooling;

/* For loops: of n elements of operand 0 the first k in order (smallest or largest first; NaN is larger than any number;
 * equals in order of position), to operand 1, and their positions, i64, to operand 2. The loops are those of the record
 * `nest`, which has no sections. */
typedef struct ap_topk {
    bool largest;
    int64_t n, k, stride[3]; /* of the operands along the row */
} ap_topk;

/* Convolution, [n,g,c,...] by [g,m,c,...] to [n,g,m,...] as in ir/op/conv.c. Operands: 0 x, 1 weights, 2 the result,
 * then those of the steps. Strides are by dimension in that order. Each of n, g, m, c may have turns as in a nest. The
 * places behind those of g, m and c are there in x, in the result and in whole operands: what is written there is not
 * said, and what x holds behind those of c are finite numbers.
 *
 * Steps make the result from the sum, one after the other: pw(r) or pw(r, other), rounded to the type each time.
 * Operand 2 in a step, with the strides of the result, is what lies there before. */
typedef enum ap_conv_other { AP_CONV_NONE, AP_CONV_NUMBER, AP_CONV_OPERAND } ap_conv_other;
typedef struct ap_conv_step {
    uint16_t pw; /* ap_pointwise */
    ap_conv_other other;
    ap_scalar imm;               /* NUMBER */
    uint8_t operand;             /* OPERAND */
    int64_t stride[AP_MAX_RANK]; /* OPERAND: along the dimensions of the result */
} ap_conv_step;
#define AP_MAX_CONV_STEPS 6
typedef struct ap_conv {
    ap_dtype dtype;
    uint8_t nspatial, nsteps;
    int64_t n, g, m, c;
    uint32_t turns_n, turns_g, turns_m, turns_c;
    int64_t in[AP_MAX_SPATIAL], kernel[AP_MAX_SPATIAL], out[AP_MAX_SPATIAL];
    ap_conv_dim dim[AP_MAX_SPATIAL];
    int64_t x[AP_MAX_RANK], w[AP_MAX_RANK], y[AP_MAX_RANK];
    ap_conv_step step[AP_MAX_CONV_STEPS];
} ap_conv;

/* Whether the operand of a step has more than one element per channel. */
static inline bool ap_conv_step_is_whole(const ap_conv *c, const ap_conv_step *s)
{
    bool whole = s->stride[0] != 0;
    for (int d = 0; d < c->nspatial; d++)
        whole = whole || s->stride[3 + d] != 0;
    return whole;
}

typedef enum ap_kernel_class {
    AP_KERNEL_NEST,
    AP_KERNEL_GEMM,
    AP_KERNEL_POOL,
    AP_KERNEL_TOPK,
    AP_KERNEL_CONV,
    AP_KERNEL_COUNT
} ap_kernel_class;

typedef struct ap_kernel_operand {
    ap_dtype dtype;
    bool written;
    int64_t stride[AP_MAX_LOOPS]; /* NEST: elements, per loop */
} ap_kernel_operand;

typedef struct ap_kernel {
    ap_name name; /* unique, a C identifier: softmax_2 */
    ap_kernel_class kind;
    uint32_t noperands; /* GEMM: A, B, C */
    ap_kernel_operand *operand;
    uint32_t nints;    /* rank-dependent integers, passed by the call */
    ap_nest nest;      /* NEST; TOPK: its loops */
    ap_topk topk;      /* TOPK */
    ap_gemm gemm;      /* GEMM */
    ap_pooling pool;   /* POOL */
    ap_conv conv;      /* CONV */
    const char *about; /* for the comment above: what the first node computes, shapes and shardings */
} ap_kernel;

typedef enum ap_exchange_kind {
    AP_EXCHANGE_ALL_GATHER,     /* dst[dst_peer*p + box] = src of p [box] */
    AP_EXCHANGE_REDUCE_SCATTER, /* dst[box] = fold over p of (src of p [src_me*me + box]) */
    AP_EXCHANGE_ALL_REDUCE,     /* dst[box] = fold over p of (src of p [box]) */
    AP_EXCHANGE_ALL_TO_ALL,     /* dst[dst_peer*p + box] = src of p [src_me*me + box] */
    AP_EXCHANGE_KIND_COUNT
} ap_exchange_kind;

/* p and me: positions in the group, which lists its ranks in order of coordinates. Contributions are folded
 * in that order. Offsets and strides in elements. src and dst do not overlap, but an all_reduce may have both at one
 * place. */
typedef struct ap_exchange {
    ap_exchange_kind kind;
    ap_partial fold;
    ap_dtype dtype;
    uint32_t group; /* index into groups */
    uint8_t ndims;
    int64_t extent[AP_MAX_LOOPS], src_stride[AP_MAX_LOOPS], dst_stride[AP_MAX_LOOPS];
    int64_t src_me, dst_peer;
    uint8_t ncounts;
    ap_count *count;
} ap_exchange;

/* Disjoint lists of ranks, `size` each; rank[i*size + p]. Every rank is in exactly one. */
typedef struct ap_group {
    int32_t count, size;
    int32_t *rank;
} ap_group;

typedef enum ap_instr_kind { AP_INSTR_CALL, AP_INSTR_EXCHANGE } ap_instr_kind;
typedef enum ap_when { AP_WHEN_ALWAYS, AP_WHEN_ZERO, AP_WHEN_NOT_ZERO } ap_when;

typedef struct ap_instr {
    ap_instr_kind kind;
    ap_when when; /* ZERO: only ranks whose coordinates on all axes of when_mask are 0; NOT_ZERO: the others */
    uint8_t when_mask;
    ap_loc loc;
    uint32_t kernel; /* CALL */
    ap_exchange exchange;
    uint32_t nrefs; /* CALL: one per operand; EXCHANGE: src, dst */
    ap_ref *ref;
    uint32_t nints; /* CALL */
    ap_int *ints;
    int64_t picoseconds; /* predicted; 0 unknown */
} ap_instr;

/* The caller's tensors. A slot is not: it is the shard of a boundary value of a pipeline (ir/program.h), rank 1, in the
 * memory of each rank, which reads and writes its own. */
typedef struct ap_port {
    ap_name name;
    ap_dtype dtype;
    bool slot;
    uint8_t rank;
    int64_t dim[AP_MAX_RANK];
} ap_port;

/* How the copy of a parameter lies in memory. It is made once, when the program is opened, so that nothing has to be
 * rearranged while it runs; whatever the form, it has the bytes of the compact box.
 *
 *   PLAIN   the box, row-major
 *   PANELS  the last factors of the box are a matrix of k x n, for kernels that read it as B of a product. It lies in
 *           panels of columns, each k rows of the panel's width, the last one as wide as what is left. The width is
 *           the choice of whoever runs the program, so only such kernels read it, from its beginning (or that of a
 *           matrix). The evaluator takes one panel, which is the box.
 *   PREPARED  the box, but only while the program is opened: the convolutions that read it, as their weights and from
 *           its beginning, keep what they need. It lies behind all parameters that stay. */
typedef enum ap_store_kind { AP_STORE_PLAIN, AP_STORE_PANELS, AP_STORE_PREPARED, AP_STORE_COUNT } ap_store_kind;

typedef struct ap_store {
    ap_store_kind kind;
    int64_t k, n; /* PANELS */
} ap_store;

/* A parameter (or folded constant): this rank's part is the box of `extent` elements per factor that starts at `offset`
 * in the logical row-major tensor, with logical strides; stored compactly at byte_offset of the parameter space, in the
 * order of the list of factors. Where a count says that elements are not there, their places stay as they are. */
typedef struct ap_local_param {
    ap_port port; /* logical */
    ap_data data;
    ap_loc loc;
    uint8_t nfactors;
    int64_t extent[AP_MAX_FACTORS], stride[AP_MAX_FACTORS];
    ap_affine offset;
    uint8_t ncounts;
    ap_count *count;
    int64_t byte_offset, bytes;
    ap_store store;
} ap_local_param;

typedef struct ap_local {
    ap_ctx *ctx;
    ap_module *m;               /* for ap_data_bytes; borrowed */
    ap_name name;               /* of the program */
    int32_t first_rank, nranks; /* of the stage; everything in here counts its ranks from 0 */
    uint8_t naxes;
    uint8_t ntime; /* 0, or 1: axis 0 is time, and this is what is done for one microbatch */
    ap_name axis_name[AP_MAX_AXES];
    /* coordinate = point / stride % size, where point = microbatch * nranks + rank: the rank without time */
    int32_t axis_size[AP_MAX_AXES], axis_stride[AP_MAX_AXES];
    int64_t arena_bytes, param_bytes; /* per rank */
    int64_t live_bytes;               /* most that the arena holds at one time, in whole places; 0: not known */
    AP_VEC(ap_port) inputs;
    AP_VEC(ap_port) outputs;
    AP_VEC(ap_local_param) params;
    AP_VEC(ap_group) groups;
    AP_VEC(ap_kernel) kernels;
    AP_VEC(ap_instr) instrs;
} ap_local;

/* The numbers that a rank has for these, given its coordinates; and how many elements of dimension `dim` are there,
 * with `extent` in the box. */
static inline int64_t ap_affine_at(const ap_affine *a, const int32_t *coords)
{
    int64_t x = a->base;
    for (int i = 0; i < AP_MAX_AXES; i++)
        x += a->step[i] * coords[i];
    return x;
}
static inline ap_int ap_int_plain(const ap_affine *a)
{
    return (ap_int){.value = *a, .lo = INT64_MIN, .hi = INT64_MAX};
}
static inline bool ap_int_is_plain(const ap_int *i)
{
    return i->lo == INT64_MIN && i->hi == INT64_MAX;
}
static inline int64_t ap_int_at(const ap_int *i, const int32_t *coords)
{
    return ap_max_i64(i->lo, ap_min_i64(ap_affine_at(&i->value, coords), i->hi));
}
static inline int64_t ap_counts_at(uint8_t n, const ap_count *count, int dim, int64_t extent, const int32_t *coords,
                                   int64_t peer)
{
    for (uint8_t i = 0; i < n; i++) {
        if (count[i].dim == dim)
            extent =
                ap_max_i64(0, ap_min_i64(extent, ap_affine_at(&count[i].value, coords) - count[i].per_peer * peer));
    }
    return extent;
}

/* May the kernel write operand `written` over operand `read`, when both start at the same element? Also all_reduce. */
bool ap_kernel_in_place(const ap_kernel *k, uint32_t read, uint32_t written);
bool ap_exchange_in_place(const ap_exchange *x);

void ap_local_print(const ap_local *p, ap_text *out);
ap_status ap_local_parse(ap_ctx *ctx, const char *name, const char *text, size_t size, ap_local **out);
/* Bounds of every place and loop (a kernel never leaves its buffer), sections in order, alignments, groups that
 * partition the ranks. */
ap_status ap_local_verify(const ap_local *p);
/* Bytes of the parameter space that stay when the program is open: those before the parameters that are prepared. */
int64_t ap_local_kept_bytes(const ap_local *p);

static inline int32_t ap_local_microbatches(const ap_local *p)
{
    return p->ntime ? p->axis_size[0] : 1;
}

/* All ranks in lockstep, instruction by instruction, one microbatch after the other; whole logical inputs and outputs
 * as in ap_eval_func. A slot is a tensor [points, elements]. */
ap_status ap_local_eval(const ap_local *p, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs);

#endif
