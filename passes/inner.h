/* What collectives inside a composite cost and hold: a function of the body's shapes and shardings, for planner and
 * evaluation alike. */
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

#endif
