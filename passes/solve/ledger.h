/* What the rows hold beyond their right sides, under changes of intervals: a tree over the rows with the largest
 * excess of every subtree. Adding to an interval and asking for the largest excess in one take log(rows) steps. */
#ifndef AP_PASSES_SOLVE_LEDGER_H
#define AP_PASSES_SOLVE_LEDGER_H

#include "ir/base/ctx.h"

typedef struct ap_ledger {
    uint32_t rows, leaves; /* leaves: a power of two */
    int64_t *add, *most;   /* per tree node, 1 is the root; most includes add */
} ap_ledger;

void ap_ledger_init(ap_ledger *l, ap_arena *arena, uint32_t rows);
void ap_ledger_set(ap_ledger *l, const int64_t *use, const int64_t *rhs);
void ap_ledger_add(ap_ledger *l, uint32_t lo, uint32_t hi, int64_t bytes);
int64_t ap_ledger_most(const ap_ledger *l, uint32_t lo, uint32_t hi); /* INT64_MIN / 2 or less when lo >= hi */
static inline bool ap_ledger_fits(const ap_ledger *l)
{
    return l->rows == 0 || l->most[1] <= 0;
}
/* The row with the largest excess, the first of several. */
uint32_t ap_ledger_worst(const ap_ledger *l);

#endif
