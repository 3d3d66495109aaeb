#include "backend/nest.h"

#include <math.h>

/* ---- operations ---- */

int ap_sop_argument_count(const ap_sop *s)
{
    switch (s->kind) {
    case AP_SOP_GATHER:
    case AP_SOP_CHECK:
    case AP_SOP_REDUCE:
    case AP_SOP_SCAN:
    case AP_SOP_STORE:
    case AP_SOP_TEMP_STORE:
        return 1;
    case AP_SOP_UPDATE:
        return s->imm.i >= 0 ? 2 : 1;
    case AP_SOP_POINTWISE:
        return ap_pointwise_nin((ap_pointwise)s->pw);
    default:
        return 0;
    }
}

bool ap_sop_has_row(const ap_sop *s)
{
    return s->kind == AP_SOP_GATHER || (s->kind == AP_SOP_UPDATE && s->imm.i >= 0);
}

uint32_t ap_sop_row_index(const ap_sop *s)
{
    return s->arg[s->kind == AP_SOP_UPDATE];
}

bool ap_sop_is_argument_index(const ap_sop *s)
{
    return s->reduce == AP_REDUCE_ARGMAX || s->reduce == AP_REDUCE_ARGMIN;
}

bool ap_sop_is_sum(const ap_sop *s)
{
    return s->reduce == AP_REDUCE_SUM || s->reduce == AP_REDUCE_PROD;
}

bool ap_sop_is_largest(const ap_sop *s)
{
    return s->reduce == AP_REDUCE_MAX || s->reduce == AP_REDUCE_ARGMAX;
}

ap_fold_type ap_nest_fold_type(const ap_nest *n, const ap_sop *s, int64_t count, int64_t most)
{
    if (!ap_sop_is_sum(s))
        return AP_FOLD_REGISTER;
    if (!ap_dtype_is_float(n->sop[s->arg[0]].dtype))
        return AP_FOLD_U64;
    return count > most ? AP_FOLD_DOUBLE : AP_FOLD_REGISTER;
}

ap_scalar ap_nest_fold_start(const ap_nest *n, const ap_sop *s)
{
    ap_dtype t = n->sop[s->arg[0]].dtype;
    bool max = ap_sop_is_largest(s);
    ap_scalar x = {.f = max ? -INFINITY : INFINITY};
    if (ap_sop_is_sum(s)) {
        int one = s->reduce == AP_REDUCE_PROD;
        return ap_dtype_is_float(t) ? (ap_scalar){.f = one} : (ap_scalar){.i = one};
    }
    if (!ap_dtype_is_float(t))
        x = t == AP_BOOL ? (ap_scalar){.i = !max} : ap_pointwise_eval(AP_PW_CAST, AP_F64, t, &x);
    return x;
}

/* ---- loops ---- */

int ap_nest_last_loop(const int64_t *stride, int loops)
{
    int level = 0;
    for (int l = 0; l < loops; l++)
        if (stride[l] != 0)
            level = l + 1;
    return level;
}

int ap_nest_section_loops(const ap_nest *n, int section)
{
    return n->inner[section] ? n->nouter + n->ninner : n->nouter;
}

int64_t ap_nest_inner_count(const ap_nest *n)
{
    int64_t count = 1;
    for (int l = 0; l < n->ninner; l++)
        count = ap_sat_mul(count, n->extent[n->nouter + l]);
    return count;
}

void ap_nest_inner_strides(const ap_nest *n, int64_t stride[AP_MAX_LOOPS])
{
    int64_t step = 1;
    for (int l = 0; l < AP_MAX_LOOPS; l++)
        stride[l] = 0;
    for (int l = n->nouter + n->ninner; l-- > n->nouter;) {
        stride[l] = step;
        step *= n->extent[l];
    }
}

static int level_of(const ap_nest_facts *f, const ap_sop *s)
{
    const ap_nest *n = f->n;
    int loops = ap_nest_section_loops(n, s->section), level = 0;
    bool empty = n->inner[s->section] && f->inner_count == 0;
    switch (s->kind) {
    case AP_SOP_LOAD:
    case AP_SOP_GATHER:
        level = ap_nest_last_loop(f->k->operand[s->operand].stride, loops);
        break;
    case AP_SOP_INDEX:
        level = ap_nest_last_loop(s->loop_stride, loops);
        break;
    case AP_SOP_REDUCE:
        return n->nouter;
    case AP_SOP_SCAN:
    case AP_SOP_STORE:
    case AP_SOP_UPDATE:
    case AP_SOP_TEMP_STORE:
    case AP_SOP_TEMP_LOAD:
        return loops;
    default:
        break;
    }
    for (int i = 0; i < ap_sop_argument_count(s); i++)
        if (f->level[s->arg[i]] > level)
            level = f->level[s->arg[i]];
    return empty && s->kind != AP_SOP_CONST ? loops : level;
}

ap_nest_facts ap_nest_find(ap_arena *arena, const ap_program *program, const ap_kernel *k)
{
    const ap_nest *n = &k->nest;
    ap_nest_facts f = {.program = program, .k = k, .n = n, .inner_count = ap_nest_inner_count(n)};
    f.live = AP_NEW_ARRAY(arena, bool, n->nsops);
    f.level = AP_NEW_ARRAY(arena, uint8_t, n->nsops);
    for (int s = 0; s < n->nsections; s++)
        f.has_inner |= n->inner[s];
    for (uint32_t i = 0; i < n->nsops; i++)
        f.level[i] = (uint8_t)level_of(&f, &n->sop[i]);
    for (uint32_t i = n->nsops; i-- > 0;) {
        const ap_sop *s = &n->sop[i];
        f.live[i] |= s->kind == AP_SOP_STORE || s->kind == AP_SOP_TEMP_STORE || s->kind == AP_SOP_GATHER ||
                     s->kind == AP_SOP_UPDATE || s->kind == AP_SOP_CHECK;
        for (int a = 0; f.live[i] && a < ap_sop_argument_count(s); a++)
            f.live[s->arg[a]] = true;
    }
    return f;
}

bool ap_nest_is_parallel(const ap_nest_facts *f, int section, int l)
{
    if (f->n->extent[l] < 2)
        return false;
    for (uint32_t i = 0; i < f->n->nsops; i++) {
        const ap_sop *s = &f->n->sop[i];
        if (!f->live[i] || (section >= 0 && s->section != section))
            continue;
        if (ap_sop_has_row(s) && f->level[ap_sop_row_index(s)] == l + 1 &&
            (s->kind == AP_SOP_UPDATE || !ap_nest_is_checked(f, s)))
            return false;
        if (s->kind == AP_SOP_SCAN || (s->kind == AP_SOP_CHECK && f->level[i] == l + 1))
            return false;
        if ((s->kind == AP_SOP_STORE || s->kind == AP_SOP_UPDATE) && f->k->operand[s->operand].stride[l] == 0)
            return false;
        if (s->kind == AP_SOP_REDUCE && ap_sop_is_argument_index(s))
            return false;
    }
    return true;
}

ap_nest_due ap_nest_due_at(const ap_nest_facts *f, uint32_t id, int level, int section)
{
    const ap_sop *s = &f->n->sop[id];
    bool at_level = f->level[id] == level;
    if (!f->live[id] || s->kind == AP_SOP_CONST || (section >= 0 && s->section != section))
        return (ap_nest_due){false, false};
    if (s->kind == AP_SOP_REDUCE)
        return (ap_nest_due){false, section >= 0 && level == ap_nest_section_loops(f->n, section)};
    if (ap_sop_has_row(s))
        return (ap_nest_due){f->level[ap_sop_row_index(s)] == level, at_level};
    return (ap_nest_due){at_level && s->kind == AP_SOP_CHECK, at_level};
}

/* ---- indices ---- */

bool ap_nest_is_checked(const ap_nest_facts *f, const ap_sop *s)
{
    const ap_sop *index = &f->n->sop[ap_sop_row_index(s)];
    return index->kind == AP_SOP_CHECK && index->limit <= s->limit;
}

bool ap_nest_has_start(const ap_kernel *k, const ap_sop *s)
{
    return s->imm.i >= 0 && (uint64_t)s->imm.i < k->nints;
}

/* Walks the calls of the kernel in all stages. */
typedef struct calls {
    const ap_program *program;
    ap_name kernel;
    uint32_t stage, next;
    const ap_local *p; /* of `in` */
    const ap_instr *in;
} calls;

static bool next_call(calls *c)
{
    for (; c->stage < c->program->stages.len; c->stage++, c->next = 0) {
        c->p = c->program->stages.at[c->stage];
        while (c->next < c->p->instrs.len) {
            c->in = &c->p->instrs.at[c->next++];
            if (c->in->kind == AP_INSTR_CALL && c->p->kernels.at[c->in->kernel].name == c->kernel)
                return true;
        }
    }
    return false;
}

static bool int_is_zero(const ap_nest_facts *f, uint32_t number)
{
    for (calls c = {.program = f->program, .kernel = f->k->name}; next_call(&c);) {
        const ap_affine *a = &c.in->ints[number].value;
        for (int x = 0; x < c.p->naxes; x++)
            if (a->step[x] != 0)
                return false;
        if (a->base != 0)
            return false;
    }
    return true;
}

bool ap_nest_holds_all(const ap_nest_facts *f, const ap_sop *s)
{
    return s->extent >= s->limit && (!ap_nest_has_start(f->k, s) || int_is_zero(f, (uint32_t)s->imm.i));
}

bool ap_nest_may_hold_none(const ap_nest_facts *f, const ap_sop *s)
{
    calls c = {.program = f->program, .kernel = f->k->name};
    while (ap_nest_has_start(f->k, s) && next_call(&c)) {
        int32_t points = c.p->nranks * ap_local_microbatches(c.p);
        for (int32_t r = 0; r < points; r++) {
            int32_t coordinate[AP_MAX_AXES] = {0};
            for (int a = 0; a < c.p->naxes; a++)
                coordinate[a] = r / c.p->axis_stride[a] % c.p->axis_size[a];
            if (ap_int_at(&c.in->ints[s->imm.i], coordinate) >= s->limit)
                return true;
        }
    }
    return false;
}

bool ap_emit_nest_checks(const ap_kernel *k)
{
    for (uint32_t i = 0; k->kind == AP_KERNEL_NEST && i < k->nest.nsops; i++)
        if (ap_sop_has_row(&k->nest.sop[i]) || k->nest.sop[i].kind == AP_SOP_CHECK)
            return true;
    return false;
}

/* ---- row temporaries ---- */

int ap_nest_register_bytes(ap_dtype t)
{
    return t == AP_F16 || t == AP_BF16 || t == AP_BOOL ? 4 : ap_dtype_bytes(t);
}

int64_t ap_nest_temp_bytes(const ap_nest *n, int i)
{
    return (ap_nest_inner_count(n) * ap_nest_register_bytes(n->temp_dtype[i]) + 63) / 64 * 64;
}

int64_t ap_emit_nest_scratch(const ap_kernel *k)
{
    int64_t bytes = 0;
    for (int i = 0; k->kind == AP_KERNEL_NEST && i < k->nest.ntemps; i++)
        bytes += ap_nest_temp_bytes(&k->nest, i);
    if (ap_emit_has_lanes(k))
        return ap_emit_lanes_scratch(k);
    return bytes > AP_NEST_STACK_BYTES ? bytes : 0;
}
