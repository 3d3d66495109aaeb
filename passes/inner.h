/* What collectives inside a composite cost and hold, and what a composite holds without any: functions of the body's
 * shapes and shardings, for planner and evaluation alike. */
#ifndef AP_PASSES_INNER_H
#define AP_PASSES_INNER_H

#include "ir/rule.h"
#include "passes/reshard.h"

typedef struct ap_inner_price {
    int64_t communication_ps; /* the paths of all completions */
    int64_t bytes;            /* held while the node runs, beyond operands and results */
} ap_inner_price;

/* Shardings of the body's values are those of `body`; without any (nvalues 0) the types'. False when a completion has
 * no path. */
bool ap_inner_price_get(ap_resharder *r, ap_arena *arena, const ap_module *m, ap_node n, const ap_rule_body *body,
                        ap_inner_price *out);

/* A composite is one kernel, and no value of its body is in memory, with two exceptions (local_fuse.c). One that
 * reduces nothing is a nest over its result, and a value of another shape, a row's, is made by another nest before it;
 * and of what is looked up to be summed long sums, and those of 16-bit floats, want the terms in memory. */
bool ap_inner_may_hold(const ap_module *m, ap_node n);
/* Their bytes while the node runs, at most, under the shardings of `body` as above. */
int64_t ap_inner_held_bytes(const ap_module *m, ap_node n, const ap_rule_body *body);

#endif
