/* Cheapest path from one sharding to another over elementary steps (DESIGN §5, Resharding). */
#ifndef AP_PASSES_RESHARD_H
#define AP_PASSES_RESHARD_H

#include "ir/op.h"
#include "passes/cluster.h"

typedef enum ap_step_kind {
    AP_STEP_ALL_SLICE,
    AP_STEP_ALL_GATHER,
    AP_STEP_ALL_TO_ALL,
    AP_STEP_REDUCE_SCATTER,
    AP_STEP_ALL_REDUCE,
    AP_STEP_MASK,
    AP_STEP_KIND_COUNT
} ap_step_kind;

typedef struct ap_step {
    ap_step_kind kind;
    ap_op op;     /* that does it */
    uint8_t axes; /* mask */
    ap_sharding to;
    int64_t cost; /* picoseconds */
} ap_step;

#define AP_MAX_STEPS 8
typedef struct ap_reshard_path {
    int nsteps; /* 0: equal shardings */
    bool view;  /* no step copies: the result lies in the source's buffer */
    int64_t cost;
    int64_t held;      /* aligned bytes of the buffer behind the result; 0 if view */
    int64_t transient; /* most bytes held at once on the way, source not counted; 0 if view */
    ap_step step[AP_MAX_STEPS];
} ap_reshard_path;

typedef struct ap_resharder ap_resharder; /* memoises by (dtype, shape, from, to) */
ap_resharder *ap_resharder_create(ap_arena *arena, const ap_module *m, const ap_cluster *c);
/* Ties: fewer bytes, then fewer steps, then text order. False when there is no path. */
bool ap_reshard_find(ap_resharder *r, ap_dtype dtype, ap_shape shape, ap_sharding from, ap_sharding to,
                     const ap_reshard_path **out);

/* The operator that stands for a change of sharding before its steps are chosen. */
ap_op ap_reshard_op(void);

#endif
