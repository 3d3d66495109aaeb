/* The rules of pipelines beyond those of their modules: ports, ranks, time, links, shared symbols, lists. */
#include "ir/pipeline.h"
#include "ir/text_form.h"

#include <inttypes.h>
#include <string.h>

typedef struct checker {
    ap_pipeline *p;
    ap_status status;
} checker;

static const char *stage_name(const checker *c, uint32_t stage)
{
    return ap_name_str(c->p->ctx, c->p->stages.at[stage].name);
}

#define fault(c, ...) ((c)->status = ap_error((c)->p->ctx, 0, __VA_ARGS__))

/* ---- stages ---- */

/* One function, one mesh, one state: what all that follows relies on. */
static bool check_form(checker *c)
{
    const ap_pipeline *p = c->p;
    if (p->stages.len == 0 || !p->name) {
        fault(c, "a pipeline without stages or without a name");
        return false;
    }
    if (p->nranks < 1 || p->microbatches < 1 || p->microbatches > AP_MAX_MICROBATCHES)
        fault(c, "the pipeline has %" PRId32 " ranks and %" PRId32 " microbatches", p->nranks, p->microbatches);
    for (uint32_t s = 0; s < p->stages.len; s++) {
        ap_module *m = p->stages.at[s].m;
        for (uint32_t t = 0; t < s; t++)
            if (p->stages.at[t].name == p->stages.at[s].name)
                fault(c, "two stages are named @%s", stage_name(c, s));
        if (!p->stages.at[s].name || m->funcs.len != 1 || m->meshes.len != 1 ||
            (m->state != AP_STATE_PLANNED && m->state != AP_STATE_EXPLICIT) || m->state != ap_pipeline_state(p)) {
            fault(c, "stage %" PRIu32 " has no name, not one function on one mesh, or another state", s);
            continue;
        }
        if (ap_module_verify(m) != AP_OK)
            fault(c, "stage @%s does not verify", stage_name(c, s));
    }
    return c->status == AP_OK;
}

static void check_ranks(checker *c)
{
    const ap_pipeline *p = c->p;
    for (uint32_t s = 0; s < p->stages.len; s++) {
        const ap_mesh_info *mesh = ap_stage_mesh(&p->stages.at[s]);
        int64_t end = (int64_t)mesh->first_rank + ap_mesh_ranks(mesh);
        if (mesh->first_rank < 0 || end > p->nranks)
            fault(c, "stage @%s has ranks up to %" PRId64 ", the pipeline has %" PRId32, stage_name(c, s), end - 1,
                  p->nranks);
        if (ap_mesh_microbatches(mesh) != p->microbatches)
            fault(c, "stage @%s has %" PRId32 " microbatches, the pipeline has %" PRId32, stage_name(c, s),
                  ap_mesh_microbatches(mesh), p->microbatches);
        for (uint32_t t = 0; t < s; t++) {
            const ap_mesh_info *other = ap_stage_mesh(&p->stages.at[t]);
            if (mesh->first_rank < other->first_rank + ap_mesh_ranks(other) && other->first_rank < end)
                fault(c, "stages @%s and @%s have ranks in common", stage_name(c, t), stage_name(c, s));
        }
    }
}

/* ---- ports ---- */

static bool same_extents(const ap_port *a, const ap_port *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof *a->dim) == 0;
}

static void check_inputs(checker *c, uint32_t s)
{
    const ap_module *m = c->p->stages.at[s].m;
    const ap_func_info *f = &m->funcs.at[0];
    for (uint32_t i = 0; i < f->narguments; i++) {
        if (f->argument_slot[i])
            continue;
        const ap_value_info *v = ap_value_at(m, f->argument[i]);
        uint32_t at = ap_pipeline_input(c->p, s, i);
        ap_port port = ap_port_of(m, v->name, v->type);
        if (at == AP_NONE)
            fault(c, "stage @%s reads %%%s, which is no input and no slot", stage_name(c, s),
                  ap_name_str(c->p->ctx, v->name));
        else if (!same_extents(&port, &c->p->inputs.at[at]))
            fault(c, "stage @%s reads input \"%s\" as another type", stage_name(c, s), ap_name_str(c->p->ctx, v->name));
    }
}

static void check_outputs(checker *c, uint32_t s, uint32_t *written)
{
    const ap_module *m = c->p->stages.at[s].m;
    const ap_func_info *f = &m->funcs.at[0];
    for (uint32_t i = 0; i < f->nresults; i++) {
        if (f->result_slot[i])
            continue;
        uint32_t at = ap_pipeline_output(c->p, s, i);
        ap_port port = ap_port_of(m, f->result_name[i], f->result[i]);
        if (at == AP_NONE || at >= c->p->outputs.len) {
            fault(c, "stage @%s writes \"%s\", which is no output of the pipeline", stage_name(c, s),
                  ap_name_str(c->p->ctx, f->result_name[i]));
            continue;
        }
        written[at]++;
        if (!same_extents(&port, &c->p->outputs.at[at]))
            fault(c, "stage @%s writes output \"%s\" as another type", stage_name(c, s),
                  ap_name_str(c->p->ctx, f->result_name[i]));
    }
}

static void check_ports(checker *c)
{
    const ap_pipeline *p = c->p;
    uint32_t *written = AP_NEW_ARRAY(&p->ctx->scratch, uint32_t, p->outputs.len);
    for (uint32_t i = 0; i < p->inputs.len && p->stages.len > 1; i++)
        for (uint32_t k = 0; k < i; k++)
            if (p->inputs.at[i].name == p->inputs.at[k].name)
                fault(c, "two inputs are named \"%s\"", ap_name_str(p->ctx, p->inputs.at[i].name));
    for (uint32_t s = 0; s < p->stages.len; s++) {
        check_inputs(c, s);
        check_outputs(c, s, written);
    }
    for (uint32_t i = 0; i < p->outputs.len; i++)
        if (written[i] != 1)
            fault(c, "output \"%s\" is written by %" PRIu32 " stages", ap_name_str(p->ctx, p->outputs.at[i].name),
                  written[i]);
}

/* ---- links ---- */

/* The factor that time splits, AP_MAX_FACTORS for none. */
static int time_factor(const ap_module *m, ap_type type)
{
    const ap_sharding_info *s = ap_sharding_get(m->ctx, ap_type_get(m->ctx, type).sharding);
    for (int f = 0; m->meshes.at[0].ntime && f < s->nfactors; f++)
        if (ap_axes_mask(s->axes[f]) & 1)
            return f;
    return AP_MAX_FACTORS;
}

/* The same value: element type, factors and their logical extents; padding may differ. */
static bool same_value(const ap_ctx *ctx, ap_type a, ap_type b)
{
    const ap_shape_info *x = ap_type_shape(ctx, a), *y = ap_type_shape(ctx, b);
    return ap_type_dtype(ctx, a) == ap_type_dtype(ctx, b) && x->rank == y->rank && x->nfactors == y->nfactors &&
           memcmp(x->first, y->first, (size_t)x->rank + 1) == 0 &&
           memcmp(x->logical, y->logical, x->nfactors * sizeof *x->logical) == 0;
}

static bool link_ends(const ap_pipeline *p, const ap_wire *w)
{
    if (w->from >= p->stages.len || w->to >= p->stages.len || w->from >= w->to)
        return false;
    const ap_func_info *from = &p->stages.at[w->from].m->funcs.at[0];
    const ap_module *m = p->stages.at[w->to].m;
    const ap_func_info *to = &m->funcs.at[0];
    return w->result < from->nresults && from->result_slot[w->result] && from->result_name[w->result] == w->slot &&
           w->argument < to->narguments && to->argument_slot[w->argument] &&
           ap_value_at(m, to->argument[w->argument])->name == w->slot;
}

static void check_link(checker *c, uint32_t i)
{
    const ap_pipeline *p = c->p;
    const ap_wire *w = &p->links.at[i];
    const char *name = ap_name_str(p->ctx, w->slot);
    if (!link_ends(p, w)) {
        fault(c, "link %%%s does not lead from a slot of that name to one of a later stage", name);
        return;
    }
    const ap_module *from = p->stages.at[w->from].m, *to = p->stages.at[w->to].m;
    ap_type made = from->funcs.at[0].result[w->result], read = ap_value_type(to, to->funcs.at[0].argument[w->argument]);
    if (!same_value(p->ctx, made, read))
        fault(c, "slot %%%s of stage @%s is not what stage @%s makes", name, stage_name(c, w->to),
              stage_name(c, w->from));
    else if (time_factor(from, made) != time_factor(to, read))
        fault(c, "slot %%%s is cut into other microbatches by stage @%s than by stage @%s", name,
              stage_name(c, w->from), stage_name(c, w->to));
    if (w->from_depth < 1 || w->to_depth < 1)
        fault(c, "link %%%s has no slots", name);
    for (uint32_t k = 0; k < i; k++) {
        const ap_wire *other = &p->links.at[k];
        if (other->to == w->to && other->argument == w->argument)
            fault(c, "slot %%%s of stage @%s is filled by two links", name, stage_name(c, w->to));
        if (other->from == w->from && other->result == w->result && other->from_depth != w->from_depth)
            fault(c, "slot %%%s of stage @%s has two depths", name, stage_name(c, w->from));
    }
}

static bool is_sent(const ap_pipeline *p, uint32_t stage, uint32_t result)
{
    for (uint32_t i = 0; i < p->links.len; i++)
        if (p->links.at[i].from == stage && p->links.at[i].result == result)
            return true;
    return false;
}

static void check_links(checker *c)
{
    const ap_pipeline *p = c->p;
    for (uint32_t i = 0; i < p->links.len; i++)
        check_link(c, i);
    for (uint32_t s = 0; s < p->stages.len; s++) {
        const ap_module *m = p->stages.at[s].m;
        const ap_func_info *f = &m->funcs.at[0];
        for (uint32_t i = 0; i < f->narguments; i++)
            if (f->argument_slot[i] && ap_pipeline_link(p, s, i) == AP_NONE)
                fault(c, "slot %%%s of stage @%s is filled by nobody",
                      ap_name_str(p->ctx, ap_value_at(m, f->argument[i])->name), stage_name(c, s));
        for (uint32_t i = 0; i < f->nresults; i++)
            if (f->result_slot[i] && !is_sent(p, s, i))
                fault(c, "slot %%%s of stage @%s is read by nobody", ap_name_str(p->ctx, f->result_name[i]),
                      stage_name(c, s));
    }
}

/* ---- symbols, lists ---- */

static bool same_symbol(const ap_module *a, const ap_symbol_info *x, const ap_module *b, const ap_symbol_info *y)
{
    const ap_data *d = &x->data, *e = &y->data;
    if (x->kind != y->kind || !same_value(a->ctx, ap_value_type(a, x->value), ap_value_type(b, y->value)) ||
        d->kind != e->kind)
        return false;
    bool file = d->file == e->file && d->offset == e->offset;
    bool inside = d->size == e->size && (d->kind == AP_DATA_NONE || d->kind == AP_DATA_FILE || d->bytes == e->bytes ||
                                         memcmp(d->bytes, e->bytes, d->size) == 0);
    return d->kind == AP_DATA_FILE ? file && d->size == e->size : inside;
}

typedef struct owner {
    uint32_t stage; /* 1 + the first that has the symbol */
    ap_symbol symbol;
} owner;

/* A symbol of several stages is one symbol. */
static void check_symbols(checker *c)
{
    const ap_pipeline *p = c->p;
    AP_VEC(owner) by_name = {0};
    for (uint32_t s = 0; s < p->stages.len; s++) {
        const ap_module *m = p->stages.at[s].m;
        for (ap_symbol i = 0; i < m->symbols.len; i++) {
            const ap_symbol_info *x = &m->symbols.at[i];
            if (x->kind == AP_SYMBOL_KIND_COUNT)
                continue;
            while (by_name.len <= x->name)
                ap_vec_push(&p->ctx->scratch, &by_name, (owner){0});
            owner *o = &by_name.at[x->name];
            if (!o->stage)
                *o = (owner){s + 1, i};
            const ap_module *first = p->stages.at[o->stage - 1].m;
            if (!same_symbol(m, x, first, &first->symbols.at[o->symbol]))
                fault(c, "@%s is one thing in stage @%s and another in stage @%s", ap_name_str(p->ctx, x->name),
                      stage_name(c, o->stage - 1), stage_name(c, s));
        }
    }
}

static void check_lists(checker *c)
{
    const ap_pipeline *p = c->p;
    if (p->lists.len == 0)
        return;
    if (p->lists.len != p->stages.len) {
        fault(c, "%" PRIu32 " stages have %" PRIu32 " lists", p->stages.len, p->lists.len);
        return;
    }
    ap_wiring w = ap_pipeline_wiring(p, &p->ctx->scratch);
    if (ap_lists_check(&w, p->lists.at) != AP_OK)
        fault(c, "the lists of the stages do not do what they should");
}

ap_status ap_pipeline_verify(ap_pipeline *p)
{
    checker c = {.p = p};
    if (!check_form(&c))
        return c.status;
    check_ranks(&c);
    check_ports(&c);
    check_links(&c);
    check_symbols(&c);
    if (c.status == AP_OK)
        check_lists(&c);
    return c.status;
}
