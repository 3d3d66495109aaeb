/* Random products with what follows them, windows and first elements of rows: the kernels of random_nest.h that are no
 * nests. */
#ifndef AP_TESTS_BACKEND_RANDOM_PRODUCT_H
#define AP_TESTS_BACKEND_RANDOM_PRODUCT_H

#include "tests/backend/random_layout.h"

#include "ir/pool.h"

/* ---- products ---- */

typedef struct random_product {
    int m, n, k, nloops;
    bool sum[2];
} random_product;

static inline int product_size(random_nests *t)
{
    static const int edges[] = {1, 2, 7, 8, 14, 16, 17, 31, 32, 33, 48, 64, 70};
    return nest_draw(t, 3) ? edges[nest_draw(t, 13)] : 1 + nest_draw(t, 40);
}

/* A matrix for each turn of the loops that move it, rows or columns adjacent, with or without room between. Appends
 * `a [rows,columns]`; strides of the loops. */
static inline void product_matrix(random_nest *r, const random_product *p, const char *name, int rows, int columns,
                                  ap_text *body, int64_t stride[2])
{
    random_nests *t = r->all;
    bool turned = nest_chance(t, 2);
    int inner = turned ? rows : columns, outer = turned ? columns : rows;
    int64_t lead = (inner ? inner : 1) + (nest_chance(t, 3) ? nest_draw(t, 5) : 0), size = lead * outer;
    nest_place place = {.at = nest_chance(t, 4) ? nest_draw(t, 4) : 0};
    for (int l = p->nloops - 1; l >= 0; l--) {
        bool moves = p->sum[l] || nest_draw(t, 3);
        stride[l] = moves ? size : 0;
        size *= moves ? r->extent[l] : 1;
    }
    place.size = size + place.at;
    nest_operand(r, r->type, true, &place, 0);
    ap_text_addf(body, " %s [%lld,%lld]", name, (long long)(turned ? 1 : lead), (long long)(turned ? lead : 1));
}

/* One number for each column. */
static inline int product_bias(random_nest *r, const random_product *p)
{
    nest_place place = {.size = p->n};
    place.stride[p->nloops + 1] = 1;
    return nest_sop(r, r->type, "load %d", nest_operand(r, r->type, true, &place, p->nloops + 2));
}

static inline int product_times(random_nest *r, int x, double factor)
{
    return nest_sop(r, r->type, "mul %%%d, %%%d", x, nest_sop(r, r->type, "const %.9g", factor));
}

/* The approximation by tanh, as the frontend writes it, or with the cube on the other side. */
static inline int product_gelu(random_nest *r, int x)
{
    int square = nest_sop(r, r->type, "mul %%%d, %%%d", x, x), cube = nest_sop(r, r->type, "mul %%%d, %%%d", square, x);
    int inner = nest_sop(r, r->type, "add %%%d, %%%d", x, product_times(r, cube, 0.044715));
    int tanh = nest_sop(r, r->type, "tanh %%%d", product_times(r, inner, 0.797884561));
    int plus = nest_sop(r, r->type, "add %%%d, %%%d", nest_sop(r, r->type, "const 1"), tanh);
    if (nest_chance(r->all, 2))
        return nest_sop(r, r->type, "mul %%%d, %%%d", product_times(r, x, 0.5), plus);
    return product_times(r, nest_sop(r, r->type, "mul %%%d, %%%d", x, plus), 0.5);
}

static inline void product_follower(random_nest *r, const random_product *p)
{
    random_nests *t = r->all;
    int nall = p->nloops + 2;
    nest_place place;
    ap_text_add(&r->sops, "  row:\n");
    int x = nest_sop(r, r->type, "load 2");
    if (nest_draw(t, 3)) {
        int bias = product_bias(r, p), first = nest_draw(t, 2);
        x = nest_sop(r, r->type, "add %%%d, %%%d", first ? bias : x, first ? x : bias);
    }
    switch (nest_draw(t, 7)) {
    case 0:
        break;
    case 1:
        x = nest_sop(r, r->type, "relu %%%d", x);
        break;
    case 2:
    case 3:
        x = product_gelu(r, x);
        break;
    case 4: /* a residual, which may be the same along some loops */
        place = nest_layout(r, nall, r->extent, true);
        x = nest_sop(r, r->type, "add %%%d, %%%d", x,
                     nest_sop(r, r->type, "load %d", nest_operand(r, r->type, true, &place, nall)));
        break;
    case 5: /* the sums as well as what is made of them */
        place = nest_layout(r, nall, r->extent, false);
        nest_sop(r, r->type, "store %d, %%%d", nest_operand(r, r->type, false, &place, nall), x);
        x = nest_sop(r, r->type, "tanh %%%d", x);
        break;
    default:
        x = nest_work(r, product_times(r, x, 0.125), x);
        break;
    }
    nest_sop(r, r->type, "store 2, %%%d", x);
}

static inline void random_product_add(random_nest *r)
{
    random_nests *t = r->all;
    random_product p = {product_size(t), product_size(t), product_size(t), nest_draw(t, 3), {false, false}};
    int64_t a[2], b[2], c[2] = {0}, rows = p.n + (r->fills && nest_chance(t, 3) ? nest_draw(t, 4) : 0);
    int counted = r->fills ? nest_draw(t, 5) : -1, count;
    ap_text body;
    ap_text_init(&body, t->head.arena);
    p.k = nest_chance(t, 6) ? 200 + nest_draw(t, 200) : nest_chance(t, 20) ? 0 : p.k;
    for (int l = 0; l < p.nloops; l++) {
        r->extent[l] = 1 + nest_draw(t, 4);
        p.sum[l] = nest_chance(t, 5);
    }
    r->extent[p.nloops] = p.m;
    r->extent[p.nloops + 1] = p.n;
    r->nouter = p.nloops + 2;
    count = counted < 0 ? 0 : counted == 2 ? p.k : counted >= 3 ? r->extent[0] : r->extent[p.nloops + counted];
    if (counted >= 0 && (counted < 3 || p.nloops))
        nest_int(r, nest_draw(t, count + 1));
    char number[3][16] = {"", "", ""};
    if (counted >= 0 && counted < 3)
        snprintf(number[counted], sizeof *number, " int 0");
    ap_text_addf(&body, "  %s m %d%s n %d%s k %d%s\n ", r->type, p.m, number[0], p.n, number[1], p.k, number[2]);
    product_matrix(r, &p, "a", p.m, p.k, &body, a);
    product_matrix(r, &p, "b", p.k, p.n, &body, b);
    nest_place place = {.size = p.m * rows};
    for (int l = p.nloops - 1; l >= 0; l--) {
        c[l] = p.sum[l] ? 0 : place.size;
        place.size *= p.sum[l] ? 1 : r->extent[l];
    }
    nest_operand(r, r->type, false, &place, 0);
    ap_text_addf(&body, " c [%lld,1]\n", (long long)rows);
    for (int l = 0; l < p.nloops; l++)
        ap_text_addf(&body, "  loop %d%s a %lld b %lld c %lld%s\n", r->extent[l],
                     counted >= 3 && l == 0 ? " int 0" : "", (long long)a[l], (long long)b[l], (long long)c[l],
                     p.sum[l] ? " sum" : "");
    bool sums = (p.nloops > 0 && p.sum[0]) || (p.nloops > 1 && p.sum[1]);
    if (!sums && nest_draw(t, 6))
        product_follower(r, &p);
    nest_finish(r, "gemm", ap_text_str(&body));
}

/* ---- windows ---- */

static inline void random_pool_add(random_nest *r)
{
    static const char *const kinds[] = {"max", "argmax", "sum", "avg", "avg_pads"};
    random_nests *t = r->all;
    int kind = nest_draw(t, r->is_float ? 5 : 3), n = 2 + nest_draw(t, 3), loops = 1 + nest_draw(t, 2);
    int size[8], window[8], stride[8], dilation[8], lo[8], hi[8];
    ap_text body;
    ap_text_init(&body, t->head.arena);
    loops = loops < n ? loops : n - 1;
    for (int d = 0; d < n; d++) {
        size[d] = 1 + nest_draw(t, n > 3 ? 7 : 16);
        window[d] = 1 + nest_draw(t, nest_chance(t, 3) ? size[d] : 4), stride[d] = 1 + nest_draw(t, 3);
        dilation[d] = nest_chance(t, 4) ? 2 : 1;
        lo[d] = nest_draw(t, 3), hi[d] = nest_draw(t, 3);
        int reach = (window[d] - 1) * dilation[d] + 1;
        if (size[d] + lo[d] + hi[d] < reach)
            hi[d] = reach - size[d] - lo[d];
        const ap_window w = {window[d], stride[d], dilation[d], lo[d], hi[d]};
        r->extent[d] = d < loops ? size[d] : (int)ap_window_count(&w, size[d], true);
    }
    nest_place from = nest_layout(r, n, size, true), to = nest_layout(r, n, r->extent, false);
    nest_operand(r, r->type, true, &from, 0);
    nest_operand(r, kind == 1 ? "i64" : r->type, false, &to, 0);
    ap_text_addf(&body, "  %s\n", kinds[kind]);
    for (int d = 0; d < n; d++) {
        if (d < loops)
            ap_text_addf(&body, "  loop %d", size[d]);
        else
            ap_text_addf(&body, "  window %d/%d~%d+%d:%d on %d count %d", window[d], stride[d], dilation[d], lo[d],
                         hi[d], size[d], r->extent[d]);
        if (d == 0 && r->fills)
            ap_text_addf(&body, " int %d", nest_int(r, nest_draw(t, size[0] + 1)));
        ap_text_addf(&body, " from %lld to %lld\n", (long long)from.stride[d], (long long)to.stride[d]);
    }
    nest_finish(r, "pool", ap_text_str(&body));
}

/* ---- first elements of rows ---- */

static inline void random_topk_add(random_nest *r)
{
    static const int lengths[] = {1, 2, 5, 33, 64, 130, 600, 1025, 2048, 2049, 5000};
    random_nests *t = r->all;
    int n = lengths[nest_draw(t, 11)], most = n < 300 ? n : 40, k = 1 + nest_draw(t, nest_chance(t, 3) ? most : 5);
    nest_place place[3];
    ap_text body;
    ap_text_init(&body, t->head.arena);
    k = k < n ? k : n;
    r->nouter = nest_draw(t, 3);
    for (int l = 0; l < r->nouter; l++)
        r->extent[l] = 1 + nest_draw(t, n > 1000 ? 3 : 9);
    for (int i = 0; i < 3; i++) {
        r->extent[r->nouter] = i ? k : n;
        place[i] = nest_layout(r, r->nouter + 1, r->extent, i == 0);
        ap_text_addf(&r->operands, "  %s %s", i ? "write" : "read", i == 2 ? "i64" : r->type);
        nest_add_strides(r, place[i].stride, r->nouter);
        if (i == 0) {
            nest_add_place(r, "input", nest_add_input(t, "i", r->type, place[i].size), place[i].at);
        } else {
            ap_text_addf(&t->head, "output \"o%d\" %s[%lld]\n", t->outputs, i == 2 ? "i64" : r->type,
                         (long long)place[i].size);
            nest_add_place(r, "output", t->outputs++, place[i].at);
            if (r->fills)
                nest_fill(t, t->outputs - 1, i == 2 ? "i64" : r->type, place[i].size, -1);
        }
        r->noperands++;
    }
    ap_text_add(&body, "  outer ");
    nest_add_extents(&body, r->extent, r->nouter);
    ap_text_add(&body, " inner []\n");
    if (r->fills && r->nouter)
        ap_text_addf(&body, "  turns 0 int %d\n", nest_int(r, nest_draw(t, r->extent[0] + 1)));
    ap_text_addf(&body, "  %s %d of %d strides [%lld,%lld,%lld]\n", nest_chance(t, 2) ? "largest" : "smallest", k, n,
                 (long long)place[0].stride[r->nouter], (long long)place[1].stride[r->nouter],
                 (long long)place[2].stride[r->nouter]);
    nest_finish(r, "topk", ap_text_str(&body));
}

#endif
