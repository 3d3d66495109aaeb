/* Kernels of class POOL: text, what may be wrong with one, and which elements it touches. */
#include "ir/local_text.h"

#include "ir/parse.h"

#include <inttypes.h>

/* ---- text ----
 *
 *     max
 *     loop 8 int 0 from 3136 to 784
 *     window 3/2+1:1 on 56 count 28 from 56 to 28
 */

void ap_local_print_pool(const ap_pooling *p, ap_text *out)
{
    ap_text_addf(out, "  %s\n", p->kind < AP_POOL_KIND_COUNT ? ap_pool_text[p->kind] : "?");
    for (int l = 0; l < p->nloops && l < AP_MAX_LOOPS; l++) {
        ap_text_addf(out, "  loop %" PRId64, p->extent[l]);
        if (p->turns[l])
            ap_text_addf(out, " int %" PRIu32, p->turns[l] - 1);
        ap_text_addf(out, " from %" PRId64 " to %" PRId64 "\n", p->from[l], p->to[l]);
    }
    for (int d = 0; d < p->ndims && d < AP_MAX_RANK; d++) {
        const ap_pool_dim *m = &p->dim[d];
        ap_text_add(out, "  window ");
        ap_window_print(&m->window, out);
        ap_text_addf(out, " on %" PRId64 " count %" PRId64 " from %" PRId64 " to %" PRId64 "\n", m->extent, m->count,
                     m->from, m->to);
    }
}

static ap_status parse_strides(ap_lex *l, int64_t *from, int64_t *to)
{
    AP_TRY(ap_lex_expect_word(l, "from"));
    AP_TRY(ap_lex_i64(l, "a stride", from));
    AP_TRY(ap_lex_expect_word(l, "to"));
    return ap_lex_i64(l, "a stride", to);
}

static ap_status parse_dim(ap_lex *l, ap_pool_dim *d)
{
    AP_TRY(ap_window_parse(l, &d->window));
    AP_TRY(ap_lex_expect_word(l, "on"));
    AP_TRY(ap_lex_range(l, "an extent", 0, INT64_MAX, &d->extent));
    AP_TRY(ap_lex_expect_word(l, "count"));
    AP_TRY(ap_lex_range(l, "a count", 0, INT64_MAX, &d->count));
    return parse_strides(l, &d->from, &d->to);
}

ap_status ap_local_parse_pool(ap_lex *l, ap_pooling *p)
{
    int kind;
    AP_TRY(ap_parse_choice(l, "a kind of pooling", ap_pool_text, AP_POOL_KIND_COUNT, &kind));
    p->kind = (ap_pool_kind)kind;
    while (ap_lex_accept_word(l, "loop")) {
        int i = p->nloops;
        if (i == AP_MAX_LOOPS)
            return ap_lex_error(l, "more than %d loops", AP_MAX_LOOPS);
        AP_TRY(ap_lex_range(l, "an extent", 0, INT64_MAX, &p->extent[i]));
        AP_TRY(ap_local_parse_turns(l, &p->turns[i]));
        AP_TRY(parse_strides(l, &p->from[i], &p->to[i]));
        p->nloops++;
    }
    while (ap_lex_accept_word(l, "window")) {
        if (p->ndims == AP_MAX_RANK)
            return ap_lex_error(l, "more than %d windows", AP_MAX_RANK);
        AP_TRY(parse_dim(l, &p->dim[p->ndims]));
        p->ndims++;
    }
    return ap_lex_expect(l, "}");
}

/* ---- verifying ---- */

static const char *window_fault(const ap_pool_dim *d)
{
    const ap_window *w = &d->window;
    if (w->kernel < 1 || w->stride < 1 || w->dilation < 1 || w->lo < 0 || w->hi < 0)
        return "a window has no elements";
    if (w->kernel > AP_WINDOW_MAX || w->stride > AP_WINDOW_MAX || w->dilation > AP_WINDOW_MAX ||
        w->lo > AP_WINDOW_MAX || w->hi > AP_WINDOW_MAX || d->extent < 0 || d->extent > AP_MAX_ELEMENTS || d->count < 0)
        return "a window is too large";
    return d->count > ap_window_count(w, d->extent, true) ? "there are more windows than fit" : NULL;
}

const char *ap_local_pool_fault(const ap_kernel *k)
{
    const ap_pooling *p = &k->pool;
    if (k->noperands != 2 || k->operand[0].written || !k->operand[1].written)
        return "a pool reads one operand and writes another";
    if (p->kind >= AP_POOL_KIND_COUNT || p->nloops > AP_MAX_LOOPS || p->ndims > AP_MAX_RANK)
        return "it is of no kind, or has too many loops";
    ap_dtype x = k->operand[0].dtype, y = k->operand[1].dtype;
    if (y != (p->kind == AP_POOL_ARGMAX ? AP_I64 : x) || x == AP_BOOL)
        return "its types are not those of its kind";
    if ((p->kind == AP_POOL_AVG || p->kind == AP_POOL_AVG_PADS) && !ap_dtype_is_float(x))
        return "an average of integers";
    for (int l = 0; l < p->nloops; l++) {
        if (p->extent[l] < 0)
            return "a loop has a negative extent";
        if (p->turns[l] > k->nints)
            return "a loop names no int";
    }
    for (int d = 0; d < p->ndims; d++) {
        const char *fault = window_fault(&p->dim[d]);
        if (fault)
            return fault;
    }
    return NULL;
}

bool ap_local_pool_reach(const ap_pooling *p, const int64_t *ints, uint32_t operand, ap_reach *out)
{
    *out = (ap_reach){.any = true};
    for (int l = 0; l < p->nloops; l++) {
        int64_t turns = p->turns[l] && ints ? ints[p->turns[l] - 1] : p->extent[l];
        if (!ap_reach_loop(out, turns, operand ? p->to[l] : p->from[l]))
            return false;
    }
    for (int d = 0; d < p->ndims; d++) {
        const ap_pool_dim *m = &p->dim[d];
        if (m->count == 0)
            out->any = false;
        if (!ap_reach_loop(out, operand ? m->count : m->extent, operand ? m->to : m->from))
            return false;
    }
    return true;
}
