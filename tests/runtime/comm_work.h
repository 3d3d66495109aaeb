/* What the programs of the conformance suite do on a rank beside exchanging: on processors (comm_work.c), or by kernels
 * on the compute stream of a GPU (comm_work.cu). Pointers are to memory of the device; nothing is waited for. */
#ifndef TEST_COMM_WORK_H
#define TEST_COMM_WORK_H

#include "autopar_rt.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { COMM_LENGTH = 96 /* elements of a value of a random program */ };

typedef struct comm_work {
    const aprt_target *target; /* of the stages; NULL: processors */
    bool in_order; /* exchanges give the bits of folds in the order of the list; if not, sums of floats are near them */
    void (*at)(aprt_device *d, uint32_t instruction);
    /* Of the stage's table. On GPUs every other one is begun, and its result waited for, by calls of their own. */
    int (*exchange)(aprt_device *d, uint32_t number, const void *src, void *dst);
    /* Bytes: a multiple of 8, and so are the places. */
    void (*set)(aprt_device *d, void *dst, int byte, int64_t bytes);
    void (*copy)(aprt_device *d, void *dst, const void *src, int64_t bytes);
    /* n elements by comm_value. */
    void (*fill)(aprt_device *d, int32_t dtype, bool special, int64_t round, int64_t n, void *dst);
    /* Random programs: of COMM_LENGTH elements. */
    void (*first)(aprt_device *d, uint64_t seed, bool coarse, float *v);
    void (*add_slot)(aprt_device *d, int32_t dtype, const void *slot, float *v);
    /* v[i] = v[i % COMM_LENGTH], y[i] = 0, for n elements. */
    void (*spread)(aprt_device *d, int64_t n, float *v, float *y);
    void (*halve_add)(aprt_device *d, float *v, const float *y); /* v = v/2 + y */
    void (*wrap_all)(aprt_device *d, float *v);
    void (*fill_slot)(aprt_device *d, int32_t dtype, const float *v, void *slot);
} comm_work;

extern const comm_work comm_on_processors, comm_on_gpus;

#ifdef __cplusplus
}
#endif

#endif
