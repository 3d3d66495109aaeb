/* Tables of layers: their min-plus product is the optimum of the range's own problem; equal layers are one form; more
 * expensive memory is used less; threads change nothing. */
#include "passes/pipe/carve.h"
#include "passes/pipe/tables.h"
#include "passes/plan_problem.h"

#include "tests/passes/plan_util.h"

/* ---- models ---- */

/* Residual blocks with a hidden width of their own where `unlike`. One value crosses each cut between blocks. */
static const char *blocks(ap_ctx *ctx, uint32_t nblocks, bool unlike)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_add(&t, "param @table : f32[512,64]\nparam @head : f32[64,512]\n");
    for (uint32_t b = 0; b < nblocks; b++)
        ap_text_addf(&t, "param @a%u : f32[64,64]\nparam @b%u : f32[64,%u]\nparam @c%u : f32[%u,64]\n", b, b,
                     256 + (unlike ? 64 * b : 0), b, 256 + (unlike ? 64 * b : 0));
    ap_text_add(&t, "func @main(%i: i64[8,32]) -> \"y\" f32[8,32,512] {\n"
                    "  %x0 = gather @table, %i {vh,bs->bsh} : f32[8,32,64]\n");
    for (uint32_t b = 0; b < nblocks; b++) {
        uint32_t w = 256 + (unlike ? 64 * b : 0);
        ap_text_addf(&t, "  %%q%u = contract %%x%u, @a%u {bsk,kn->bsn} : f32[8,32,64]\n", b, b, b);
        ap_text_addf(&t, "  %%s%u = contract %%q%u, %%x%u {bsk,btk->bst} : f32[8,32,32]\n", b, b, b);
        ap_text_addf(&t, "  %%o%u = contract %%s%u, %%x%u {bst,btk->bsk} : f32[8,32,64]\n", b, b, b);
        ap_text_addf(&t, "  %%r%u = add %%x%u, %%o%u : f32[8,32,64]\n", b, b, b);
        ap_text_addf(&t, "  %%u%u = contract %%r%u, @b%u {bsk,kn->bsn} : f32[8,32,%u]\n", b, b, b, w);
        ap_text_addf(&t, "  %%g%u = relu %%u%u : f32[8,32,%u]\n", b, b, w);
        ap_text_addf(&t, "  %%d%u = contract %%g%u, @c%u {bsk,kn->bsn} : f32[8,32,64]\n", b, b, b);
        ap_text_addf(&t, "  %%x%u = add %%r%u, %%d%u : f32[8,32,64]\n", b + 1, b, b);
    }
    ap_text_addf(&t, "  %%y = contract %%x%u, @head {bsk,kn->bsn} : f32[8,32,512]\n  ret %%y\n}\n", nblocks);
    return ap_text_str(&t);
}

/* ---- all tables of a model on one view ---- */

typedef struct tables {
    ap_module *m;
    ap_cluster cluster;
    ap_layers l;
    ap_layer_forms forms;
    ap_pipe_view view;
    uint32_t *nlabels; /* per boundary */
    ap_label (*label)[AP_LABELS_MAX];
    ap_layer_task *task; /* per layer */
} tables;

static const int64_t prices[] = {0, 100000, 100000000};
enum { NPRICES = 3 };

static tables *tables_of(ap_ctx *ctx, const char *text, uint32_t nlayers, ap_pipe_view view, uint32_t threads)
{
    tables *t = AP_NEW(&ctx->arena, tables);
    t->m = module_of(ctx, text);
    t->m->state = AP_STATE_NORMAL;
    t->view = view;
    assert_ok(ctx, ap_cluster_from_preset(ctx, "dgx-a100-80gb:2x4", &t->cluster));
    t->cluster.launch_ps = 1000;
    t->cluster.inside.latency_ps = 1000;
    ap_layers_options opt = {.cluster = &t->cluster, .count = nlayers};
    assert_ok(ctx, ap_layers_cut(ctx, &ctx->arena, t->m, &opt, &t->l));
    const int8_t *batch = NULL;
    if (view.microbatches > 1) {
        const int8_t dim[] = {0}, *argument;
        ap_batch b;
        assert_ok(ctx, ap_batch_arguments(ctx, t->m, dim, view.microbatches, &argument));
        assert_ok(ctx, ap_batch_find(ctx, t->m, argument, &ctx->arena, &b));
        batch = b.factor;
    }
    assert_ok(ctx, ap_layer_forms_list(ctx, &ctx->arena, t->m, &t->l, batch, &t->forms));
    t->nlabels = AP_NEW_ARRAY(&ctx->arena, uint32_t, t->l.n + 1);
    t->label = ap_arena_calloc(&ctx->arena, t->l.n + 1, sizeof *t->label);
    t->task = AP_NEW_ARRAY(&ctx->arena, ap_layer_task, t->l.n);
    for (uint32_t b = 0; b <= t->l.n; b++) {
        ap_value v = t->l.largest[b];
        t->nlabels[b] = ap_labels_list(&view, v == AP_NONE ? NULL : ap_value_shape(t->m, v), 0, t->label[b]);
    }
    for (uint32_t l = 0; l < t->l.n; l++) {
        t->task[l] = (ap_layer_task){.form = &t->forms.at[t->forms.of[l]],
                                     .cluster = &t->cluster,
                                     .view = view,
                                     .nin = t->nlabels[l],
                                     .nout = t->nlabels[l + 1],
                                     .in = t->label[l],
                                     .out = t->label[l + 1],
                                     .nprices = NPRICES,
                                     .price = prices};
        ap_layer_task_make(&ctx->arena, &t->task[l]);
    }
    assert_ok(ctx, ap_layer_tasks_run(ctx, t->task, t->l.n, threads));
    return t;
}

/* The least time from label `in` of layer `first` to label `out` behind `last`, by the tables of price 0. */
static int64_t product(const tables *t, uint32_t first, uint32_t last, uint32_t in, uint32_t out)
{
    int64_t at[AP_LABELS_MAX];
    for (uint32_t i = 0; i < t->nlabels[first]; i++)
        at[i] = i == in ? 0 : AP_FORBIDDEN;
    for (uint32_t l = first; l < last; l++) {
        const ap_layer_task *x = &t->task[l];
        int64_t next[AP_LABELS_MAX];
        for (uint32_t j = 0; j < x->nout; j++) {
            next[j] = AP_FORBIDDEN;
            for (uint32_t i = 0; i < x->nin; i++)
                if (at[i] != AP_FORBIDDEN && x->time[i * x->nout + j] != AP_FORBIDDEN)
                    next[j] = ap_min_i64(next[j], at[i] + x->time[i * x->nout + j]);
        }
        memcpy(at, next, sizeof at);
    }
    return at[out];
}

typedef struct end {
    const tables *t;
    const ap_label *label;
} end;

/* Only the sharding that the label says. */
static int64_t only_label(void *user, const ap_module *m, ap_type type)
{
    const end *e = user;
    const ap_sharding_info *s = ap_sharding_get(m->ctx, ap_type_get(m->ctx, type).sharding);
    for (int f = 0; f < s->nfactors; f++)
        if (s->axes[f] != e->label->axes[f])
            return AP_FORBIDDEN;
    return 0;
}

/* The planner's own optimum of the range with these ends. */
static int64_t planned(ap_ctx *ctx, const tables *t, uint32_t first, uint32_t last, uint32_t in, uint32_t out)
{
    ap_carved c;
    ap_carve(ap_carver_create(&ctx->scratch, t->m), &ctx->arena, t->l.first[first], t->l.first[last], &c);
    const ap_func_info *f = &c.m->funcs.at[0];
    end ends[2] = {{t, &t->label[first][in]}, {t, &t->label[last][out]}};
    ap_plan_slot slot[2];
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->narguments; i++)
        if (f->argument_slot[i])
            slot[n++] = (ap_plan_slot){ap_value_at(c.m, f->argument[i])->name, false, 1, only_label, &ends[0]};
    for (uint32_t i = 0; i < f->nresults; i++)
        if (f->result_slot[i])
            slot[n++] = (ap_plan_slot){f->result_name[i], true, 1, only_label, &ends[1]};
    assert_true(n <= 2);
    ap_plan_options opt = {.cluster = t->cluster, .memory = INT64_MAX, .slots = {n, slot}};
    opt.mesh = ap_pipe_view_mesh(ctx, &t->view);
    ap_planning p;
    ap_solution s;
    ap_solve_options so;
    ap_solve_defaults(&so);
    assert_ok(ctx, ap_planning_open(ctx, &ctx->scratch, c.m, &opt, &p));
    p.problem.limit = INT64_MAX;
    assert_ok(ctx, ap_solve(ctx, &ctx->scratch, &p.problem, &so, &s));
    assert_int_equal(s.result, AP_SOLVED);
    assert_int_equal(s.cost, s.bound);
    int64_t cost = s.cost;
    ap_arena_reset(&ctx->scratch);
    return cost;
}

static const ap_pipe_view views[] = {
    {0, 1, {2}, 1},
    {0, 1, {4}, 1},
    {0, 1, {8}, 1},
    {0, 0, {0}, 1},
};

static void test_product(void **user)
{
    (void)user;
    for (size_t v = 0; v < sizeof views / sizeof *views; v++) {
        ap_ctx *ctx = ap_ctx_create();
        tables *t = tables_of(ctx, blocks(ctx, 4, v % 2), 4, views[v], 1);
        for (uint32_t first = 0; first < 4; first++)
            for (uint32_t last = first + 1; last <= 4; last++)
                for (uint32_t i = 0; i < t->nlabels[first]; i++)
                    for (uint32_t j = 0; j < t->nlabels[last]; j++)
                        assert_int_equal(product(t, first, last, i, j), planned(ctx, t, first, last, i, j));
        ap_ctx_release(ctx);
    }
}

/* Where a cut is crossed by two values, one of them is free at both sides: the product is a bound. */
static void test_bound(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    tables *t = tables_of(ctx, blocks(ctx, 1, false), 8, views[1], 1);
    int64_t whole = planned(ctx, t, 0, t->l.n, 0, 0);
    uint32_t several = 0;
    for (uint32_t b = 1; b < t->l.n; b++)
        several += t->l.ncrossing[b] > 1;
    assert_true(several > 0);
    assert_true(product(t, 0, t->l.n, 0, 0) <= whole);
    ap_ctx_release(ctx);
}

static void test_forms(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    tables *t = tables_of(ctx, blocks(ctx, 6, false), 6, views[0], 1);
    assert_int_equal(t->forms.n, 3);
    for (uint32_t l = 1; l < 5; l++)
        assert_int_equal(t->forms.of[l], 1);
    t = tables_of(ctx, blocks(ctx, 6, true), 6, views[0], 1);
    assert_int_equal(t->forms.n, 6);
    ap_ctx_release(ctx);
}

static void test_prices(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    const ap_pipe_view view = {0, 2, {2, 2}, 1};
    tables *t = tables_of(ctx, blocks(ctx, 3, true), 3, view, 1);
    bool saves = false;
    for (uint32_t l = 0; l < 3; l++) {
        const ap_layer_task *x = &t->task[l];
        uint32_t size = x->nin * x->nout;
        for (uint32_t k = 0; k < size; k++) {
            assert_true(x->time[k] < AP_FORBIDDEN);
            for (uint32_t p = 1; p < NPRICES; p++) {
                assert_true(x->time[(size_t)p * size + k] >= x->time[(size_t)(p - 1) * size + k]);
                assert_true(x->resident[(size_t)p * size + k] <= x->resident[(size_t)(p - 1) * size + k]);
                assert_true(x->peak[(size_t)p * size + k] > 0);
                saves = saves || x->resident[(size_t)p * size + k] < x->resident[(size_t)(p - 1) * size + k];
            }
        }
    }
    assert_true(saves);
    ap_ctx_release(ctx);
}

static void test_threads(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    const ap_pipe_view view = {0, 2, {2, 4}, 1};
    tables *a = tables_of(ctx, blocks(ctx, 3, true), 3, view, 1);
    for (uint32_t threads = 2; threads <= 4; threads += 2) {
        tables *b = tables_of(ctx, blocks(ctx, 3, true), 3, view, threads);
        for (uint32_t l = 0; l < 3; l++) {
            size_t bytes = (size_t)NPRICES * a->task[l].nin * a->task[l].nout * sizeof(int64_t);
            assert_memory_equal(a->task[l].time, b->task[l].time, bytes);
            assert_memory_equal(a->task[l].resident, b->task[l].resident, bytes);
            assert_memory_equal(a->task[l].peak, b->task[l].peak, bytes);
        }
    }
    ap_ctx_release(ctx);
}

/* A quarter of the batch at a time takes less time than the whole, and at least a quarter of it. */
static void test_microbatches(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    ap_pipe_view view = {0, 1, {2}, 1};
    tables *whole = tables_of(ctx, blocks(ctx, 3, false), 3, view, 1);
    view.microbatches = 4;
    tables *part = tables_of(ctx, blocks(ctx, 3, false), 3, view, 1);
    for (uint32_t l = 0; l < 3; l++)
        for (uint32_t k = 0; k < whole->task[l].nin * whole->task[l].nout; k++) {
            assert_true(part->task[l].time[k] < whole->task[l].time[k]);
            assert_true(4 * part->task[l].time[k] >= whole->task[l].time[k]);
        }
    ap_ctx_release(ctx);
}

static void test_labels(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    const int64_t dims[] = {8, 32, 64};
    const ap_shape_info *shape = ap_shape_get(ctx, ap_shape_of_dims(ctx, 3, dims));
    ap_label l[AP_LABELS_MAX];
    assert_int_equal(ap_labels_list(&views[0], shape, 0, l), 4); /* whole, batch, sequence, hidden */
    assert_int_equal(l[0].axes[0] | l[0].axes[1] | l[0].axes[2], 0);
    assert_int_equal(l[1].axes[0], ap_axes_append(0, 0));
    assert_int_equal(ap_labels_list(&views[0], NULL, 0, l), 1);
    const ap_pipe_view two = {0, 2, {2, 4}, 1};
    assert_int_equal(ap_labels_list(&two, shape, 0, l), AP_LABELS_MAX);
    assert_int_equal(l[1].axes[0], ap_axes_append(ap_axes_append(0, 0), 1)); /* both on the batch */
    assert_int_equal(ap_label_parts(&two, &l[1]), 8);
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels),       cmocka_unit_test(test_product), cmocka_unit_test(test_bound),
        cmocka_unit_test(test_forms),        cmocka_unit_test(test_prices),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_microbatches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
