/* SPDX-License-Identifier: MIT
 *
 * What the files of the runtime share: failure texts, where threads wait, boxes, folds, weights, tensors in files. */
#ifndef APRT_INTERNAL_H
#define APRT_INTERNAL_H

#include "autopar_rt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* ---- error.c ---- */
/* Writes the text and returns `status`, so that callers can `return aprt_fail(...)`. */
int aprt_fail(aprt_failure *why, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* a*b, false when it does not fit or an operand is negative. */
bool aprt_mul(int64_t a, int64_t b, int64_t *out);
/* Bytes of a tensor; false when the dtype or a dimension is none, or the product does not fit. */
bool aprt_tensor_bytes(int32_t dtype, int32_t rank, const int64_t *dim, int64_t *out);

/* ---- box.c: strided boxes of elements ---- */
typedef struct aprt_box {
    int32_t ndims;
    int64_t extent[APRT_MAX_LOOPS], a[APRT_MAX_LOOPS], b[APRT_MAX_LOOPS]; /* strides on two sides */
} aprt_box;

/* Drops extents of one and joins dimensions that are adjacent on both sides; at least one dimension is left. */
void aprt_box_make(aprt_box *out, int32_t ndims, const int64_t *extent, const int64_t *a, const int64_t *b);
/* Extents of what is there, for a rank with these coordinates and the peer at this position. */
void aprt_counts_apply(int32_t n, const aprt_count *count, const int64_t *coordinate, int64_t peer, int64_t *extent);
int64_t aprt_box_count(const aprt_box *box);
/* Calls run(user, offset on side a, on side b, stride a, stride b, count) for each piece of a row, over the elements
 * whose row-major number is in [first, last). */
typedef void aprt_box_run(void *user, int64_t a, int64_t b, int64_t stride_a, int64_t stride_b, int64_t count);
void aprt_box_walk(const aprt_box *box, int64_t first, int64_t last, aprt_box_run *run, void *user);
/* dst[b] = src[a], elements of `size` bytes. */
void aprt_box_copy(const aprt_box *box, int64_t first, int64_t last, int32_t size, const void *src, void *dst);

/* ---- fold.c: dst[b] = fold over p of src[p][a] ---- */
void aprt_fold_run(const aprt_box *box, int64_t first, int64_t last, int32_t dtype, aprt_fold fold, int32_t nsrc,
                   const void *const *src, void *dst);

/* ---- sync.c: where threads wait ---- */
typedef struct aprt_gate {
    _Atomic uint32_t word, sleepers;
} aprt_gate;

/* Called now and then by who sleeps; false: give up. */
typedef bool aprt_tick(void *user);

/* Spins this often, then sleeps, until the gate's word is no longer `old`. `tick` is called before the first sleep and
 * then every tick_seconds; NULL: never. False when it gave up. */
bool aprt_gate_wait(aprt_gate *g, uint32_t old, int spins, aprt_tick *tick, double tick_seconds, void *user);
/* Moves the word on and wakes who sleeps. */
void aprt_gate_open(aprt_gate *g);

typedef struct aprt_barrier {
    _Alignas(64) aprt_gate epoch;
    _Atomic uint32_t arrived;
    uint32_t size;
} aprt_barrier;

/* False when *aborted was set before all had arrived, or tick gave up. */
bool aprt_barrier_wait(aprt_barrier *b, const _Atomic uint32_t *aborted, int spins, aprt_tick *tick,
                       double tick_seconds, void *user);
/* After *aborted has been set: lets everyone go who waits. */
void aprt_barrier_release(aprt_barrier *b);
/* When nobody is inside any more. */
void aprt_barrier_reset(aprt_barrier *b);

/* ---- weights_file.c, weights.c ---- */
typedef struct aprt_weights aprt_weights;
int aprt_weights_open(const char *path, aprt_weights **out, aprt_failure *why);
/* Of tensors in memory. */
int aprt_weights_hold(uint32_t n, const aprt_tensor_source *source, aprt_weights **out, aprt_failure *why);
void aprt_weights_close(aprt_weights *w);
/* Where rank `rank` of `nranks` finds its tensors: `w` itself, or a file of its own that is open until it leaves. */
int aprt_weights_enter(aprt_weights *w, int32_t rank, int32_t nranks, aprt_weights **out, aprt_failure *why);
void aprt_weights_leave(aprt_weights *w, aprt_weights *entered);
/* Looks parameter number `index` up and copies the box of the rank with these coordinates to param + byte_offset. */
int aprt_weights_load(const aprt_weights *w, const aprt_param *p, uint32_t index, const int64_t *coordinate,
                      char *param, int64_t param_bytes, aprt_failure *why);

/* ---- npy.c, tensor_proto.c ---- */
int aprt_npy_parse(const uint8_t *bytes, size_t size, aprt_tensor *out, aprt_failure *why);
int aprt_proto_parse(const uint8_t *bytes, size_t size, aprt_tensor *out, aprt_failure *why);
/* Sets dtype, rank, dim, bytes and a zeroed `data`. */
int aprt_tensor_make(int32_t dtype, int32_t rank, const int64_t *dim, aprt_tensor *out, aprt_failure *why);
int aprt_file_write(const char *path, const void *head, size_t head_size, const void *data, size_t size,
                    aprt_failure *why);
int aprt_file_read(const char *path, uint8_t **out, size_t *size, aprt_failure *why);

enum {
    APRT_ABANDONED = -1, /* status of a rank that stopped because another one failed */
    APRT_MAX_RANKS = 256 /* devices of one program */
};

#endif
