#include "backend/pool.h"

enum { LONG_SUM = 4096 };

bool ap_pool_is_max(const ap_pooling *p)
{
    return p->kind == AP_POOL_MAX || p->kind == AP_POOL_ARGMAX;
}

int64_t ap_pool_places(const ap_pooling *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndims; d++)
        n = ap_sat_mul(n, p->dim[d].window.kernel);
    return n;
}

ap_fold_type ap_pool_fold_type(const ap_pooling *p, ap_dtype t)
{
    if (ap_pool_is_max(p) || (ap_dtype_is_float(t) && ap_pool_places(p) <= LONG_SUM))
        return AP_FOLD_REGISTER;
    return ap_dtype_is_float(t) ? AP_FOLD_DOUBLE : AP_FOLD_U64;
}

ap_pool_lane ap_pool_find_lane(const ap_pooling *p)
{
    ap_pool_lane lane = {AP_POOL_NO_LANE, AP_POOL_NO_LANE};
    int best = 0;
    for (int l = 0; l < p->nloops && p->kind != AP_POOL_ARGMAX; l++) {
        int score = p->extent[l] < 4 ? 0 : 4 * (p->from[l] == 1) + 2 * (p->to[l] == 1);
        if (score > best) {
            best = score;
            lane.loop = l;
        }
    }
    for (int d = 0; d < p->ndims && p->kind != AP_POOL_ARGMAX; d++) {
        const ap_pool_dim *m = &p->dim[d];
        int score = m->count < 4 ? 0 : 3 * (m->from == 1) + 2 * (m->to == 1);
        if (score > best) {
            best = score;
            lane = (ap_pool_lane){AP_POOL_NO_LANE, d};
        }
    }
    return lane;
}

void ap_pool_whole_windows(const ap_pool_dim *m, int64_t *out_first, int64_t *out_end)
{
    const ap_window *w = &m->window;
    int64_t last = m->extent - 1 - (w->kernel - 1) * w->dilation + w->lo;
    int64_t first = ap_min_i64(m->count, (w->lo + w->stride - 1) / w->stride);
    *out_first = first;
    *out_end = last < 0 ? first : ap_max_i64(first, ap_min_i64(m->count, last / w->stride + 1));
}

bool ap_pool_is_never_cut(const ap_pool_dim *m)
{
    int64_t first, end;
    ap_pool_whole_windows(m, &first, &end);
    return first == 0 && end == m->count;
}
