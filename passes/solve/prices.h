/* Memory rows as prices: a byte held in row r costs lambda[r] >= 0, and the limit pays lambda[r] * rhs[r] back. For
 * any prices, the least of cost + price - what is paid back is a bound on the cost of every choice that fits. */
#ifndef AP_PASSES_SOLVE_PRICES_H
#define AP_PASSES_SOLVE_PRICES_H

#include "passes/solve/net.h"

/* An edge whose pairs hold memory: its matrices with the price of that, for each direction. */
typedef struct ap_priced_edge {
    const ap_arc *at_u, *at_v;
    int64_t *uv, *vu; /* laid out like the arcs' */
    uint32_t first;   /* of its demands in ap_prices.pair */
    bool priced;      /* uv and vu are not the arcs' */
} ap_priced_edge;

typedef struct ap_prices {
    const ap_net *net;
    double *lambda; /* per row; unscaled */
    int64_t *base;  /* node costs without prices: net->cost, and what a search puts on top */
    int64_t *unary; /* node costs with the price of memory, rounded down; laid out like net->cost */
    const int64_t **to,
        **from; /* per arc: its matrices with the price of memory; those of the net where there is none */
    uint32_t njoint;
    ap_priced_edge *joint;       /* [njoint + 1] */
    const ap_pair_demand **pair; /* by edge */
    __int128 back;               /* what the limit pays back, scaled, rounded up */
    int64_t *fixed;              /* lambda, scaled, times 2^shift */
    __int128 *prefix;
    int shift;
} ap_prices;

ap_prices *ap_prices_create(ap_arena *arena, const ap_net *net);
/* The rest from lambda. */
void ap_prices_set(ap_prices *a);
/* What x holds per row; out_use has one entry more than there are rows. */
void ap_prices_use(const ap_net *net, const uint32_t *x, int64_t *out_use);

#endif
