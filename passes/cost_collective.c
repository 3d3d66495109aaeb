/* Predicted times of collectives (DESIGN §6): a latency per round and the bytes that cross a device's link, level by
 * level. Integer and saturating, as in cost.c.
 *
 *     p ranks of a group: n0 in an island, n1 such islands in a host, n2 such hosts; N bytes of the whole tensor
 *     reduce_scatter, all_gather, the cheaper of
 *       ring        (p-1) a  +  (p-1)/p N / b                 a, b: of the slowest level that it crosses
 *       hierarchy   sum over levels l of  (nl-1) al  +  (nl-1)/nl Nl / bl
 *                   N0 = N, N1 = N/n0, N2 = N/(n0 n1): each device carries its own chunk outward
 *     all_reduce    twice that, or between hosts a tree (two, each for half of the bytes, so that every link works in
 *                   both directions; Sanders, Speck, Träff 2009):  2 ceil(log2 n2) a2  +  2 N2 / b2
 *     all_to_all    the cheaper of sending directly, and of one exchange per level
 *
 * A device's rate at a level is its link's or its part of what the unit shares, whichever is less. A ring enters and
 * leaves a unit once per group, a hierarchy with all its devices. */
#include "passes/cluster.h"

#include <assert.h>

#define PS_PER_SECOND INT64_C(1000000000000)
#define COST_MAX (INT64_MAX / 1024) /* sums of many stay below AP_FORBIDDEN */

static int64_t cost_add(int64_t a, int64_t b)
{
    return ap_min_i64(ap_sat_add(a, b), COST_MAX);
}

/* picoseconds of bytes * num / den at a rate, rounded up; num, den <= 2^34 */
static int64_t move(int64_t bytes, int64_t num, int64_t den, int64_t rate)
{
    unsigned __int128 up = (unsigned __int128)bytes * (uint64_t)num, down = (unsigned __int128)(uint64_t)den;
    down *= (uint64_t)rate;
    if (up >> 86) /* more than 2^86 bytes at 2^53 a second and 2^34 parts are weeks: no plan to prefer */
        return COST_MAX;
    unsigned __int128 ps = (up * (uint64_t)PS_PER_SECOND + down - 1) / down;
    return ps > (unsigned __int128)COST_MAX ? COST_MAX : (int64_t)ps;
}

static int64_t rounds(int64_t latency_ps, int64_t n)
{
    return ap_min_i64(ap_sat_mul(latency_ps, n), COST_MAX);
}

/* n-1 rounds over one level, of a tensor of bytes/parts */
static int64_t ring(const ap_level *l, int64_t rate, int32_t n, int64_t bytes, int64_t parts)
{
    if (n <= 1)
        return 0;
    return cost_add(rounds(l->latency_ps, n - 1), move(bytes, n - 1, n * parts, rate));
}

int64_t ap_cost_collective(const ap_cluster *c, const ap_level *l, ap_collective kind, int32_t ranks, int64_t bytes)
{
    if (ranks <= 1)
        return 0;
    assert(ranks <= AP_CLUSTER_MAX_DEVICES);
    if (c->cost == AP_COST_ALPA)
        return ap_alpa_collective(l, kind, ranks, bytes);
    /* Each device keeps 1/p of its own 1/p and sends the rest: (p-1)/p * bytes/p. */
    if (kind == AP_COLLECTIVE_ALL_TO_ALL)
        return ring(l, l->bytes_per_second, ranks, bytes, ranks);
    int64_t once = ring(l, l->bytes_per_second, ranks, bytes, 1);
    return kind == AP_COLLECTIVE_ALL_REDUCE ? cost_add(once, once) : once; /* reduce_scatter, all_gather */
}

/* ---- groups that several levels join ---- */

static const ap_level *level_of(const ap_cluster *c, int level)
{
    return level == AP_LEVEL_INSIDE ? &c->inside : level == AP_LEVEL_ACROSS ? &c->across : &c->between;
}

/* A device's rate when all devices of its unit send at once. */
static int64_t full_rate(const ap_cluster *c, const ap_span *s, int level)
{
    return ap_level_rate(level_of(c, level), s->users[level]);
}

/* The slowest of the levels that the groups cross: latency, and the rate with `all` devices of a unit sending, or one
 * of each group. */
static ap_level slowest(const ap_cluster *c, const ap_span *s, bool all)
{
    ap_level l = c->inside;
    for (int i = AP_LEVEL_ACROSS; i <= s->top; i++) {
        if (i == AP_LEVEL_ACROSS && s->even && s->count[AP_LEVEL_ACROSS] == 1)
            continue;
        int32_t users = s->users[i], each = s->least[i] > 0 ? s->least[i] : 1;
        int64_t rate = ap_level_rate(level_of(c, i), all ? users : (users + each - 1) / each);
        l.latency_ps = ap_max_i64(l.latency_ps, level_of(c, i)->latency_ps);
        l.bytes_per_second = ap_min_i64(l.bytes_per_second, rate);
    }
    return l;
}

/* One phase per level below `end`, each with the chunk that is left. */
static int64_t phases(const ap_cluster *c, const ap_span *s, int end, int64_t bytes, int64_t parts)
{
    int64_t sum = 0;
    for (int i = 0; i < end; i++) {
        sum = cost_add(sum, ring(level_of(c, i), full_rate(c, s, i), s->count[i], bytes, parts));
        parts *= s->count[i];
    }
    return sum;
}

static int64_t tree(const ap_cluster *c, const ap_span *s, int64_t bytes)
{
    int32_t steps = 0;
    while (INT32_C(1) << steps < s->count[AP_LEVEL_BETWEEN])
        steps++;
    int64_t parts = (int64_t)s->count[AP_LEVEL_INSIDE] * s->count[AP_LEVEL_ACROSS];
    return cost_add(rounds(c->between.latency_ps, 2 * steps), move(bytes, 2, parts, full_rate(c, s, AP_LEVEL_BETWEEN)));
}

static int64_t all_reduce(const ap_cluster *c, const ap_span *s, int64_t bytes, int64_t once)
{
    int64_t twice = cost_add(once, once);
    if (!s->even || s->top != AP_LEVEL_BETWEEN)
        return twice;
    int64_t near = phases(c, s, AP_LEVEL_BETWEEN, bytes, 1);
    return ap_min_i64(twice, cost_add(cost_add(near, near), tree(c, s, bytes)));
}

/* Each device sends bytes/p^2 to every other: n0-1 in the island, n0 (n1-1) in the host, the rest outside. */
static int64_t direct(const ap_cluster *c, const ap_span *s, int64_t bytes)
{
    int64_t sum = 0, before = 1, parts = (int64_t)s->ranks * s->ranks;
    for (int i = 0; i < AP_LEVEL_COUNT; i++) {
        int64_t peers = before * (s->count[i] - 1);
        before *= s->count[i];
        if (peers > 0)
            sum = cost_add(sum, cost_add(rounds(level_of(c, i)->latency_ps, peers),
                                         move(bytes, peers, parts, full_rate(c, s, i))));
    }
    return sum;
}

/* One exchange per level: each device holds bytes/p all the time. */
static int64_t exchanges(const ap_cluster *c, const ap_span *s, int64_t bytes)
{
    int64_t sum = 0;
    for (int i = 0; i < AP_LEVEL_COUNT; i++)
        sum = cost_add(sum, ring(level_of(c, i), full_rate(c, s, i), s->count[i], bytes, s->ranks));
    return sum;
}

int64_t ap_cost_span(const ap_cluster *c, const ap_span *s, ap_collective kind, int64_t bytes)
{
    if (s->ranks <= 1)
        return 0;
    assert(s->ranks <= AP_CLUSTER_MAX_DEVICES);
    if (c->cost == AP_COST_ALPA)
        return ap_alpa_collective(level_of(c, s->top), kind, s->ranks, bytes);
    if (kind == AP_COLLECTIVE_ALL_TO_ALL) {
        if (s->even)
            return ap_min_i64(direct(c, s, bytes), exchanges(c, s, bytes));
        ap_level l = slowest(c, s, true);
        return ring(&l, l.bytes_per_second, s->ranks, bytes, s->ranks);
    }
    ap_level l = slowest(c, s, false);
    int64_t once = ring(&l, l.bytes_per_second, s->ranks, bytes, 1);
    if (s->even)
        once = ap_min_i64(once, phases(c, s, AP_LEVEL_COUNT, bytes, 1));
    return kind == AP_COLLECTIVE_ALL_REDUCE ? all_reduce(c, s, bytes, once) : once;
}
