/* The DP for one bound on the bottleneck (Alpa's equation 3, with transfers, labels and several groups):
 *
 *     start(i, u; c, in)  = min over ends j, labels out of   t(i, j; c, in, out) + rest(j, u + devices of c; c, out)
 *     rest(j, u; c, out)  = min over the next choice c', in' of  transfer + start(j, u; c', in')
 *
 * over all u at once: both are products of a vector and rows of numbers (passes/solve/minplus.h). `most` leaves out
 * times and transfers that exceed it. */
#include "passes/stage/dp.h"

#include <assert.h>

uint32_t ap_stages_next_level(const ap_stages_dp *d, uint32_t level)
{
    if (level + 1 < d->levels)
        return level + 1;
    return d->exact_levels ? AP_NONE : level;
}

bool ap_stages_may_be(const ap_stages_dp *d, uint32_t level, uint32_t first, uint32_t last)
{
    const ap_stages_problem *p = d->p;
    if (!ap_stages_may_cut(p, last) || last > d->next_cut[first])
        return false;
    for (uint32_t l = first; p->stage_of && l < last; l++)
        if (p->stage_of[l] != AP_NONE && p->stage_of[l] != level)
            return false;
    return true;
}

bool ap_stages_may_start(const ap_stages_dp *d, uint32_t level, uint32_t first)
{
    const ap_stages_problem *p = d->p;
    if (level == 0 && (d->levels > 1 || d->exact_levels))
        return first == 0;
    return first >= level && (!d->exact_levels || first + p->nstages <= p->nlayers + level);
}

uint32_t ap_stages_close(const ap_stages_dp *d, uint32_t group, uint32_t u)
{
    const ap_stages_axis *a = &d->axis[group];
    uint32_t over = ap_stages_used(d, group, u) % a->host;
    return over > 0 ? u + (a->host - over) * a->stride : u;
}

int64_t ap_stages_dp_transfer(const ap_stages_dp *d, uint32_t boundary, uint32_t u, uint32_t from, uint32_t out,
                              uint32_t to, uint32_t in)
{
    const ap_stages_transfers *t = &d->transfers[d->class_of[boundary]];
    const uint32_t *at = d->row_at + (size_t)boundary * d->p->nchoices;
    size_t i = (size_t)(at[from] + out) * t->rows + at[to] + in;
    return d->open[(size_t)d->p->choice[from].group * d->ld + u] ? t->open[i] : t->closed[i];
}

static size_t rest_index(const ap_stages_dp *d, uint32_t level, uint32_t boundary, uint32_t choice, uint32_t out)
{
    const ap_stages_problem *p = d->p;
    size_t at = d->rest_at[(size_t)level * (p->nlayers + 1) + boundary];
    if (boundary == p->nlayers)
        return at;
    const ap_stages_transfers *t = &d->transfers[d->class_of[boundary]];
    return at + t->row_class[d->row_at[(size_t)boundary * p->nchoices + choice] + out];
}

int64_t *ap_stages_rest_row(const ap_stages_dp *d, uint32_t level, uint32_t boundary, uint32_t choice, uint32_t out)
{
    return d->rest + rest_index(d, level, boundary, choice, out) * d->ld;
}

static bool any_possible(const int64_t *row, uint32_t n)
{
    int64_t least = INT64_MAX;
    for (uint32_t u = 0; u < n; u++)
        least = row[u] < least ? row[u] : least;
    return least < AP_STAGES_INF;
}

/* After the last layer nothing is left to do, if all devices have work. */
static void run_end(ap_stages_dp *d, uint32_t level)
{
    const ap_stages_problem *p = d->p;
    if (d->exact_levels && level + 1 != p->nstages)
        return;
    size_t row = rest_index(d, level, p->nlayers, 0, 0);
    for (uint32_t u = d->idle ? 0 : d->states - 1; u < d->states; u++)
        d->rest[row * d->ld + u] = 0;
    d->rest_alive[row] = true;
}

/* One row of stages that start at `first`: what is left of those that end in time. */
static void run_row(ap_stages_dp *d, uint32_t level, size_t row, int64_t most, const uint8_t *fits, int64_t *start)
{
    const size_t *rest_at = d->rest_at + (size_t)level * (d->p->nlayers + 1);
    uint32_t n = 0;
    for (size_t i = d->end_at[row]; i < d->end_at[row + 1] && d->end[i].time <= most; i++) {
        const ap_stages_end *e = &d->end[i];
        size_t rest = rest_at[e->last] + e->row;
        if (!d->may_end[e->last] || !d->rest_alive[rest])
            continue;
        d->term[n] = e->time;
        d->term_row[n++] = (uint32_t)rest;
    }
    if (n > 0)
        d->product(start, d->term, d->rest + d->shift[d->choice_of[row]], d->term_row, n, d->ld);
    for (uint32_t u = 0; u < d->ld; u++)
        start[u] = n > 0 && fits[u] ? start[u] : AP_STAGES_INF;
    d->start_alive[(size_t)(start - d->start) / d->ld] = n > 0 && any_possible(start, d->states);
}

/* The stages that start at `first`. */
static void run_start(ap_stages_dp *d, uint32_t level, uint32_t first, int64_t most)
{
    const ap_stages_problem *p = d->p;
    for (uint32_t last = first + 1; last <= p->nlayers; last++)
        d->may_end[last] = ap_stages_may_be(d, level, first, last);
    size_t row = 0, start = d->start_at[(size_t)level * (p->nlayers + 1) + first];
    for (uint32_t b = 0; b < first; b++)
        row += d->rows[b];
    for (uint32_t i = 0; i < d->rows[first]; i++, row++)
        run_row(d, level, row, most, d->fits + (size_t)d->choice_of[row] * d->ld, d->start + (start + i) * d->ld);
}

/* The least of each class of columns: stages that start at a boundary and cost the same to reach. */
static void merge_columns(ap_stages_dp *d, const ap_stages_transfers *t, uint32_t level, uint32_t boundary)
{
    size_t at = d->start_at[(size_t)level * (d->p->nlayers + 1) + boundary];
    for (uint32_t k = 0; k < t->column_classes; k++)
        d->merged_alive[k] = false;
    for (uint32_t i = 0; i < t->rows; i++) {
        if (!d->start_alive[at + i])
            continue;
        const int64_t *row = d->start + (at + i) * d->ld;
        uint32_t k = t->column_class[i];
        int64_t *to = d->merged + (size_t)k * d->ld;
        for (uint32_t u = 0; u < d->ld; u++)
            to[u] = !d->merged_alive[k] || row[u] < to[u] ? row[u] : to[u];
        d->merged_alive[k] = true;
    }
}

/* Fills out with the product for one row of prices (impossible where no column can be reached, and false). */
static bool run_prices(ap_stages_dp *d, const ap_stages_transfers *t, const int64_t *price, int64_t most, int64_t *out)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < t->column_classes; k++) {
        if (!d->merged_alive[k] || price[t->column_first[k]] > most)
            continue;
        d->term[n] = price[t->column_first[k]];
        d->term_row[n++] = k;
    }
    if (n > 0)
        d->product(out, d->term, d->merged, d->term_row, n, d->ld);
    for (uint32_t u = 0; n == 0 && u < d->ld; u++)
        out[u] = AP_STAGES_INF;
    return n > 0;
}

/* Devices of an open host may be left without work. */
static void run_idle(const ap_stages_dp *d, int64_t *rest)
{
    for (uint32_t g = 0; g < d->p->ngroups; g++) {
        for (uint32_t u = 0; u < d->states; u++) {
            uint32_t closed = ap_stages_close(d, g, u);
            rest[u] = rest[closed] < rest[u] ? rest[closed] : rest[u];
        }
    }
}

/* The stages that end at a boundary, the next one being stage `next`. */
static void run_rest(ap_stages_dp *d, uint32_t level, uint32_t next, uint32_t boundary, int64_t most)
{
    if (!ap_stages_may_cut(d->p, boundary))
        return;
    const ap_stages_transfers *t = &d->transfers[d->class_of[boundary]];
    size_t at = d->rest_at[(size_t)level * (d->p->nlayers + 1) + boundary];
    merge_columns(d, t, next, boundary);
    for (uint32_t k = 0, c = 0; k < t->row_classes; k++) {
        uint32_t row = t->row_first[k];
        const int64_t *closed = t->closed + (size_t)row * t->rows, *open = t->open + (size_t)row * t->rows;
        while (c + 1 < d->p->nchoices && d->row_at[(size_t)boundary * d->p->nchoices + c + 1] <= row)
            c++;
        int64_t *rest = d->rest + (at + k) * d->ld;
        bool some = run_prices(d, t, closed, most, rest);
        if (t->row_open[k]) {
            const uint8_t *is_open = d->open + (size_t)d->p->choice[c].group * d->ld;
            some = run_prices(d, t, open, most, d->other) || some;
            for (uint32_t u = 0; u < d->states; u++)
                rest[u] = is_open[u] ? d->other[u] : rest[u];
        }
        if (some && d->idle && d->family == AP_STAGES_IN_ORDER)
            run_idle(d, rest);
        d->rest_alive[at + k] = some && any_possible(rest, d->states);
    }
}

static int64_t best_start(const ap_stages_dp *d, uint32_t *out_choice, uint32_t *out_in)
{
    int64_t best = AP_STAGES_INF;
    for (uint32_t c = 0; c < d->p->nchoices; c++) {
        for (uint32_t in = 0; in < d->p->nlabels[c]; in++) {
            int64_t x = ap_stages_start_row(d, 0, 0, c, in)[0];
            if (x >= best)
                continue;
            best = x;
            *out_choice = c;
            *out_in = in;
        }
    }
    return best;
}

int64_t ap_stages_dp_least(const ap_stages_dp *d)
{
    uint32_t c, in;
    return best_start(d, &c, &in);
}

int64_t ap_stages_dp_run(ap_stages_dp *d, int64_t most)
{
    uint32_t L = d->p->nlayers;
    /* every row that is ever written is written anew, the others are impossible from the beginning */
    for (uint32_t s = d->levels; s-- > 0;) {
        uint32_t next = ap_stages_next_level(d, s);
        run_end(d, s);
        for (uint32_t k = L; k-- > 0;) {
            if (k + 1 < L && next != AP_NONE && ap_stages_may_start(d, next, k + 1))
                run_rest(d, s, next, k + 1, most);
            if (ap_stages_may_start(d, s, k))
                run_start(d, s, k, most);
        }
    }
    return ap_stages_dp_least(d);
}

/* One stage that starts as its pick says with `u` in use: its end and out label; the longest that is best. */
static void path_end(const ap_stages_dp *d, uint32_t level, uint32_t u, int64_t most, ap_stages_pick *s)
{
    const ap_stages_problem *p = d->p;
    int64_t want = ap_stages_start_row(d, level, s->first, s->choice, s->in)[u];
    for (uint32_t last = d->next_cut[s->first]; last > s->first; last--) {
        if (!ap_stages_may_be(d, level, s->first, last))
            continue;
        uint32_t nout = p->nlabels[(size_t)last * p->nchoices + s->choice];
        const int64_t *time = d->ranges->usable + ap_stages_range(p, d->ranges, s->choice, s->first, last);
        for (uint32_t out = 0; out < nout; out++) {
            int64_t t = time[(size_t)s->in * nout + out];
            if (t > most || t + ap_stages_rest_row(d, level, last, s->choice, out)[u + d->shift[s->choice]] != want)
                continue;
            s->last = last;
            s->out = out;
            s->time = t;
            return;
        }
    }
    assert(!"the path of the DP breaks off in a stage");
}

/* What follows the stage `s` without closing a host; false: nothing that costs `want`. */
static bool path_next(const ap_stages_dp *d, uint32_t next, uint32_t u, int64_t most, int64_t want, ap_stages_pick *s,
                      ap_stages_pick *to)
{
    const ap_stages_problem *p = d->p;
    for (uint32_t c = 0; c < p->nchoices; c++) {
        for (uint32_t in = 0; in < p->nlabels[(size_t)s->last * p->nchoices + c]; in++) {
            int64_t x = ap_stages_dp_transfer(d, s->last, u, s->choice, s->out, c, in);
            int64_t start = ap_stages_start_row(d, next, s->last, c, in)[u];
            if (x > most || start >= AP_STAGES_INF || x + start != want)
                continue;
            s->transfer = x;
            *to = (ap_stages_pick){.first = s->last, .choice = c, .in = in};
            return true;
        }
    }
    return false;
}

/* The stage after `s`; hosts may be left open for good (idle), which moves *u. */
static void path_step(const ap_stages_dp *d, uint32_t level, int64_t most, ap_stages_pick *s, uint32_t *u,
                      ap_stages_pick *to)
{
    const int64_t *rest = ap_stages_rest_row(d, level, s->last, s->choice, s->out);
    uint32_t next = ap_stages_next_level(d, level);
    for (uint32_t g = 0; !path_next(d, next, *u, most, rest[*u], s, to); g++) {
        assert(g < d->p->ngroups);
        uint32_t closed = ap_stages_close(d, g, *u);
        if (rest[closed] == rest[*u])
            *u = closed;
    }
}

uint32_t ap_stages_dp_path(const ap_stages_dp *d, int64_t most, ap_stages_host *host, ap_stages_pick *out)
{
    const ap_stages_problem *p = d->p;
    uint32_t n = 0, u = 0, level = 0;
    ap_stages_pick s = {0};
    int64_t best = best_start(d, &s.choice, &s.in);
    assert(best < AP_STAGES_INF);
    (void)best;
    ap_stages_hosts_clear(p, host);
    for (;;) {
        path_end(d, level, u, most, &s);
        ap_stages_hosts_take(p, host, &s);
        out[n++] = s;
        if (s.last == p->nlayers)
            return n;
        uint32_t before = u += d->shift[s.choice];
        path_step(d, level, most, &out[n - 1], &u, &s);
        for (uint32_t g = 0; g < p->ngroups; g++)
            if (ap_stages_used(d, g, before) != ap_stages_used(d, g, u))
                host[g].fill = 0;
        level = ap_stages_next_level(d, level);
    }
}
