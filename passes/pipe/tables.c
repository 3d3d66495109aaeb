/* Layers without names, labels of boundaries, and threads that fill tables (one table: table_solve.c). */
#include "passes/pipe/tables.h"

#include "ir/text_form.h"
#include "passes/batch.h"
#include "passes/pipe/carve.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* ---- views and labels ---- */

ap_mesh_info ap_pipe_view_mesh(ap_ctx *ctx, const ap_pipe_view *v)
{
    static const char *const names[AP_VIEW_AXES] = {"x", "y"};
    ap_mesh_info mesh = {.name = ap_name_make(ctx, "m"), .first_rank = v->first_rank};
    if (v->microbatches > 1) {
        mesh.ntime = 1;
        mesh.axis_name[mesh.naxes] = ap_name_make(ctx, AP_TIME_AXIS);
        mesh.axis_size[mesh.naxes++] = v->microbatches;
    }
    for (int a = 0; a < v->naxes || (a == 0 && v->naxes == 0); a++) {
        mesh.axis_name[mesh.naxes] = ap_name_make(ctx, names[a]);
        mesh.axis_size[mesh.naxes++] = v->naxes ? v->size[a] : 1;
    }
    return mesh;
}

int32_t ap_pipe_view_ranks(const ap_pipe_view *v)
{
    int32_t n = 1;
    for (int a = 0; a < v->naxes; a++)
        n *= v->size[a];
    return n;
}

int64_t ap_label_parts(const ap_pipe_view *v, const ap_label *l)
{
    int64_t n = 1;
    for (int f = 0; f < l->nfactors; f++)
        for (int i = 0; i < ap_axes_count(l->axes[f]); i++)
            n *= v->size[ap_axes_get(l->axes[f], i)];
    return n;
}

/* Whole first; then those that use every axis, the more of them on the batch the better; then those that use some. */
static int rank_of(const ap_label *l, int naxes, uint32_t batch)
{
    int used = 0, on_batch = 0;
    for (int f = 0; f < l->nfactors; f++) {
        used += ap_axes_count(l->axes[f]);
        on_batch += (uint32_t)f == batch ? ap_axes_count(l->axes[f]) : 0;
    }
    if (used == 0)
        return 0;
    return 1 + 2 * AP_VIEW_AXES * (naxes - used) + naxes - on_batch;
}

uint32_t ap_labels_list(const ap_pipe_view *v, const ap_shape_info *shape, uint32_t batch, ap_label *out)
{
    ap_label all[(AP_MAX_FACTORS + 1) * (AP_MAX_FACTORS + 1)];
    uint32_t n = 0, kept = 0;
    int nfactors = shape ? shape->nfactors : 0, at[AP_VIEW_AXES] = {0};
    for (bool more = true; more;) {
        ap_label l = {.nfactors = (uint8_t)nfactors};
        bool ok = true;
        for (int a = 0; a < v->naxes; a++) {
            if (at[a] == 0)
                continue;
            l.axes[at[a] - 1] = ap_axes_append(l.axes[at[a] - 1], a);
            ok = ok && shape->logical[at[a] - 1] >= v->size[a];
        }
        if (ok)
            all[n++] = l;
        int a = v->naxes - 1;
        for (; a >= 0 && ++at[a] > nfactors; a--)
            at[a] = 0;
        more = a >= 0;
    }
    for (int rank = 0; rank <= 1 + 2 * AP_VIEW_AXES * AP_VIEW_AXES + AP_VIEW_AXES; rank++)
        for (uint32_t i = 0; i < n && kept < AP_LABELS_MAX; i++)
            if (rank_of(&all[i], v->naxes, batch) == rank)
                out[kept++] = all[i];
    return kept;
}

/* ---- forms ---- */

/* Names and places go, data too where only its kind counts. The module is the caller's own copy. */
static void strip(ap_ctx *ctx, ap_module *m)
{
    ap_func_info *f = &m->funcs.at[0];
    for (uint32_t v = 0; v < m->values.len; v++)
        m->values.at[v].name = 0;
    for (uint32_t s = 0; s < m->symbols.len; s++) {
        ap_symbol_info *x = &m->symbols.at[s];
        x->name = ap_name_format(ctx, "p%u", s);
        m->values.at[x->value].name = x->name;
        x->data = (ap_data){0};
        x->loc = 0;
    }
    for (uint32_t n = 0; n < m->nodes.len; n++)
        m->nodes.at[n].loc = 0;
    f->name = ap_name_make(ctx, "main");
    for (uint32_t i = 0; i < f->narguments; i++)
        m->values.at[f->argument[i]].name = ap_name_format(ctx, "a%u", i);
    for (uint32_t i = 0; i < f->nresults; i++)
        f->result_name[i] = ap_name_format(ctx, "r%u", i);
}

static uint32_t find_value(const ap_value *list, uint32_t n, ap_value v)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == v)
            return i;
    return AP_NONE;
}

static ap_layer_form make_form(ap_ctx *ctx, ap_arena *arena, ap_carver *carver, const ap_layers *l, uint32_t layer,
                               const int8_t *batch)
{
    ap_carved c;
    ap_carve(carver, arena, l->first[layer], l->first[layer + 1], &c);
    const ap_func_info *f = &c.m->funcs.at[0];
    ap_layer_form form = {.layer = layer, .narguments = f->narguments};
    form.in = find_value(c.argument, f->narguments, l->largest[layer]);
    form.out = find_value(c.result, f->nresults, l->largest[layer + 1]);
    form.batch = AP_NEW_ARRAY(arena, int8_t, f->narguments);
    for (uint32_t i = 0; i < f->narguments; i++)
        form.batch[i] = batch ? batch[c.argument[i]] : AP_NO_BATCH;
    for (uint32_t n = 0; n < c.m->nodes.len && !form.loc; n++)
        form.loc = c.m->nodes.at[n].block == AP_NONE ? 0 : c.m->nodes.at[n].loc;
    strip(ctx, c.m);
    ap_text t;
    ap_text_init(&t, arena);
    ap_module_print(c.m, &t);
    form.text = ap_text_str(&t);
    form.size = t.len;
    return form;
}

static bool same_form(const ap_layer_form *a, const ap_layer_form *b)
{
    return a->in == b->in && a->out == b->out && a->size == b->size && a->narguments == b->narguments &&
           memcmp(a->batch, b->batch, a->narguments) == 0 && memcmp(a->text, b->text, a->size) == 0;
}

ap_status ap_layer_forms_list(ap_ctx *ctx, ap_arena *arena, const ap_module *m, const ap_layers *l, const int8_t *batch,
                              ap_layer_forms *out)
{
    ap_carver *carver = ap_carver_create(arena, m);
    *out = (ap_layer_forms){.at = AP_NEW_ARRAY(arena, ap_layer_form, l->n), .of = AP_NEW_ARRAY(arena, uint32_t, l->n)};
    for (uint32_t i = 0; i < l->n; i++) {
        ap_layer_form form = make_form(ctx, arena, carver, l, i, batch);
        uint32_t k = 0;
        while (k < out->n && !same_form(&out->at[k], &form))
            k++;
        if (k == out->n)
            out->at[out->n++] = form;
        out->of[i] = k;
    }
    return AP_OK;
}

/* ---- threads ---- */

void ap_layer_task_make(ap_arena *arena, ap_layer_task *t)
{
    size_t n = (size_t)t->nprices * t->nin * t->nout;
    t->time = AP_NEW_ARRAY(arena, int64_t, n);
    t->resident = AP_NEW_ARRAY(arena, int64_t, n);
    t->peak = AP_NEW_ARRAY(arena, int64_t, n);
}

typedef struct queue {
    ap_layer_task *task;
    uint32_t n;
    atomic_uint next;
} queue;

static void *work(void *user)
{
    queue *q = user;
    for (uint32_t i; (i = atomic_fetch_add(&q->next, 1)) < q->n;)
        ap_layer_task_run(&q->task[i]);
    return NULL;
}

ap_status ap_layer_tasks_run(ap_ctx *ctx, ap_layer_task *task, uint32_t n, uint32_t threads)
{
    enum { MOST = 64 };
    pthread_t other[MOST];
    uint32_t started = 0;
    queue q = {.task = task, .n = n};
    while (started + 1 < threads && started < MOST && started + 1 < n &&
           pthread_create(&other[started], NULL, work, &q) == 0)
        started++;
    work(&q);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(other[i], NULL);
    for (uint32_t i = 0; i < n; i++)
        if (task[i].status != AP_OK)
            return ap_fail(ctx, task[i].status, task[i].form->loc, "%s", task[i].message);
    return AP_OK;
}
