/* How a loop nest is spread over the threads of a GPU (cuda.h). All choices depend on the record alone, never on the
 * device, so that folds have the same order everywhere. */
#include "backend/cuda/cuda.h"

enum {
    THREADS = 256,           /* of a block, where nothing asks for another number */
    MOST_GROUP = 512,        /* threads that share a row */
    SHORT_ROW = 8,           /* up to here a thread does a row by itself */
    WARP_ROW = 1024,         /* up to here a warp does */
    MANY_ROWS = 1 << 15,     /* so many threads fill a large GPU */
    REGISTER_WORDS = 32,     /* of row temporaries of a thread */
    PACK_WORDS = 48,         /* of the accesses of a thread that are under way at one time */
    SHARED_BYTES = 32 << 10, /* of row temporaries of a block */
    SCRATCH_BYTES = 64 << 20,
    LOCAL_BYTES = 1 << 10, /* of row temporaries of a thread in an array of its own */
    MOST_PARTS = 256
};
#define NARROW (INT64_C(1) << 30)

static int64_t magnitude(int64_t x)
{
    return x < 0 ? (x == INT64_MIN ? INT64_MAX : -x) : x;
}

static int power_of_two(int64_t x, int most)
{
    int p = 1;
    while (p < x && p < most)
        p *= 2;
    return p;
}

/* ---- numbers ---- */

static bool is_wide(const ap_nest_facts *f)
{
    const ap_nest *n = f->n;
    int64_t all = 1;
    for (int l = 0; l < n->nouter; l++)
        all = ap_sat_mul(all, ap_max_i64(n->extent[l], 1));
    if (all >= NARROW || f->inner_count >= NARROW)
        return true;
    for (uint32_t i = 0; i < f->k->noperands; i++) {
        int64_t reach = 0;
        for (int l = 0; l < n->nouter + n->ninner; l++)
            reach = ap_sat_add(reach, ap_sat_mul(n->extent[l], magnitude(f->k->operand[i].stride[l])));
        for (uint32_t q = 0; q < n->nsops; q++)
            if (ap_sop_has_row(&n->sop[q]) && n->sop[q].operand == i)
                reach = ap_sat_add(reach, ap_sat_mul(n->sop[q].extent, magnitude(n->sop[q].stride)));
        if (reach >= NARROW)
            return true;
    }
    return false;
}

static int64_t shared_turns(const ap_cuda_plan *p, const ap_nest *n)
{
    int64_t rows = 1;
    for (int l = 0; l < n->nouter; l++)
        if (!p->serial[l])
            rows =
                ap_sat_mul(rows, p->way == AP_CUDA_COLUMNS && l == p->lane ? (n->extent[l] + 31) / 32 : n->extent[l]);
    return rows;
}

static bool has(const ap_nest_facts *f, ap_sop_kind kind)
{
    for (uint32_t i = 0; i < f->n->nsops; i++)
        if (f->n->sop[i].kind == kind && f->live[i])
            return true;
    return false;
}

static bool has_serial(const ap_cuda_plan *p, const ap_nest *n)
{
    for (int l = 0; l < n->nouter; l++)
        if (p->serial[l])
            return true;
    return false;
}

/* Does the nest look at what it has written, or update elements of a row that one thread cannot be given? */
static bool needs_order(const ap_nest_facts *f)
{
    for (uint32_t i = 0; i < f->n->nsops; i++) {
        const ap_sop *s = &f->n->sop[i];
        bool reads = s->kind == AP_SOP_LOAD || s->kind == AP_SOP_GATHER;
        if (f->live[i] && reads && f->k->operand[s->operand].written)
            return true;
        if (s->kind == AP_SOP_UPDATE)
            return true;
    }
    return false;
}

/* ---- accesses of several elements ---- */

/* The sop moves along the loop by ones, and nothing but its base and row decides where the others stand. */
static bool is_along(const ap_nest_facts *f, const ap_sop *s, int loop)
{
    if (s->kind != AP_SOP_LOAD && s->kind != AP_SOP_STORE && s->kind != AP_SOP_GATHER)
        return false;
    if (s->kind == AP_SOP_GATHER && f->level[ap_sop_row_index(s)] > loop)
        return false;
    return f->k->operand[s->operand].stride[loop] == 1;
}

static bool can_pack(const ap_emit *e, uint32_t index, const ap_nest_facts *f, const ap_sop *s, int loop, int v)
{
    const ap_nest *n = f->n;
    int64_t size = ap_dtype_bytes(f->k->operand[s->operand].dtype);
    for (int l = 0; l < ap_nest_section_loops(n, s->section); l++)
        if (l != loop && n->extent[l] > 1 && f->k->operand[s->operand].stride[l] % v)
            return false;
    if (s->kind == AP_SOP_GATHER && (s->stride % v || s->extent <= 0))
        return false;
    return ap_cuda_is_aligned(e, index, s->operand, ap_min_i64(16, v * size));
}

/* Which operands of the sections that run over `loop` can be accessed v elements at a time; how many registers that
 * takes. */
static int64_t mark_packed(const ap_emit *e, uint32_t index, const ap_nest_facts *f, int loop, int v, bool packed[256])
{
    const ap_nest *n = f->n;
    bool bad[256] = {false};
    int64_t words = 0;
    for (int i = 0; i < 256; i++)
        packed[i] = false;
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        bool over = loop < n->nouter || n->inner[s->section];
        bool access = s->kind == AP_SOP_LOAD || s->kind == AP_SOP_STORE || s->kind == AP_SOP_GATHER;
        if (!f->live[i] || !access || !over)
            continue;
        if (!is_along(f, s, loop) || !can_pack(e, index, f, s, loop, v))
            bad[s->operand] = true;
        else if (!packed[s->operand])
            words += ap_max_i64(1, v * ap_dtype_bytes(f->k->operand[s->operand].dtype) / 4);
        packed[s->operand] = true;
    }
    for (uint32_t i = 0; i < f->k->noperands; i++)
        packed[i] = packed[i] && !bad[i];
    return words;
}

static void choose_vector(const ap_emit *e, uint32_t index, const ap_nest_facts *f, ap_cuda_plan *p, int loop)
{
    const ap_nest *n = f->n;
    int64_t least = 16;
    p->vector = 1;
    if (loop < 0 || n->turns[loop] || has(f, AP_SOP_SCAN) || has(f, AP_SOP_UPDATE) || needs_order(f))
        return;
    for (uint32_t i = 0; i < n->nsops; i++)
        if (f->live[i] && is_along(f, &n->sop[i], loop))
            least = ap_min_i64(least, ap_dtype_bytes(f->k->operand[n->sop[i].operand].dtype));
    for (int v = (int)ap_min_i64(8, 16 / least); v > 1; v /= 2) {
        bool any = false;
        if (n->extent[loop] % v || mark_packed(e, index, f, loop, v, p->packed) > PACK_WORDS)
            continue;
        for (uint32_t i = 0; i < f->k->noperands; i++)
            any = any || p->packed[i];
        if (!any)
            continue;
        p->vector = v;
        p->vector_loop = loop;
        return;
    }
}

/* ---- row temporaries ---- */

static int64_t temp_bytes_per_element(const ap_nest *n)
{
    int64_t bytes = 0;
    for (int i = 0; i < n->ntemps; i++)
        bytes += ap_nest_register_bytes(n->temp_dtype[i]);
    return bytes;
}

static int64_t rows_per_block(const ap_cuda_plan *p)
{
    return p->way == AP_CUDA_COLUMNS ? 32 : p->block / p->group;
}

int64_t ap_cuda_shared_bytes(const ap_cuda_plan *p, const ap_nest *n)
{
    if (!n->ntemps || p->room != AP_CUDA_SHARED)
        return 0;
    int64_t bytes = 0;
    for (int i = 0; i < n->ntemps; i++)
        bytes = ap_sat_add(bytes, ap_cuda_temp_bytes(p, n, i));
    return bytes;
}

/* Of temporary i for all rows of a block. */
int64_t ap_cuda_temp_bytes(const ap_cuda_plan *p, const ap_nest *n, int i)
{
    int64_t bytes = ap_sat_mul(ap_max_i64(1, ap_nest_inner_count(n)), ap_nest_register_bytes(n->temp_dtype[i]));
    return (ap_sat_mul(bytes, rows_per_block(p)) + 15) / 16 * 16;
}

uint32_t ap_cuda_kept_by(const ap_nest_facts *f, uint32_t id)
{
    const ap_sop *s = &f->n->sop[id];
    for (uint32_t i = 0; i < id && s->kind == AP_SOP_LOAD && f->n->inner[s->section]; i++) {
        const ap_sop *q = &f->n->sop[i];
        if (q->kind == AP_SOP_LOAD && q->operand == s->operand && q->section < s->section && f->live[i] &&
            f->n->inner[q->section] && f->level[i] > f->n->nouter)
            return i;
    }
    return AP_NONE;
}

/* Registers for what several sections read, of an element. */
static int64_t kept_bytes_per_element(const ap_nest_facts *f)
{
    bool counted[256] = {false};
    int64_t bytes = 0;
    for (uint32_t i = 0; i < f->n->nsops; i++) {
        uint8_t operand = f->n->sop[i].operand;
        if (!f->live[i] || ap_cuda_kept_by(f, i) == AP_NONE || counted[operand])
            continue;
        counted[operand] = true;
        bytes += ap_nest_register_bytes(f->n->sop[i].dtype);
    }
    return bytes;
}

static void choose_kept(const ap_nest_facts *f, ap_cuda_plan *p)
{
    int64_t per_thread = (f->inner_count + (int64_t)p->group * p->vector - 1) / ((int64_t)p->group * p->vector);
    int64_t temps = f->n->ntemps && p->room == AP_CUDA_REGISTERS ? temp_bytes_per_element(f->n) : 0;
    int64_t bytes = kept_bytes_per_element(f);
    if (p->way == AP_CUDA_THREADS || !bytes || has(f, AP_SOP_SCAN) ||
        ap_sat_mul(ap_sat_mul(per_thread, p->vector), bytes + temps) > 4 * REGISTER_WORDS)
        return;
    p->keeps = true;
    p->turns = (int)ap_max_i64(1, per_thread);
}

static void choose_room(const ap_nest_facts *f, ap_cuda_plan *p)
{
    const ap_nest *n = f->n;
    int64_t per_thread = (f->inner_count + (int64_t)p->group * p->vector - 1) / ((int64_t)p->group * p->vector);
    int64_t words = ap_sat_mul(ap_sat_mul(per_thread, p->vector), temp_bytes_per_element(n)) / 4;
    if (!n->ntemps)
        return;
    if (p->way == AP_CUDA_THREADS) {
        p->room =
            ap_sat_mul(f->inner_count, temp_bytes_per_element(n)) <= LOCAL_BYTES ? AP_CUDA_REGISTERS : AP_CUDA_SCRATCH;
    } else if (words <= REGISTER_WORDS) {
        p->room = AP_CUDA_REGISTERS;
        p->turns = (int)ap_max_i64(1, per_thread);
    } else {
        p->room = AP_CUDA_SHARED;
        if (ap_cuda_shared_bytes(p, n) > SHARED_BYTES)
            p->room = AP_CUDA_SCRATCH;
    }
    int64_t block = ap_max_i64(1, ap_sat_mul(ap_sat_mul(f->inner_count, temp_bytes_per_element(n)), rows_per_block(p)));
    if (p->room == AP_CUDA_SCRATCH)
        p->most_blocks = ap_max_i64(1, SCRATCH_BYTES / block);
}

/* ---- rows that are cut ---- */

/* Few long rows that are only folded: parts by themselves, then the parts in their order. */
static bool only_folds(const ap_nest_facts *f)
{
    int sections = 0;
    for (int s = 0; s < f->n->nsections; s++)
        sections += f->n->inner[s];
    for (uint32_t i = 0; i < f->n->nsops; i++) {
        const ap_sop *s = &f->n->sop[i];
        bool sinks = s->kind == AP_SOP_STORE || s->kind == AP_SOP_TEMP_STORE || s->kind == AP_SOP_UPDATE;
        bool early = sinks && !f->n->inner[s->section];
        for (int q = s->section; q < f->n->nsections && early; q++)
            if (f->n->inner[q])
                return false;
        if (sinks && f->n->inner[s->section])
            return false;
    }
    return sections == 1 && !has(f, AP_SOP_SCAN);
}

static void choose_parts(const ap_nest_facts *f, ap_cuda_plan *p)
{
    int64_t threads = ap_sat_mul(p->rows, p->way == AP_CUDA_COLUMNS ? p->block : p->group);
    p->parts = 1;
    if (!only_folds(f) || threads >= MANY_ROWS || f->inner_count < (int64_t)16 * p->group)
        return;
    p->parts = ap_min_i64(ap_min_i64(MOST_PARTS, f->inner_count / ((int64_t)8 * p->group)),
                          MANY_ROWS / ap_max_i64(threads, 1));
    p->parts = ap_max_i64(1, p->parts);
}

int64_t ap_cuda_plan_scratch(const ap_cuda_plan *p, const ap_nest_facts *f)
{
    int64_t bytes = 0, rows = ap_sat_mul(p->rows, p->way == AP_CUDA_COLUMNS ? 32 : 1);
    for (uint32_t i = 0; i < f->n->nsops && p->parts > 1; i++)
        if (f->n->sop[i].kind == AP_SOP_REDUCE && f->live[i])
            bytes = ap_sat_add(bytes, ap_sat_mul(ap_sat_mul(rows, p->parts), 16));
    int64_t per_block = (p->rows + p->block / p->group - 1) / (p->block / p->group), blocks = p->most_blocks;
    if (p->way == AP_CUDA_COLUMNS)
        per_block = p->rows;
    blocks = ap_min_i64(blocks, ap_max_i64(1, per_block));
    for (int i = 0; i < f->n->ntemps && p->most_blocks; i++)
        bytes = ap_sat_add(bytes, ap_sat_mul(ap_cuda_temp_bytes(p, f->n, i), blocks));
    return bytes;
}

/* ---- the choice ---- */

/* The loop that most of what is read and written moves along by ones; of those that threads share. */
static int find_lane(const ap_nest_facts *f, const ap_cuda_plan *p)
{
    const ap_nest *n = f->n;
    int best = AP_CUDA_NO_LOOP, best_score = 0;
    for (int l = 0; l < n->nouter; l++) {
        int score = 0;
        for (uint32_t i = 0; i < n->nsops; i++) {
            const ap_sop *s = &n->sop[i];
            bool access = s->kind == AP_SOP_LOAD || s->kind == AP_SOP_STORE || s->kind == AP_SOP_GATHER ||
                          s->kind == AP_SOP_UPDATE;
            bool writes = s->kind == AP_SOP_STORE || s->kind == AP_SOP_UPDATE;
            if (f->live[i] && access && magnitude(f->k->operand[s->operand].stride[l]) == 1)
                score += writes ? 3 : 2;
        }
        if (n->extent[l] >= 2 && !p->serial[l] && score >= best_score) {
            best = l;
            best_score = score;
        }
    }
    return best;
}

static void plan_rows(const ap_emit *e, uint32_t index, const ap_nest_facts *f, ap_cuda_plan *p)
{
    const ap_nest *n = f->n;
    p->way = AP_CUDA_ROWS;
    p->lane = AP_CUDA_NO_LOOP;
    choose_vector(e, index, f, p, n->nouter + n->ninner - 1);
    int64_t accesses = f->inner_count / p->vector;
    p->group =
        f->inner_count <= WARP_ROW ? power_of_two(accesses, 32) : power_of_two((f->inner_count + 15) / 16, MOST_GROUP);
    p->group = (int)ap_max_i64(p->group, 4);
    if (has(f, AP_SOP_SCAN))
        p->group = 32;
    p->block = p->group <= 32 ? THREADS : p->group;
    p->rows = shared_turns(p, n);
}

static void plan_columns(const ap_nest_facts *f, ap_cuda_plan *p, int lane)
{
    p->way = AP_CUDA_COLUMNS;
    p->lane = lane;
    p->group = power_of_two((f->inner_count + 3) / 4, 16);
    while (p->group > 8 && ap_sat_mul(shared_turns(p, f->n), 32 * p->group / 2) >= 4 * MANY_ROWS)
        p->group /= 2;
    p->block = 32 * p->group;
    p->rows = shared_turns(p, f->n);
}

static void plan_threads(const ap_emit *e, uint32_t index, const ap_nest_facts *f, ap_cuda_plan *p)
{
    p->way = AP_CUDA_THREADS;
    p->lane = find_lane(f, p);
    p->group = 1;
    p->block = THREADS;
    if (!f->has_inner && !has_serial(p, f->n))
        choose_vector(e, index, f, p, p->lane);
    p->rows = shared_turns(p, f->n) / p->vector;
    p->owners = ap_cuda_find_owners(e, index, f, p->serial, MANY_ROWS / ap_max_i64(p->rows, 1));
    p->rows = ap_sat_mul(p->rows, p->owners);
}

ap_cuda_plan ap_cuda_plan_nest(const ap_emit *e, uint32_t index, const ap_nest_facts *f)
{
    ap_cuda_plan p = {.vector = 1, .vector_loop = AP_CUDA_NO_LOOP, .parts = 1, .owners = 1, .lane = AP_CUDA_NO_LOOP};
    int lane;
    int64_t width;
    ap_cuda_find_serial(e, index, f, p.serial);
    p.wide = is_wide(f);
    int64_t rows = shared_turns(&p, f->n);
    bool scans = has(f, AP_SOP_SCAN), lanes = ap_lanes_find(f->k, &lane, &width);
    bool alone = f->inner_count <= SHORT_ROW || (scans && rows >= MANY_ROWS && f->inner_count <= WARP_ROW) ||
                 (lanes && rows >= 4 * MANY_ROWS && !f->n->ntemps);
    if (!f->has_inner || has_serial(&p, f->n) || needs_order(f) || (alone && rows > 64))
        plan_threads(e, index, f, &p);
    else if (lanes)
        plan_columns(f, &p, lane);
    else
        plan_rows(e, index, f, &p);
    choose_room(f, &p);
    choose_kept(f, &p);
    if (p.way != AP_CUDA_THREADS)
        choose_parts(f, &p);
    return p;
}
