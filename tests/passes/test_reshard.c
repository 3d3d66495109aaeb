/* Resharding: every pair of shardings on emulated devices gives the same numbers; paths are shortest in the
 * sense that no detour is cheaper; and the textbook cases take the textbook steps. */
#include "tests/passes/plan_util.h"

#include "ir/op.h"
#include "ir/physical.h"
#include "passes/reshard.h"

enum { MAX_SHARDINGS = 512 };

/* All shardings of a shape, any order of axes on a factor, partial sums and maxima if asked. */
static int list_shardings(ap_module *m, const ap_shape_info *shape, int partials, ap_sharding out[MAX_SHARDINGS])
{
    const ap_mesh_info *mesh = &m->meshes.at[0];
    int n = 0, options = 1 + shape->nfactors + partials, total = 1;
    for (int a = 0; a < mesh->naxes; a++)
        total *= options;
    for (int order = 0; order < (mesh->naxes > 1 ? 2 : 1); order++)
        for (int code = 0; code < total; code++) {
            ap_sharding_info s = {.mesh = 0, .nfactors = shape->nfactors};
            bool ok = true;
            for (int i = 0; i < mesh->naxes; i++) {
                int a = order ? mesh->naxes - 1 - i : i, rest = code;
                for (int k = 0; k < a; k++)
                    rest /= options;
                int f = rest % options - 1;
                if (f >= shape->nfactors)
                    s.partial[f - shape->nfactors] |= (uint8_t)(1u << a);
                else if (f >= 0)
                    s.axes[f] = ap_axes_append(s.axes[f], a);
            }
            for (int f = 0; f < shape->nfactors; f++)
                ok = ok && shape->physical[f] % ap_mesh_axes_size(mesh, s.axes[f]) == 0;
            ap_sharding id = ap_sharding_intern(m->ctx, &s);
            for (int i = 0; i < n && ok; i++)
                ok = out[i] != id;
            assert_true(n < MAX_SHARDINGS);
            if (ok)
                out[n++] = id;
        }
    return n;
}

static ap_value add_reshard(ap_module *m, ap_value v, ap_sharding to)
{
    ap_type_info t = ap_type_get(m->ctx, ap_value_type(m, v));
    ap_node n = ap_module_add_node(m, AP_OP_RESHARD, 1, &v, 1, 0);
    ap_value r = ap_node_at(m, n)->out[0];
    ap_value_at(m, r)->type = ap_type_make(m->ctx, t.dtype, t.shape, to);
    ap_block_append(m, m->funcs.at[0].body, n);
    return r;
}

/* x replicated -> from -> to -> replicated, as a module in state planned. */
static ap_module *chain(ap_ctx *ctx, const ap_mesh_info *mesh, ap_shape shape, ap_sharding from, ap_sharding to)
{
    ap_module *m = ap_module_create(ctx);
    m->state = AP_STATE_PLANNED;
    ap_module_add_mesh(m, mesh);
    ap_sharding whole = ap_sharding_replicated(ctx, 0, ap_shape_get(ctx, shape)->nfactors);
    ap_type t = ap_type_make(ctx, AP_F32, shape, whole);
    ap_func f = ap_module_add_func(m, ap_name_make(ctx, "f"));
    ap_value v = ap_func_add_argument(m, f, ap_name_make(ctx, "v"), t);
    ap_name none = 0;
    ap_func_set_results(m, f, 1, &t, &none);
    v = add_reshard(m, v, from);
    v = add_reshard(m, v, to);
    v = add_reshard(m, v, whole);
    ap_block_append(m, m->funcs.at[f].body, ap_module_add_node(m, AP_OP_RET, 1, &v, 0, 0));
    return m;
}

static void check_pair(ap_ctx *ctx, const ap_mesh_info *mesh, const ap_cluster *c, ap_shape shape, ap_sharding from,
                       ap_sharding to, uint64_t *state)
{
    ap_module *m = chain(ctx, mesh, shape, from, to);
    ap_tensor *in = draw_inputs(ctx, m, state);
    assert_ok(ctx, ap_explicit_run(ctx, m, c));
    assert_verifies(ctx, m);
    ap_tensor *out = outputs_of(ctx, m, in);
    assert_same(1, in, out, 0);
}

static ap_shape draw_shape(ap_ctx *ctx, const ap_mesh_info *mesh, uint64_t *state)
{
    static const int64_t extents[] = {1, 2, 3, 4, 5, 7, 8, 12};
    int64_t dims[3];
    int rank = 1 + (int)draw(state, 3);
    for (int d = 0; d < rank; d++)
        dims[d] = extents[draw(state, 8)];
    ap_shape_info s = *ap_shape_get(ctx, ap_shape_of_dims(ctx, rank, dims));
    bool force = draw(state, 2);
    for (int f = 0; f < s.nfactors; f++)
        s.physical[f] = ap_physical_extent(mesh, s.logical[f], force);
    return ap_shape_intern(ctx, &s);
}

static void all_pairs(void **unused)
{
    (void)unused;
    static const struct {
        int naxes;
        int32_t size[2];
    } meshes[] = {{1, {2}}, {1, {4}}, {2, {2, 2}}};
    uint64_t state = 7;
    int pairs = 0;
    for (int i = 0; i < 3; i++)
        for (int round = 0; round < (meshes[i].naxes == 1 ? 20 : 6); round++) {
            ap_ctx *ctx = ap_ctx_create();
            ap_mesh_info mesh = mesh_of(ctx, meshes[i].naxes, meshes[i].size);
            ap_cluster c;
            ap_cluster_local(ap_mesh_size(&mesh), &c);
            ap_module *m = ap_module_create(ctx);
            ap_module_add_mesh(m, &mesh);
            ap_shape shape = draw_shape(ctx, &mesh, &state);
            ap_sharding all[MAX_SHARDINGS];
            int n = list_shardings(m, ap_shape_get(ctx, shape), 1, all);
            for (int a = 0; a < n; a++)
                for (int b = 0; b < n; b++, pairs++)
                    check_pair(ctx, &mesh, &c, shape, all[a], all[b], &state);
            ap_ctx_release(ctx);
        }
    assert_true(pairs > 2000);
}

/* Three axes have too many pairs for all of them. */
static void pairs_on_three_axes(void **unused)
{
    (void)unused;
    uint64_t state = 13;
    const int32_t sizes[] = {2, 2, 2};
    for (int round = 0; round < 12; round++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_mesh_info mesh = mesh_of(ctx, 3, sizes);
        ap_cluster c;
        ap_cluster_local(8, &c);
        ap_module *m = ap_module_create(ctx);
        ap_module_add_mesh(m, &mesh);
        ap_shape shape = draw_shape(ctx, &mesh, &state);
        ap_sharding all[MAX_SHARDINGS];
        uint32_t n = (uint32_t)list_shardings(m, ap_shape_get(ctx, shape), 1, all);
        for (int i = 0; i < 100; i++)
            check_pair(ctx, &mesh, &c, shape, all[draw(&state, n)], all[draw(&state, n)], &state);
        ap_ctx_release(ctx);
    }
}

/* cost(a, c) <= cost(a, b) + cost(b, c), and a path's cost is the sum of its steps. */
static void no_detour_is_cheaper(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    const int32_t sizes[] = {2, 2, 2};
    ap_mesh_info mesh = mesh_of(ctx, 3, sizes);
    ap_cluster c;
    assert_ok(ctx, ap_cluster_from_preset(ctx, "dgx-a100-80gb:2x4", &c));
    ap_module *m = ap_module_create(ctx);
    ap_module_add_mesh(m, &mesh);
    const int64_t dims[] = {64, 48};
    ap_shape shape = ap_shape_of_dims(ctx, 2, dims);
    ap_sharding all[MAX_SHARDINGS];
    int n = list_shardings(m, ap_shape_get(ctx, shape), 1, all);
    ap_resharder *r = ap_resharder_create(&ctx->arena, m, &c);
    int64_t(*cost)[MAX_SHARDINGS] = ap_arena_calloc(&ctx->arena, MAX_SHARDINGS, sizeof *cost);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            const ap_reshard_path *p;
            assert_true(ap_reshard_find(r, AP_F32, shape, all[a], all[b], &p));
            int64_t sum = 0;
            for (int i = 0; i < p->nsteps; i++)
                sum += p->step[i].cost;
            assert_int_equal(sum, p->cost);
            assert_int_equal(p->nsteps == 0, a == b);
            cost[a][b] = p->cost;
        }
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            for (int k = 0; k < n; k++)
                assert_true(cost[a][k] <= cost[a][b] + cost[b][k]);
    ap_ctx_release(ctx);
}

static ap_sharding parse(ap_module *m, ap_shape shape, const char *text)
{
    ap_sharding s;
    assert_ok(m->ctx, ap_sharding_parse(m, text, shape, &s));
    return s;
}

static void textbook_steps(void **unused)
{
    (void)unused;
    static const struct {
        const char *from, *to, *op[3];
        int64_t cost;
    } cases[] = {
        /* 64*48*4 = 12288 bytes; 3 rounds of 3 us; 3/4 of it at 5 GB/s is 1843.2 ns */
        {"@m[x,-]", "@m[-,-]", {"all_gather"}, 9000000 + 1843200},
        {"@m[-,-] sum(x)", "@m[x,-]", {"reduce_scatter"}, 9000000 + 1843200},
        {"@m[-,-] sum(x)", "@m[-,-]", {"all_reduce"}, 2 * (9000000 + 1843200)},
        /* each device sends 3/4 of its quarter */
        {"@m[x,-]", "@m[-,x]", {"all_to_all"}, 9000000 + 460800},
        {"@m[-,-]", "@m[-,x]", {"all_slice"}, 0},
        {"@m[-,-]", "@m[-,-] sum(x)", {"mask"}, 100000 + 2 * 1536000},
        {"@m[x,-]", "@m[-,-] sum(x)", {"all_gather", "mask"}, 9000000 + 1843200 + 100000 + 2 * 1536000},
    };
    ap_ctx *ctx = ap_ctx_create();
    const int32_t size = 4;
    ap_mesh_info mesh = mesh_of(ctx, 1, &size);
    ap_cluster c;
    ap_cluster_local(4, &c);
    ap_module *m = ap_module_create(ctx);
    ap_module_add_mesh(m, &mesh);
    const int64_t dims[] = {64, 48};
    ap_shape shape = ap_shape_of_dims(ctx, 2, dims);
    ap_resharder *r = ap_resharder_create(&ctx->arena, m, &c);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ap_reshard_path *p;
        assert_true(
            ap_reshard_find(r, AP_F32, shape, parse(m, shape, cases[i].from), parse(m, shape, cases[i].to), &p));
        for (int k = 0; k < 3 && cases[i].op[k]; k++) {
            assert_true(k < p->nsteps);
            assert_string_equal(ap_op_get(p->step[k].op)->name, cases[i].op[k]);
        }
        assert_int_equal(p->cost, cases[i].cost);
    }
    ap_ctx_release(ctx);
}

/* On two axes what is sliced first need not be gathered: a partial sum over x becomes split over both. */
static void slices_come_early(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    const int32_t sizes[] = {2, 2};
    ap_mesh_info mesh = mesh_of(ctx, 2, sizes);
    ap_cluster c;
    ap_cluster_local(4, &c);
    ap_module *m = ap_module_create(ctx);
    ap_module_add_mesh(m, &mesh);
    const int64_t dims[] = {64, 48};
    ap_shape shape = ap_shape_of_dims(ctx, 2, dims);
    ap_resharder *r = ap_resharder_create(&ctx->arena, m, &c);
    const ap_reshard_path *p;
    assert_true(ap_reshard_find(r, AP_F32, shape, parse(m, shape, "@m[-,-] sum(x)"), parse(m, shape, "@m[x,y]"), &p));
    assert_int_equal(p->nsteps, 2);
    assert_int_equal(p->step[0].op, AP_OP_ALL_SLICE);
    assert_int_equal(p->step[1].op, AP_OP_REDUCE_SCATTER);
    assert_int_equal(p->held, 64 * 48 * 4 / 4);
    assert_false(p->view);
    /* A sum cannot come back as a maximum. */
    assert_false(ap_reshard_find(r, AP_F32, shape, parse(m, shape, "@m[-,-]"), parse(m, shape, "@m[-,-] max(x)"), &p));
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs),      cmocka_unit_test(pairs_on_three_axes), cmocka_unit_test(no_detour_is_cheaper),
        cmocka_unit_test(textbook_steps), cmocka_unit_test(slices_come_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
