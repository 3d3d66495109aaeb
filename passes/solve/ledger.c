/* The tree over rows: see ledger.h. */
#include "passes/solve/ledger.h"

#define NOTHING (INT64_MIN / 2)

void ap_ledger_init(ap_ledger *l, ap_arena *arena, uint32_t rows)
{
    *l = (ap_ledger){.rows = rows, .leaves = 1};
    while (l->leaves < rows)
        l->leaves *= 2;
    l->add = AP_NEW_ARRAY(arena, int64_t, 2 * (size_t)l->leaves);
    l->most = AP_NEW_ARRAY(arena, int64_t, 2 * (size_t)l->leaves);
}

void ap_ledger_set(ap_ledger *l, const int64_t *use, const int64_t *rhs)
{
    for (uint32_t r = 0; r < l->leaves; r++)
        l->most[l->leaves + r] = r < l->rows ? use[r] - rhs[r] : NOTHING;
    for (uint32_t i = 0; i < 2 * l->leaves; i++)
        l->add[i] = 0;
    for (uint32_t i = l->leaves; i-- > 1;)
        l->most[i] = ap_max_i64(l->most[2 * i], l->most[2 * i + 1]);
}

static void rise(ap_ledger *l, uint32_t i)
{
    for (i /= 2; i > 0; i /= 2)
        l->most[i] = ap_max_i64(l->most[2 * i], l->most[2 * i + 1]) + l->add[i];
}

void ap_ledger_add(ap_ledger *l, uint32_t lo, uint32_t hi, int64_t bytes)
{
    if (lo >= hi || bytes == 0)
        return;
    uint32_t a = lo + l->leaves, b = hi + l->leaves;
    for (uint32_t i = a, j = b; i < j; i /= 2, j /= 2) {
        if (i & 1) {
            l->add[i] += bytes;
            l->most[i++] += bytes;
        }
        if (j & 1) {
            l->add[--j] += bytes;
            l->most[j] += bytes;
        }
    }
    rise(l, a);
    rise(l, b - 1);
}

/* Tree node i covers [first, first + width). */
static int64_t most_in(const ap_ledger *l, uint32_t i, uint32_t first, uint32_t width, uint32_t lo, uint32_t hi)
{
    if (lo <= first && first + width <= hi)
        return l->most[i];
    uint32_t half = width / 2, mid = first + half;
    int64_t most = NOTHING;
    if (lo < mid)
        most = most_in(l, 2 * i, first, half, lo, hi);
    if (hi > mid)
        most = ap_max_i64(most, most_in(l, 2 * i + 1, mid, half, lo, hi));
    return most + l->add[i];
}

int64_t ap_ledger_most(const ap_ledger *l, uint32_t lo, uint32_t hi)
{
    return lo < hi ? most_in(l, 1, 0, l->leaves, lo, hi) : NOTHING;
}

uint32_t ap_ledger_worst(const ap_ledger *l)
{
    uint32_t i = 1;
    while (i < l->leaves)
        i = l->most[2 * i] >= l->most[2 * i + 1] ? 2 * i : 2 * i + 1;
    return i - l->leaves;
}
