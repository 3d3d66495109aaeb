/* Which nests are done in lanes, and what printers must know of them. */
#include "backend/nest.h"

enum { SCRATCH_BYTES = 1 << 19, WIDEST = 256, NARROWEST = 16, FEW = 4 };

static bool is_plain(const ap_sop *s)
{
    switch (s->kind) {
    case AP_SOP_LOAD:
    case AP_SOP_CONST:
    case AP_SOP_INDEX:
    case AP_SOP_POINTWISE:
    case AP_SOP_REDUCE:
    case AP_SOP_STORE:
    case AP_SOP_TEMP_STORE:
    case AP_SOP_TEMP_LOAD:
        return true;
    default:
        return false;
    }
}

/* How well loop l suits the innermost place: accesses of inner sections that it walks by ones, less those that it makes
 * jump. */
static int suits(const ap_kernel *k, int l)
{
    int score = 0;
    for (uint32_t i = 0; i < k->nest.nsops; i++) {
        const ap_sop *s = &k->nest.sop[i];
        if ((s->kind != AP_SOP_LOAD && s->kind != AP_SOP_STORE) || !k->nest.inner[s->section])
            continue;
        int64_t stride = k->operand[s->operand].stride[l];
        score += stride == 1 ? 1 : stride == 0 || k->nest.extent[l] == 1 ? 0 : -1;
    }
    return score;
}

static int64_t temp_bytes_per_lane(const ap_nest *n)
{
    int64_t bytes = 0;
    for (int i = 0; i < n->ntemps; i++)
        bytes = ap_sat_add(bytes, ap_sat_mul(ap_nest_inner_count(n), ap_nest_register_bytes(n->temp_dtype[i])));
    return bytes;
}

/* Bytes of a lane: 16 for what a reduction folds into, 8 for what a row keeps. */
static int64_t bytes_per_lane(const ap_nest *n)
{
    int64_t bytes = temp_bytes_per_lane(n);
    for (uint32_t i = 0; i < n->nsops; i++)
        bytes = ap_sat_add(bytes, n->sop[i].kind == AP_SOP_REDUCE ? 16 : n->inner[n->sop[i].section] ? 0 : 8);
    return bytes;
}

bool ap_lanes_find(const ap_kernel *k, int *out_loop, int64_t *out_width)
{
    const ap_nest *n = &k->nest;
    bool has_inner = false;
    int best = -1, best_score;
    if (k->kind != AP_KERNEL_NEST || n->ninner == 0)
        return false;
    for (int s = 0; s < n->nsections; s++)
        has_inner = has_inner || n->inner[s];
    for (uint32_t i = 0; i < n->nsops; i++)
        if (!is_plain(&n->sop[i]))
            return false;
    best_score = suits(k, n->nouter + n->ninner - 1);
    for (int l = 0; l < n->nouter; l++) {
        int score = n->extent[l] < FEW ? best_score : suits(k, l);
        if (score <= best_score)
            continue;
        best = l;
        best_score = score;
    }
    if (!has_inner || best < 0 || ap_sat_mul(temp_bytes_per_lane(n), NARROWEST) > SCRATCH_BYTES)
        return false;
    *out_loop = best;
    *out_width = WIDEST;
    while (*out_width > NARROWEST &&
           (*out_width / 2 >= n->extent[best] || ap_sat_mul(bytes_per_lane(n), *out_width) > AP_NEST_STACK_BYTES))
        *out_width /= 2;
    return true;
}

bool ap_emit_has_lanes(const ap_kernel *k)
{
    int loop;
    int64_t width;
    return ap_lanes_find(k, &loop, &width);
}

int64_t ap_emit_lanes_scratch(const ap_kernel *k)
{
    int loop;
    int64_t width, bytes = temp_bytes_per_lane(&k->nest);
    if (!ap_lanes_find(k, &loop, &width) || ap_sat_mul(bytes, width) <= AP_NEST_STACK_BYTES)
        return 0;
    return bytes * width + 64 * k->nest.ntemps;
}

ap_lanes ap_lanes_facts(ap_arena *arena, const ap_kernel *k)
{
    const ap_nest *n = &k->nest;
    ap_lanes f = {0};
    ap_lanes_find(k, &f.loop, &f.width);
    f.live = AP_NEW_ARRAY(arena, bool, n->nsops);
    f.kept = AP_NEW_ARRAY(arena, bool, n->nsops);
    for (uint32_t i = n->nsops; i-- > 0;) {
        const ap_sop *s = &n->sop[i];
        f.live[i] |= s->kind == AP_SOP_STORE || s->kind == AP_SOP_TEMP_STORE;
        for (int a = 0; f.live[i] && a < ap_sop_argument_count(s); a++) {
            f.live[s->arg[a]] = true;
            f.kept[s->arg[a]] |= n->sop[s->arg[a]].section != s->section;
        }
    }
    return f;
}

bool ap_lanes_arrives(const ap_lanes *f, const ap_nest *n, uint32_t id, int section)
{
    if (!f->kept[id] || n->sop[id].section >= section || n->sop[id].kind == AP_SOP_CONST)
        return false;
    for (uint32_t j = id + 1; j < n->nsops; j++)
        for (int a = 0; n->sop[j].section == section && f->live[j] && a < ap_sop_argument_count(&n->sop[j]); a++)
            if (n->sop[j].arg[a] == id)
                return true;
    return false;
}

bool ap_lanes_is_empty(const ap_lanes *f, const ap_nest *n, int section)
{
    for (uint32_t i = 0; i < n->nsops; i++)
        if (n->sop[i].section == section && f->live[i] && n->sop[i].kind != AP_SOP_CONST)
            return false;
    return true;
}
