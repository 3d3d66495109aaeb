/* Loop nests in lanes (backend/nest.h) as instructions. */
#include "backend/llvm/build.h"

typedef struct lanes {
    ap_ll_rows r;
    ap_ll_kernel *w;
    ap_ll *b;
    const ap_nest *n;
    ap_lanes f;
    ap_ll_value first, count; /* of the block: where it begins, how many lanes */
    ap_ll_value *kept;        /* per sop: an array of a block */
} lanes;

static void make_sop(lanes *w, uint32_t id)
{
    ap_ll_rows_make(&w->r, id);
    if (w->kept[id] && w->n->sop[id].kind != AP_SOP_REDUCE)
        ap_ll_write(w->b, w->kept[id], w->r.lane, w->r.value[id]);
}

/* Numbers of rows that the section reads and another one has made. */
static void make_arrivals(lanes *w, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (!ap_lanes_arrives(&w->f, w->n, i, section))
            continue;
        if (s->kind == AP_SOP_REDUCE)
            w->r.value[i] = ap_ll_rows_folded(&w->r, i);
        else
            w->r.value[i] = ap_ll_read(w->b, ap_ll_register(w->b, s->dtype), w->kept[i], w->r.lane);
    }
}

static ap_ll_loop open_lane(lanes *w)
{
    ap_ll_loop loop = ap_ll_open_loop(w->b, ap_ll_int(w->b, 0), w->count, 1, true);
    w->r.lane = loop.i;
    w->r.loop[w->f.loop] = ap_ll_add(w->b, w->first, loop.i);
    return loop;
}

static void start_folds(lanes *w, int section)
{
    bool any = false;
    ap_ll_loop loop = {0};
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (s->kind != AP_SOP_REDUCE || s->section != section || !w->f.live[i])
            continue;
        if (!any)
            loop = open_lane(w);
        any = true;
        ap_ll_rows_fold_start(&w->r, i);
    }
    if (any)
        ap_ll_close_loop(w->b, &loop);
}

static ap_ll_loop open_loop(lanes *w, int l)
{
    ap_ll_value end = ap_ll_turns(w->w, w->n->extent[l], w->n->turns[l]);
    ap_ll_loop loop = ap_ll_open_loop(w->b, ap_ll_int(w->b, 0), end, 1, false);
    w->r.loop[l] = loop.i;
    return loop;
}

static void make_section(lanes *w, int section)
{
    const ap_nest *n = w->n;
    ap_ll_loop loop[AP_MAX_LOOPS], lane;
    int loops = ap_nest_section_loops(n, section);
    if (ap_lanes_is_empty(&w->f, n, section))
        return;
    start_folds(w, section);
    for (int l = n->nouter; l < loops; l++)
        loop[l] = open_loop(w, l);
    lane = open_lane(w);
    make_arrivals(w, section);
    for (uint32_t i = 0; i < n->nsops; i++)
        if (n->sop[i].section == section && w->f.live[i] && n->sop[i].kind != AP_SOP_CONST)
            make_sop(w, i);
    ap_ll_close_loop(w->b, &lane);
    for (int l = loops; l-- > n->nouter;)
        ap_ll_close_loop(w->b, &loop[l]);
}

/* ---- arrays ---- */

static void make_arrays(lanes *w)
{
    const ap_nest *n = w->n;
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        if (s->kind == AP_SOP_REDUCE && w->f.live[i])
            ap_ll_rows_hold(&w->r, i);
        else if (w->f.kept[i] && s->kind != AP_SOP_CONST)
            w->kept[i] = ap_ll_stack(w->b, ap_ll_register(w->b, s->dtype), w->f.width, 64);
    }
    ap_ll_rows_temps(&w->r);
}

/* Lanes of the block that begins at w->first. */
static ap_ll_value lanes_of_block(lanes *w, ap_ll_value end)
{
    const ap_nest *n = w->n;
    int64_t extent = n->extent[w->f.loop];
    if (!n->turns[w->f.loop] && (extent <= w->f.width || extent % w->f.width == 0))
        return ap_ll_int(w->b, ap_min_i64(extent, w->f.width));
    ap_ll_value pair[2] = {LLVMBuildNSWSub(w->b->builder, end, w->first, ""), ap_ll_int(w->b, w->f.width)};
    return ap_ll_intrinsic(w->b, "llvm.smin", 1, &w->b->i64, 2, pair);
}

void ap_ll_lanes(ap_ll_kernel *k)
{
    ap_arena *arena = &k->b->e->ctx->scratch;
    lanes w = {.w = k, .b = k->b, .n = &k->k->nest, .f = ap_lanes_facts(arena, k->k)};
    const ap_nest *n = w.n;
    ap_ll_loop loop[AP_MAX_LOOPS], blocks;
    w.r = ap_ll_rows_start(k, w.f.width, AP_LANES_LONG_SUM);
    w.kept = AP_NEW_ARRAY(arena, ap_ll_value, n->nsops);
    make_arrays(&w);
    for (int l = 0; l < n->nouter; l++)
        if (l != w.f.loop)
            loop[l] = open_loop(&w, l);
    ap_ll_value end = ap_ll_turns(k, n->extent[w.f.loop], n->turns[w.f.loop]);
    blocks = ap_ll_open_loop(w.b, ap_ll_int(w.b, 0), end, w.f.width, false);
    w.first = blocks.i;
    w.count = lanes_of_block(&w, end);
    for (int s = 0; s < n->nsections; s++)
        make_section(&w, s);
    ap_ll_close_loop(w.b, &blocks);
    for (int l = n->nouter; l-- > 0;)
        if (l != w.f.loop)
            ap_ll_close_loop(w.b, &loop[l]);
}
