/* The problem made ready for the DP: devices in use as one index, where sub-meshes fit, and transfers by class. */
#include "passes/stage/dp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

ap_status ap_stages_check(ap_ctx *ctx, const ap_stages_problem *p)
{
    if (p->nlayers == 0 || p->nchoices == 0 || p->ngroups == 0 || p->microbatches < 1 || p->in_depth < 0 ||
        p->out_depth < 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0,
                       "stages: %" PRIu32 " layers, %" PRIu32 " choices, %" PRIu32 " groups of devices, %" PRId32
                       " microbatches",
                       p->nlayers, p->nchoices, p->ngroups, p->microbatches);
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (p->group[g].hosts < 1 || p->group[g].devices < 1 || p->group[g].hosts > INT16_MAX ||
            p->group[g].devices > INT16_MAX)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "stages: group %" PRIu32 " has no devices or too many", g);
    for (uint32_t c = 0; c < p->nchoices; c++) {
        const ap_stages_choice *x = &p->choice[c];
        if (x->group >= p->ngroups || x->price < 0)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "stages: choice %" PRIu32 " has no group or a negative price", c);
        const ap_stages_group *g = &p->group[x->group];
        if (x->hosts < 1 || x->devices < 1 || x->hosts > g->hosts || x->devices > g->devices ||
            (x->hosts > 1 && x->devices < g->devices))
            return ap_fail(ctx, AP_ERR_USAGE, 0,
                           "stages: choice %" PRIu32 ", %" PRId32 " x %" PRId32 ", is no sub-mesh of %" PRId32
                           " hosts with %" PRId32 " devices",
                           c, x->hosts, x->devices, g->hosts, g->devices);
    }
    return AP_OK;
}

static ap_status make_axes(ap_ctx *ctx, ap_arena *arena, const ap_stages_problem *p, ap_stages_dp *d)
{
    d->axis = AP_NEW_ARRAY(arena, ap_stages_axis, p->ngroups);
    uint64_t states = 1;
    for (uint32_t g = 0; g < p->ngroups; g++) {
        uint32_t host = (uint32_t)p->group[g].devices, unit = host;
        for (uint32_t c = 0; c < p->nchoices; c++)
            if (p->choice[c].group == g)
                unit = (uint32_t)ap_gcd_i64(unit, p->choice[c].devices);
        ap_stages_axis *a = &d->axis[g];
        *a = (ap_stages_axis){unit, host / unit, host / unit * (uint32_t)p->group[g].hosts, (uint32_t)states};
        states *= a->all + 1;
        if (states > AP_STAGES_MAX_STATES)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "stages: too many devices in %" PRIu32 " groups", p->ngroups);
    }
    d->states = (uint32_t)states;
    d->ld = ap_padded(d->states);
    return AP_OK;
}

static bool choice_fits(const ap_stages_dp *d, uint32_t c, uint32_t u)
{
    const ap_stages_choice *x = &d->p->choice[c];
    const ap_stages_axis *a = &d->axis[x->group];
    uint32_t used = ap_stages_used(d, x->group, u), need = (uint32_t)(x->hosts * x->devices) / a->unit;
    if (used + need > a->all)
        return false;
    return !d->part[c] || d->family == AP_STAGES_PACKED || used % a->host + need <= a->host;
}

static void make_choices(ap_arena *arena, const ap_stages_problem *p, ap_stages_dp *d)
{
    d->shift = AP_NEW_ARRAY(arena, uint32_t, p->nchoices);
    d->part = AP_NEW_ARRAY(arena, bool, p->nchoices);
    d->fits = AP_NEW_ARRAY(arena, uint8_t, (size_t)p->nchoices * d->ld);
    d->open = AP_NEW_ARRAY(arena, uint8_t, (size_t)p->ngroups * d->ld);
    for (uint32_t c = 0; c < p->nchoices; c++) {
        const ap_stages_choice *x = &p->choice[c];
        const ap_stages_axis *a = &d->axis[x->group];
        d->shift[c] = (uint32_t)(x->hosts * x->devices) / a->unit * a->stride;
        d->part[c] = x->hosts == 1 && x->devices < p->group[x->group].devices;
        for (uint32_t u = 0; u < d->states; u++)
            d->fits[(size_t)c * d->ld + u] = choice_fits(d, c, u);
    }
    for (uint32_t g = 0; g < p->ngroups; g++)
        for (uint32_t u = 0; u < d->states; u++)
            d->open[(size_t)g * d->ld + u] =
                d->family == AP_STAGES_IN_ORDER && ap_stages_used(d, g, u) % d->axis[g].host > 0;
}

/* Which entries of two rows (step 1) or two columns (step: rows) say the same. */
static bool same_line(const ap_stages_transfers *t, size_t a, size_t b, size_t step)
{
    for (uint32_t i = 0; i < t->rows; i++, a += step, b += step)
        if (t->open[a] != t->open[b] || t->closed[a] != t->closed[b])
            return false;
    return true;
}

/* Rows that agree are one class if their choices also have the group in common, which says what `open` means. */
static uint32_t classify(const ap_stages_transfers *t, const uint32_t *group, bool columns, uint32_t *class,
                         uint32_t *first)
{
    uint32_t n = 0;
    size_t line = columns ? 1 : t->rows, step = columns ? t->rows : 1;
    for (uint32_t i = 0; i < t->rows; i++) {
        uint32_t k = 0;
        while (k < n && ((!columns && group[first[k]] != group[i]) || !same_line(t, first[k] * line, i * line, step)))
            k++;
        if (k == n)
            first[n++] = i;
        class[i] = k;
    }
    return n;
}

static void fill_transfers(const ap_stages_dp *d, uint32_t boundary, const uint32_t *choice, const uint32_t *label,
                           ap_stages_transfers *t)
{
    const ap_stages_problem *p = d->p;
    for (uint32_t i = 0; i < t->rows; i++) {
        for (uint32_t j = 0; j < t->rows; j++) {
            size_t at = (size_t)i * t->rows + j;
            bool near = d->family == AP_STAGES_IN_ORDER && ap_stages_share_host(p, choice[i], choice[j]);
            t->closed[at] = ap_stages_price(p, boundary, choice[i], label[i], choice[j], label[j], AP_NEAR_HOSTS);
            t->open[at] = near ? ap_stages_price(p, boundary, choice[i], label[i], choice[j], label[j], AP_NEAR_HOST)
                               : t->closed[at];
        }
    }
}

static void make_transfers(ap_arena *arena, const ap_stages_dp *d, uint32_t boundary, ap_stages_transfers *t)
{
    const ap_stages_problem *p = d->p;
    size_t n = t->rows = d->rows[boundary];
    uint32_t *choice = AP_NEW_ARRAY(arena, uint32_t, n), *label = AP_NEW_ARRAY(arena, uint32_t, n);
    uint32_t *group = AP_NEW_ARRAY(arena, uint32_t, n);
    for (uint32_t c = 0, row = 0; c < p->nchoices; c++) {
        for (uint32_t q = 0; q < p->nlabels[(size_t)boundary * p->nchoices + c]; q++, row++) {
            choice[row] = c;
            label[row] = q;
            group[row] = p->choice[c].group;
        }
    }
    t->open = AP_NEW_ARRAY(arena, int64_t, n * n);
    t->closed = AP_NEW_ARRAY(arena, int64_t, n * n);
    fill_transfers(d, boundary, choice, label, t);
    t->row_class = AP_NEW_ARRAY(arena, uint32_t, n);
    t->row_first = AP_NEW_ARRAY(arena, uint32_t, n);
    t->column_class = AP_NEW_ARRAY(arena, uint32_t, n);
    t->column_first = AP_NEW_ARRAY(arena, uint32_t, n);
    t->row_classes = classify(t, group, false, t->row_class, t->row_first);
    t->column_classes = classify(t, group, true, t->column_class, t->column_first);
    t->row_open = AP_NEW_ARRAY(arena, bool, t->row_classes);
    for (uint32_t k = 0; k < t->row_classes; k++)
        t->row_open[k] =
            memcmp(t->open + t->row_first[k] * n, t->closed + t->row_first[k] * n, n * sizeof *t->open) != 0;
}

/* Boundaries of one class must have the same labels. */
static ap_status make_classes(ap_ctx *ctx, ap_arena *arena, const ap_stages_problem *p, ap_stages_dp *d)
{
    uint32_t n = 0;
    d->class_of = AP_NEW_ARRAY(arena, uint32_t, p->nlayers + 1);
    uint32_t *first = AP_NEW_ARRAY(arena, uint32_t, p->nlayers + 1);
    d->transfers = AP_NEW_ARRAY(arena, ap_stages_transfers, p->nlayers + 1);
    __int128 all = 0;
    for (uint32_t b = 1; b < p->nlayers; b++) {
        uint32_t k = p->boundary_class ? 0 : n;
        while (k < n && p->boundary_class[first[k]] != p->boundary_class[b])
            k++;
        if (k == n) {
            first[n++] = b;
            make_transfers(arena, d, b, &d->transfers[k]);
        }
        if (memcmp(p->nlabels + (size_t)b * p->nchoices, p->nlabels + (size_t)first[k] * p->nchoices,
                   p->nchoices * sizeof *p->nlabels) != 0)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "stages: boundaries %" PRIu32 " and %" PRIu32 " differ in labels",
                           first[k], b);
        d->class_of[b] = k;
        int64_t most = 0;
        const ap_stages_transfers *t = &d->transfers[k];
        for (size_t i = 0; i < (size_t)t->rows * t->rows; i++) {
            if (t->open[i] < 0 || t->closed[i] < 0)
                return ap_fail(ctx, AP_ERR_USAGE, 0,
                               "stages: a transfer at boundary %" PRIu32 " takes less than no time", b);
            if (t->closed[i] != AP_STAGES_NONE)
                most = ap_max_i64(most, t->closed[i]);
            if (t->open[i] != AP_STAGES_NONE)
                most = ap_max_i64(most, t->open[i]);
        }
        all += most;
    }
    d->classes = n;
    if (all > AP_STAGES_LONGEST)
        return ap_fail(ctx, AP_ERR_USAGE, 0,
                       "stages: the transfers at all %" PRIu32 " boundaries of layers take more than 80 hours",
                       p->nlayers - 1);
    return AP_OK;
}

static ap_status make_levels(ap_ctx *ctx, ap_arena *arena, const ap_stages_problem *p, ap_stages_dp *d)
{
    d->next_cut = AP_NEW_ARRAY(arena, uint32_t, p->nlayers + 1);
    d->next_cut[p->nlayers] = p->nlayers;
    for (uint32_t b = p->nlayers; b-- > 0;) {
        uint32_t k = b + 1;
        d->next_cut[b] = k < p->nlayers && p->cut && p->cut[k] > 0 ? k : d->next_cut[k];
    }
    d->levels = 1;
    d->exact_levels = p->nstages > 0;
    for (uint32_t l = 0; p->stage_of && l < p->nlayers; l++) {
        if (p->stage_of[l] == AP_NONE)
            continue;
        if (p->stage_of[l] >= p->nlayers)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "stages: layer %" PRIu32 " cannot be in stage %" PRIu32, l,
                           p->stage_of[l]);
        d->levels = d->levels > p->stage_of[l] + 2 ? d->levels : p->stage_of[l] + 2;
    }
    if (d->exact_levels)
        d->levels = p->nstages < p->nlayers ? p->nstages : p->nlayers;
    return AP_OK;
}

static void make_rows(ap_arena *arena, const ap_stages_problem *p, ap_stages_dp *d)
{
    size_t B = p->nlayers + 1;
    d->row_at = AP_NEW_ARRAY(arena, uint32_t, B * p->nchoices);
    d->rows = AP_NEW_ARRAY(arena, uint32_t, B);
    for (uint32_t b = 0; b <= p->nlayers; b++) {
        for (uint32_t c = 0; c < p->nchoices; c++) {
            d->row_at[(size_t)b * p->nchoices + c] = d->rows[b];
            d->rows[b] += p->nlabels[(size_t)b * p->nchoices + c];
        }
    }
}

static int compare_ends(const void *x, const void *y)
{
    const ap_stages_end *a = x, *b = y;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->last != b->last)
        return a->last < b->last ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

/* The stages that start at a row; returns how many. */
static size_t list_ends(const ap_stages_dp *d, uint32_t first, uint32_t choice, uint32_t in, ap_stages_end *out)
{
    const ap_stages_problem *p = d->p;
    size_t n = 0;
    for (uint32_t last = first + 1; last <= d->next_cut[first]; last++) {
        uint32_t nout = p->nlabels[(size_t)last * p->nchoices + choice];
        const int64_t *time =
            d->ranges->usable + ap_stages_range(p, d->ranges, choice, first, last) + (size_t)in * nout;
        const uint32_t *class = last < p->nlayers ? d->transfers[d->class_of[last]].row_class : NULL;
        for (uint32_t q = 0; q < nout && ap_stages_may_cut(p, last); q++)
            if (time[q] < AP_STAGES_INF)
                out[n++] = (ap_stages_end){time[q], last,
                                           class ? class[d->row_at[(size_t)last * p->nchoices + choice] + q] : 0};
    }
    if (n > 0)
        qsort(out, n, sizeof *out, compare_ends);
    return n;
}

static void make_ends(ap_arena *arena, const ap_stages_problem *p, ap_stages_dp *d)
{
    size_t rows = 0, n = 0;
    for (uint32_t b = 0; b < p->nlayers; b++)
        rows += d->rows[b];
    d->end_at = AP_NEW_ARRAY(arena, size_t, rows + 1);
    d->choice_of = AP_NEW_ARRAY(arena, uint32_t, rows);
    for (size_t i = 0; i < d->ranges->size; i++)
        n += d->ranges->usable[i] < AP_STAGES_INF;
    d->end = AP_NEW_ARRAY(arena, ap_stages_end, n);
    n = 0;
    rows = 0;
    for (uint32_t b = 0; b < p->nlayers; b++) {
        for (uint32_t c = 0; c < p->nchoices; c++) {
            for (uint32_t in = 0; in < p->nlabels[(size_t)b * p->nchoices + c]; in++) {
                d->choice_of[rows] = c;
                d->end_at[rows++] = n;
                n += list_ends(d, b, c, in, d->end + n);
            }
        }
    }
    d->end_at[rows] = n;
}

static int64_t *impossible(ap_arena *arena, size_t n)
{
    int64_t *x = AP_NEW_ARRAY(arena, int64_t, n);
    for (size_t i = 0; i < n; i++)
        x[i] = AP_STAGES_INF;
    return x;
}

static void make_rows_of_numbers(ap_arena *arena, ap_stages_dp *d)
{
    size_t end = (size_t)d->levels * (d->p->nlayers + 1), shift = 0;
    size_t starts = d->start_at[end], rests = d->rest_at[end];
    for (uint32_t c = 0; c < d->p->nchoices; c++)
        shift = d->shift[c] > shift ? d->shift[c] : shift;
    d->start = impossible(arena, starts * d->ld);
    /* rows are read from u + shift on: what lies behind a row is of no use but must be there */
    d->rest = impossible(arena, rests * d->ld + shift + d->ld);
    d->start_alive = AP_NEW_ARRAY(arena, bool, starts);
    d->rest_alive = AP_NEW_ARRAY(arena, bool, rests);
}

static void make_numbers(ap_arena *arena, const ap_stages_problem *p, ap_stages_dp *d)
{
    size_t B = p->nlayers + 1, starts = 0, rests = 0, terms = 0, most = 0;
    d->start_at = AP_NEW_ARRAY(arena, size_t, B * d->levels + 1);
    d->rest_at = AP_NEW_ARRAY(arena, size_t, B * d->levels + 1);
    for (uint32_t s = 0; s < d->levels; s++) {
        for (uint32_t b = 0; b <= p->nlayers; b++) {
            d->start_at[s * B + b] = starts;
            d->rest_at[s * B + b] = rests;
            starts += b < p->nlayers && ap_stages_may_start(d, s, b) ? d->rows[b] : 0;
            rests += b == p->nlayers ? 1 : b > 0 ? d->transfers[d->class_of[b]].row_classes : 0;
        }
    }
    d->start_at[B * d->levels] = starts;
    d->rest_at[B * d->levels] = rests;
    for (uint32_t b = 0; b <= p->nlayers; b++) {
        terms += d->rows[b];
        most = d->rows[b] > most ? d->rows[b] : most;
    }
    make_rows_of_numbers(arena, d);
    d->term = AP_NEW_ARRAY(arena, int64_t, terms);
    d->term_row = AP_NEW_ARRAY(arena, uint32_t, terms);
    d->merged = AP_NEW_ARRAY(arena, int64_t, most * d->ld);
    d->merged_alive = AP_NEW_ARRAY(arena, bool, most);
    d->may_end = AP_NEW_ARRAY(arena, bool, B);
    d->other = AP_NEW_ARRAY(arena, int64_t, d->ld);
}

ap_status ap_stages_dp_make(ap_ctx *ctx, ap_arena *arena, const ap_stages_problem *p, ap_stages_ranges *r,
                            ap_stages_family family, bool idle, ap_stages_dp *out)
{
    *out = (ap_stages_dp){.p = p, .ranges = r, .family = family, .idle = idle, .product = ap_minplus_get()};
    AP_TRY(make_axes(ctx, arena, p, out));
    make_choices(arena, p, out);
    make_rows(arena, p, out);
    AP_TRY(make_classes(ctx, arena, p, out));
    AP_TRY(make_levels(ctx, arena, p, out));
    make_ends(arena, p, out);
    make_numbers(arena, p, out);
    return AP_OK;
}

void ap_stages_dp_bottlenecks(ap_arena *arena, const ap_stages_dp *d, ap_stages_dp *out)
{
    *out = *d; /* scratch is shared */
    make_rows_of_numbers(arena, out);
    out->product = ap_minmax_get();
    ap_stages_dp_run(out, AP_STAGES_LONGEST);
}
