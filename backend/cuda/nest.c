/* Loop nests as CUDA: loops over rows and within them (cuda.h says how they are spread over threads).
 *
 *     __global__ void NAME_g_softmax(const float *x0, float *y0)
 *     {
 *         for rows of this thread, group or block {
 *             section 0: ...
 *         }
 *     }
 */
#include "backend/cuda/cuda.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define line(...) ap_cuda_line(__VA_ARGS__)
#define text(...) ap_cuda_text(__VA_ARGS__)

bool ap_cuda_mentions(const char *s, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = strstr(s, name); at; at = strstr(at + 1, name)) {
        bool begins = at == s || !(isalnum((unsigned char)at[-1]) || at[-1] == '_' || at[-1] == '.');
        if (begins && !isalnum((unsigned char)at[n]) && at[n] != '_')
            return true;
    }
    return false;
}

static void open_block(ap_cuda_writer *w, const char *head)
{
    line(w, "%s {", head);
    w->depth++;
}

static void close_block(ap_cuda_writer *w)
{
    w->depth--;
    line(w, "}");
}

static bool is_fold(const ap_cuda_writer *w, uint32_t id, int section, ap_sop_kind kind)
{
    return w->n->sop[id].kind == kind && w->f.live[id] && w->n->sop[id].section == section;
}

static bool has_scan(const ap_cuda_writer *w, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if (is_fold(w, i, section, AP_SOP_SCAN))
            return true;
    return false;
}

/* Row-major position of the row, by the extents of the outer loops. */
static const char *row_position(const ap_cuda_writer *w, int64_t *out_rows)
{
    int64_t stride[AP_MAX_LOOPS] = {0}, step = 1;
    for (int l = w->n->nouter; l-- > 0;) {
        stride[l] = step;
        step = ap_sat_mul(step, w->n->extent[l]);
    }
    *out_rows = step;
    return ap_cuda_strides(w, stride, w->n->nouter);
}

/* ---- folds over a group ---- */

static void fold_group(ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_cuda_fold_type(w, s), *name = ap_cuda_fold_name(s);
    bool column = w->p.way == AP_CUDA_COLUMNS;
    const char *how = text(w, "aprt_fold_%s<%d, %s<%s>>", column ? "column" : "row", w->p.group, name, type);
    const char *shared = column || w->p.group > 32 ? "shared" : "nullptr";
    if (!ap_sop_is_argument_index(s)) {
        line(w, "s%u = %s(s%u, %s);", id, how, id, shared);
        return;
    }
    line(w, "const aprt_place<%s> f%u = %s(aprt_place<%s>{s%u, at%u}, %s);", type, id, how, type, id, id, shared);
    if (w->p.parts > 1)
        line(w, "s%u = f%u.x;", id, id);
    line(w, "at%u = f%u.at;", id, id);
}

/* Where the parts of a fold lie: [parts][rows], one such array for each fold. */
static const char *part_array(const ap_cuda_writer *w, uint32_t id, bool arg)
{
    int64_t rows, at = 0;
    row_position(w, &rows);
    for (uint32_t i = 0; i < id; i++)
        at += w->n->sop[i].kind == AP_SOP_REDUCE && w->f.live[i] ? rows * w->p.parts * 16 : 0;
    const char *type = ap_cuda_fold_type(w, &w->n->sop[id]);
    return text(w, arg ? "((aprt_place<%s> *)(scratch + %" PRId64 "))" : "((%s *)(scratch + %" PRId64 "))", type, at);
}

static void keep_part(ap_cuda_writer *w, uint32_t id)
{
    int64_t rows;
    bool arg = ap_sop_is_argument_index(&w->n->sop[id]);
    const char *at = row_position(w, &rows), *type = ap_cuda_fold_type(w, &w->n->sop[id]);
    const char *x = arg ? text(w, "aprt_place<%s>{s%u, at%u}", type, id, id) : text(w, "s%u", id);
    line(w, "if (first)");
    line(w, "    %s[%" PRId64 "*part + (%s)] = %s;", part_array(w, id, arg), rows, at, x);
}

/* The parts, one after the other. */
static void join_parts(ap_cuda_writer *w, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        int64_t rows;
        if (!is_fold(w, i, section, AP_SOP_REDUCE))
            continue;
        const ap_sop *s = &w->n->sop[i];
        bool arg = ap_sop_is_argument_index(s);
        const char *type = ap_cuda_fold_type(w, s), *at = row_position(w, &rows);
        const char *part = text(w, "%s[%" PRId64 "*part + (%s)]", part_array(w, i, arg), rows, at);
        ap_cuda_fold_start(w, i);
        open_block(w, text(w, "for (int part = 0; part < %" PRId64 "; part++)", w->p.parts));
        if (arg) {
            line(w, "const aprt_place<%s> f%u = %s<%s>()(aprt_place<%s>{s%u, at%u}, %s);", type, i,
                 ap_cuda_fold_name(s), type, type, i, i, part);
            line(w, "s%u = f%u.x;", i, i);
            line(w, "at%u = f%u.at;", i, i);
        } else {
            line(w, "s%u = %s<%s>()(s%u, %s);", i, ap_cuda_fold_name(s), type, i, part);
        }
        close_block(w);
        ap_cuda_fold_end(w, i);
    }
}

/* ---- sections by one thread ---- */

static void section_alone(ap_cuda_writer *w, int section)
{
    int outer = w->n->nouter, loops = ap_nest_section_loops(w->n, section);
    if (w->joins_parts && w->n->inner[section]) {
        join_parts(w, section);
        return;
    }
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if (is_fold(w, i, section, AP_SOP_REDUCE) || is_fold(w, i, section, AP_SOP_SCAN))
            ap_cuda_fold_start(w, i);
    ap_cuda_statements(w, section, outer);
    for (int l = outer; l < loops; l++) {
        const char *i = ap_cuda_loop(w, l);
        if (l == loops - 1 && w->n->ntemps && w->p.room == AP_CUDA_REGISTERS)
            line(w, "#pragma unroll");
        open_block(w, text(w, "for (%s %s = 0; %s < %s; %s++)", ap_cuda_int(w), i, i, ap_cuda_turns(w, l), i));
        ap_cuda_statements(w, section, l + 1);
    }
    for (int l = outer; l < loops; l++)
        close_block(w);
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if (is_fold(w, i, section, AP_SOP_REDUCE))
            ap_cuda_fold_end(w, i);
}

/* ---- sections by a group ---- */

/* Indices of the inner loops out of the position b in the row; the last one stands at its first element in `c`. */
static void split_position(ap_cuda_writer *w, const char *body)
{
    const ap_nest *n = w->n;
    const char *rest = "b", *type = ap_cuda_int(w);
    if (n->ninner == 1)
        return;
    for (int l = n->nouter + n->ninner - 1; l >= n->nouter; l--) {
        bool last = l == n->nouter + n->ninner - 1, vector = last && w->p.vector > 1;
        const char *name = vector ? "c" : ap_cuda_loop(w, l), *turns = ap_cuda_turns(w, l);
        if (ap_cuda_mentions(body, name))
            line(w, l == n->nouter ? "const %s %s = %s;" : "const %s %s = %s %% %s;", type, name, rest, turns);
        rest = text(w, last ? "%s / %s" : "%s / %s", rest, turns);
    }
}

/* What is done at one access: its elements one by one, or several. */
static void access(ap_cuda_writer *w, int section, int level)
{
    if (w->p.vector == 1) {
        ap_cuda_statements(w, section, level);
        return;
    }
    ap_text body, *t = w->t;
    int loop = w->p.vector_loop;
    w->phase = AP_CUDA_BEFORE;
    ap_cuda_statements(w, section, level);
    ap_cuda_pack_loads(w, section);
    line(w, "#pragma unroll");
    open_block(w, text(w, "for (int v = 0; v < %d; v++)", w->p.vector));
    ap_text_init(&body, &w->e->ctx->scratch);
    w->t = &body;
    w->phase = AP_CUDA_ELEMENT;
    ap_cuda_statements(w, section, level);
    w->t = t;
    const char *base = loop >= w->n->nouter && w->n->ninner > 1 ? "c" : "b";
    if (ap_cuda_mentions(ap_text_str(&body), ap_cuda_loop(w, loop)))
        line(w, "const %s %s = %s + v;", ap_cuda_int(w), ap_cuda_loop(w, loop), base);
    ap_text_add(t, ap_text_str(&body));
    close_block(w);
    ap_cuda_pack_stores(w, section);
    w->phase = AP_CUDA_WHOLE;
}

static void open_positions(ap_cuda_writer *w)
{
    const char *type = ap_cuda_int(w), *at = w->n->ninner == 1 && w->p.vector == 1 ? "j" : "b";
    const char *from = w->p.parts > 1 ? "from + " : "";
    const char *mine = w->p.vector > 1 ? text(w, "%d*t", w->p.vector) : "t";
    int step = w->p.group * w->p.vector;
    if (w->walks_together) {
        open_block(w, text(w, "for (%s base = 0; base < n; base += 32)", type));
        line(w, "const bool inside = base + t < n;");
        line(w, "const %s %s = inside ? base + t : n - 1;", type, at);
    } else if (w->p.turns) {
        line(w, "#pragma unroll");
        open_block(w, text(w, "for (int q = 0; q < %d; q++)", w->p.turns));
        line(w, "const %s %s = %d*q + %s;", type, at, step, mine);
        open_block(w, text(w, "if (%s < n)", at));
    } else {
        open_block(w, text(w, "for (%s %s = %s%s; %s < n; %s += %d)", type, at, from, mine, at, at, step));
    }
}

static void section_of_group(ap_cuda_writer *w, int section)
{
    const ap_nest *n = w->n;
    for (uint32_t i = 0; i < n->nsops; i++)
        if (is_fold(w, i, section, AP_SOP_REDUCE) || is_fold(w, i, section, AP_SOP_SCAN))
            ap_cuda_fold_start(w, i);
    ap_cuda_statements(w, section, n->nouter);
    if (n->inner[section] && w->f.inner_count > 0) {
        ap_text body, *t = w->t;
        w->walks_together = has_scan(w, section);
        open_positions(w);
        ap_text_init(&body, &w->e->ctx->scratch);
        w->t = &body;
        access(w, section, n->nouter + n->ninner);
        w->t = t;
        split_position(w, ap_text_str(&body));
        ap_text_add(t, ap_text_str(&body));
        if (w->p.turns && !w->walks_together)
            close_block(w);
        close_block(w);
        w->walks_together = false;
    }
    for (uint32_t i = 0; i < n->nsops; i++) {
        if (!is_fold(w, i, section, AP_SOP_REDUCE))
            continue;
        fold_group(w, i);
        if (w->p.parts > 1)
            keep_part(w, i);
        else
            ap_cuda_fold_end(w, i);
    }
}

/* ---- rows ---- */

static const char *rows_text(const ap_cuda_writer *w, const char *unsigned_type, bool counts_blocks)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int l = 0; l < w->n->nouter; l++) {
        int64_t extent = w->n->extent[l];
        const char *n = w->n->turns[l] ? text(w, "n%" PRIu32, w->n->turns[l] - 1) : "";
        bool lane = w->p.way == AP_CUDA_COLUMNS && l == w->p.lane && counts_blocks;
        if (w->p.serial[l])
            continue;
        if (l == w->p.vector_loop)
            extent /= w->p.vector;
        ap_text_add(&t, t.len ? " * " : "");
        if (!*n)
            ap_text_addf(&t, "(%s)%" PRId64, unsigned_type, lane ? (extent + 31) / 32 : extent);
        else
            ap_text_addf(&t, lane ? "(%s)((%s + 31) / 32)" : "(%s)%s", unsigned_type, n);
    }
    return t.len ? ap_text_str(&t) : "1";
}

/* Index of loop l, of those that are shared out, out of `rest`. */
static void print_index(ap_cuda_writer *w, int l, const char *body, bool last)
{
    const char *u = ap_cuda_unsigned(w), *type = ap_cuda_int(w);
    const char *turns = w->n->turns[l] ? text(w, "(%s)n%" PRIu32, u, w->n->turns[l] - 1)
                                       : text(w, "%" PRId64 "u",
                                              l == w->p.vector_loop ? w->n->extent[l] / w->p.vector : w->n->extent[l]);
    const char *mine = last ? "rest" : text(w, "rest %% %s", turns);
    if (l == w->p.vector_loop)
        line(w, "const %s b = (%s)(%s) * %d;", type, type, mine, w->p.vector);
    else if (ap_cuda_mentions(body, ap_cuda_loop(w, l)))
        line(w, "const %s %s = (%s)(%s);", type, ap_cuda_loop(w, l), type, mine);
    if (!last)
        line(w, "rest /= %s;", turns);
}

static void print_lane_index(ap_cuda_writer *w, bool last)
{
    int l = w->p.lane;
    const char *u = ap_cuda_unsigned(w), *type = ap_cuda_int(w), *i = ap_cuda_loop(w, l);
    const char *tiles = w->n->turns[l] ? text(w, "(((%s)n%" PRIu32 " + 31u) / 32u)", u, w->n->turns[l] - 1)
                                       : text(w, "%" PRId64 "u", (w->n->extent[l] + 31) / 32);
    line(w, "const %s at = (%s)(%s%s%s) * 32 + column;", type, type, "rest", last ? "" : " % ", last ? "" : tiles);
    line(w, "const bool here = at < %s;", ap_cuda_turns(w, l));
    line(w, "const %s %s = here ? at : 0;", type, i);
    if (!last)
        line(w, "rest /= %s;", tiles);
}

/* The fastest index first: that of the lane, then from the last loop to the first. */
static void print_indices(ap_cuda_writer *w, const char *body)
{
    int order[AP_MAX_LOOPS], count = 0;
    if (w->p.lane != AP_CUDA_NO_LOOP)
        order[count++] = w->p.lane;
    for (int l = w->n->nouter; l-- > 0;)
        if (l != w->p.lane && !w->p.serial[l])
            order[count++] = l;
    int all = count;
    while (count > 0 && order[count - 1] != w->p.lane && order[count - 1] != w->p.vector_loop &&
           !ap_cuda_mentions(body, ap_cuda_loop(w, order[count - 1])))
        count--;
    for (int i = 0; i < count; i++) {
        bool last = i == count - 1 && count == all;
        if (w->p.way == AP_CUDA_COLUMNS && order[i] == w->p.lane)
            print_lane_index(w, last);
        else
            print_index(w, order[i], body, last);
    }
}

static void print_all_indices(ap_cuda_writer *w, const char *body, const char *rest)
{
    ap_text indices, *t = w->t;
    ap_text_init(&indices, &w->e->ctx->scratch);
    w->t = &indices;
    print_indices(w, body);
    w->t = t;
    if (ap_cuda_mentions(ap_text_str(&indices), "rest"))
        line(w, "%s rest = %s;", ap_cuda_unsigned(w), rest);
    ap_text_add(t, ap_text_str(&indices));
}

/* ---- row temporaries ---- */

static int64_t blocks_at_most(const ap_cuda_plan *p)
{
    int64_t per_block = p->way == AP_CUDA_COLUMNS ? 1 : p->block / p->group;
    int64_t blocks = ap_max_i64(1, (p->rows + per_block - 1) / per_block);
    return p->most_blocks ? ap_min_i64(blocks, p->most_blocks) : blocks;
}

static void print_temporaries(ap_cuda_writer *w)
{
    const ap_cuda_plan *p = &w->p;
    int64_t count = ap_max_i64(1, w->f.inner_count), at = 0;
    const char *from = p->room == AP_CUDA_SHARED ? "kept" : "scratch";
    if (w->n->ntemps && p->room == AP_CUDA_SHARED)
        line(w, "APRT_SHARED(unsigned char, kept);");
    if (w->n->ntemps && p->room == AP_CUDA_SCRATCH && p->way == AP_CUDA_THREADS)
        line(w, "const int64_t threads = (int64_t)gridDim.x * %d;", p->block);
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if (ap_cuda_is_keeper(w, i))
            line(w, "%s k%u[%d];", ap_emit_register(w->n->sop[i].dtype), i, p->turns * p->vector);
    for (int i = 0; i < w->n->ntemps; i++) {
        const char *type = ap_emit_register(w->n->temp_dtype[i]);
        int64_t bytes = ap_cuda_temp_bytes(p, w->n, i);
        if (p->room == AP_CUDA_REGISTERS) {
            line(w, "%s t%d[%" PRId64 "];", type, i,
                 p->way == AP_CUDA_THREADS ? count : ap_max_i64(1, (int64_t)p->turns * p->vector));
            continue;
        }
        const char *base = p->room == AP_CUDA_SHARED ? text(w, "%s + %" PRId64, from, at)
                           : p->way == AP_CUDA_THREADS
                               ? text(w, "%s + %" PRId64, from, at)
                               : text(w, "%s + %" PRId64 " + (int64_t)blockIdx.x * %" PRId64, from, at, bytes);
        const char *mine = p->way == AP_CUDA_THREADS   ? text(w, " + (int64_t)blockIdx.x * %d + threadIdx.x", p->block)
                           : p->way == AP_CUDA_COLUMNS ? " + column"
                           : p->block > p->group ? text(w, " + (int64_t)(threadIdx.x / %d) * %" PRId64, p->group, count)
                                                 : "";
        line(w, "%s *const t%d = (%s *)(%s)%s;", type, i, type, base, mine);
        at += bytes * (p->room == AP_CUDA_SHARED ? 1 : blocks_at_most(p));
    }
}

/* ---- kernels ---- */

static void all_sections(ap_cuda_writer *w)
{
    int opened = 0;
    for (int l = 0; l < w->n->nouter; l++) {
        const char *i = ap_cuda_loop(w, l);
        if (!w->p.serial[l])
            continue;
        open_block(w, text(w, "for (%s %s = 0; %s < %s; %s++)", ap_cuda_int(w), i, i, ap_cuda_turns(w, l), i));
        opened++;
    }
    bool packs = w->p.vector > 1 && w->p.vector_loop < w->n->nouter;
    for (int s = 0; s < w->n->nsections; s++) {
        if (w->p.way != AP_CUDA_THREADS)
            section_of_group(w, s);
        else if (packs)
            access(w, s, w->n->nouter);
        else
            section_alone(w, s);
        bool last = true;
        for (int q = s + 1; q < w->n->nsections; q++)
            last = last && !w->n->inner[q];
        if (w->p.parts > 1 && !w->joins_parts && last)
            break;
    }
    while (opened-- > 0)
        close_block(w);
}

static void open_rows(ap_cuda_writer *w, const char *body)
{
    const ap_cuda_plan *p = &w->p;
    const char *u = ap_cuda_unsigned(w), *rows = rows_text(w, u, true);
    int per_block = p->way == AP_CUDA_COLUMNS ? 1 : p->block / p->group;
    bool cuts = p->parts > 1 && p->way != AP_CUDA_THREADS;
    const char *cut = cuts ? text(w, " * %" PRId64 "u", p->parts) : "";
    if (p->owners > 1)
        cut = text(w, " * %du", p->owners);
    line(w, "const %s rows = %s%s;", u, rows, cut);
    if (p->way == AP_CUDA_THREADS) {
        open_block(w, text(w, "for (%s row = (%s)blockIdx.x * %du + threadIdx.x; row < rows; row += gridDim.x * %du)",
                           u, u, p->block, p->block));
        if (p->owners > 1)
            line(w, "const int owner = (int)(row / (%s));", rows);
        print_all_indices(w, body, p->owners > 1 ? text(w, "row %% (%s)", rows) : "row");
        return;
    }
    bool several = per_block > 1, column = p->way == AP_CUDA_COLUMNS;
    open_block(w, several ? text(w, "for (%s base = (%s)blockIdx.x * %du; base < rows; base += gridDim.x * %du)", u, u,
                                 per_block, per_block)
                          : text(w, "for (%s row = blockIdx.x; row < rows; row += gridDim.x)", u));
    if (several) {
        line(w, "const %s row = base + threadIdx.x / %du;", u, p->group);
        line(w, "const bool here = row < rows;");
    }
    const char *mine = several ? "here ? row : 0" : "row";
    if (cuts) {
        line(w, "const %s part = (%s)((%s) %% %" PRId64 "u);", ap_cuda_int(w), ap_cuda_int(w), mine, p->parts);
        mine = text(w, "(%s) / %" PRId64 "u", mine, p->parts);
    }
    print_all_indices(w, body, mine);
    if (ap_cuda_mentions(body, "first"))
        line(w, "const bool first = %st == 0;", several || column ? "here && " : "");
    ap_text n;
    ap_text_init(&n, &w->e->ctx->scratch);
    for (int l = w->n->nouter; l < w->n->nouter + w->n->ninner; l++)
        ap_text_addf(&n, "%s%s", n.len ? " * " : "", ap_cuda_turns(w, l));
    const char *count = ap_text_str(&n), *type = ap_cuda_int(w);
    if (cuts) {
        int64_t length = (w->f.inner_count + p->parts - 1) / p->parts;
        length = (length + p->vector - 1) / p->vector * p->vector;
        line(w, "const %s from = part * %" PRId64 ", end = from + %" PRId64 ";", type, length, length);
        count = text(w, "end < %s ? end : %s", count, count);
    }
    if (ap_cuda_mentions(body, "n"))
        line(w, several || column ? "const %s n = here ? (%s) : 0;" : "const %s n = %s;", type, count);
}

static void print_kernel(ap_cuda_writer *w, const char *name)
{
    ap_text body, *t = w->t;
    const ap_cuda_plan *p = &w->p;
    ap_text_init(&body, &w->e->ctx->scratch);
    w->t = &body;
    w->depth = 2;
    all_sections(w);
    w->t = t;
    w->depth = 0;
    const char *s = ap_text_str(&body);
    ap_text_addf(t, "static __global__ void __launch_bounds__(%d) %s(", p->block, name);
    ap_cuda_parameters(w->e, t, w->index, w->e->apart[w->index]);
    ap_text_add(t, ")\n{\n");
    w->depth = 1;
    if (ap_cuda_mentions(s, "shared"))
        line(w, "alignas(16) __shared__ unsigned char shared[%s];",
             p->way == AP_CUDA_COLUMNS ? text(w, "%d * APRT_COLUMN_BYTES", p->group) : "APRT_FOLD_BYTES");
    if (p->way == AP_CUDA_COLUMNS)
        line(w, "const int t = threadIdx.x / 32, column = threadIdx.x %% 32;");
    else if (p->way == AP_CUDA_ROWS)
        line(w, p->block > p->group ? "const int t = threadIdx.x %% %d;" : "const int t = threadIdx.x;", p->group);
    print_temporaries(w);
    open_rows(w, s);
    ap_text_add(t, s);
    close_block(w);
    ap_text_add(t, "}\n");
}

/* Rows are counted on the host as well; without any nothing is launched. */
static void print_launch(ap_cuda_writer *w, const char *name, ap_text *launch)
{
    const ap_cuda_plan *p = &w->p;
    int per_block = p->way == AP_CUDA_COLUMNS ? 1 : p->block / p->group;
    ap_text *t = w->t;
    w->t = launch;
    w->depth = 1;
    bool cuts = p->parts > 1 && p->way != AP_CUDA_THREADS;
    const char *cut = cuts ? text(w, " * %" PRId64, p->parts) : p->owners > 1 ? text(w, " * %d", p->owners) : "";
    const char *blocks = text(w, per_block > 1 ? "(%s%s + %d) / %d" : "%s%s", rows_text(w, "int64_t", true), cut,
                              per_block - 1, per_block);
    const char *grid = text(w, "aprt_cuda_grid(d, %s)", blocks);
    if (p->most_blocks)
        grid = text(w, "aprt_clamp(%s, 1, %" PRId64 ")", grid, blocks_at_most(p));
    ap_text_addf(launch, "    APRT_LAUNCH(%s, %s, %d, %" PRId64 ", aprt_cuda_stream(d)", name, grid, p->block,
                 ap_cuda_shared_bytes(p, w->n));
    ap_cuda_arguments(w->e, launch, w->index);
    ap_text_add(launch, ");\n");
    w->t = t;
}

static bool is_never_run(const ap_nest *n)
{
    for (int l = 0; l < n->nouter; l++)
        if (n->extent[l] <= 0)
            return true;
    return false;
}

/* The second of two kernels: a thread for each row, which folds the parts and does what is left. */
static void print_join(ap_cuda_writer *w, const char *name, ap_text *launch)
{
    ap_cuda_writer second = *w;
    second.joins_parts = true;
    second.flat = false;
    second.p = (ap_cuda_plan){.way = AP_CUDA_THREADS,
                              .wide = w->p.wide,
                              .lane = AP_CUDA_NO_LOOP,
                              .vector = 1,
                              .vector_loop = AP_CUDA_NO_LOOP,
                              .group = 1,
                              .block = 64,
                              .owners = 1,
                              .parts = 1};
    second.p.rows = 1;
    for (int l = 0; l < w->n->nouter; l++)
        second.p.rows *= w->n->extent[l];
    ap_cuda_plan parts = w->p;
    ap_text_add(w->t, "\n");
    second.p.parts = parts.parts;
    print_kernel(&second, text(w, "%s_join", name));
    print_launch(&second, text(w, "%s_join", name), launch);
}

void ap_cuda_nest(const ap_emit *e, uint32_t index, ap_text *kernel, ap_text *launch)
{
    const ap_kernel *k = e->kernel[index];
    ap_cuda_writer w = {.e = e, .t = kernel, .index = index, .k = k, .n = &k->nest};
    if (is_never_run(&k->nest))
        return;
    w.f = ap_nest_find(&e->ctx->scratch, e->program, k);
    w.p = ap_cuda_plan_nest(e, index, &w.f);
    w.flat = w.p.way != AP_CUDA_THREADS;
    w.varies = ap_cuda_find_varying(&w);
    const char *name = text(&w, "%s_g_%s", e->opt->name, ap_name_str(e->ctx, k->name));
    ap_text_addf(launch, "    if (%s == 0)\n        return;\n", rows_text(&w, "int64_t", true));
    print_kernel(&w, name);
    print_launch(&w, name, launch);
    if (w.p.parts > 1)
        print_join(&w, name, launch);
}
