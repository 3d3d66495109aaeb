/* Microbatches: where the batch is, what is refused, and the numbers: planned, explicit and local programs with time
 * give what one device gives without, whatever the number of microbatches, dividing the batch or not. */
#include "tests/passes/draw_choice.h"

#include "ir/physical.h"
#include "passes/batch.h"
#include "passes/plan_problem.h"

#include <stdlib.h>

/* ---- where the batch is ---- */

static ap_value named(const ap_module *m, const char *name)
{
    for (ap_value v = 0; v < m->values.len; v++)
        if (strcmp(ap_name_str(m->ctx, ap_value_at(m, v)->name), name) == 0)
            return v;
    fail_msg("no value %s", name);
    return AP_NONE;
}

static int factor_of(const ap_module *m, const ap_batch *b, const char *name)
{
    return b->factor[named(m, name)];
}

static const char follows[] = "state normal\nparam @w : f32[8,2.3] data(splat 1)\nparam @t : f32[5,8] data(splat 1)\n"
                              "func @f(%x: f32[6,4,8], %i: i64[4,6], %n: f32[6,8]) -> f32[4,6,2.3], f32[6,8] {\n"
                              "  %c = contract %x, @w {bsk,k(hd)->bs(hd)} : f32[6,4,2.3]\n"
                              "  %v = view %c {bs(hd)->sb(hd)} : f32[4,6,2.3]\n"
                              "  %g = gather @t, %i {vk,sb->bsk} : f32[6,4,8]\n"
                              "  %a = add %x, %g : f32[6,4,8]\n"
                              "  %p = iota dim 0 : f32[6,1,1]\n" /* read one microbatch at a time, so made so */
                              "  %q = neg %p : f32[6,1,1]\n"
                              "  %m = mul %a, %q : f32[6,4,8]\n"
                              "  %k = constant [1,2,3,4,5,6] : f32[6,1,1]\n" /* a parameter, there all the time */
                              "  %y = mul %m, %k : f32[6,4,8]\n"
                              "  %s = composite softmax(%y) : f32[6,4,8] {\n"
                              "    %e = exp %y : f32[6,4,8]\n    %z = reduce sum %e {bsk->bs1} : f32[6,4,1]\n"
                              "    %d = div %e, %z : f32[6,4,8]\n    yield %d }\n"
                              "  %r = reduce max %s {bsk->b1k} : f32[6,1,8]\n"
                              "  %o = relu %n : f32[6,8]\n" /* does not depend on the batch, though it is as large */
                              "  ret %v, %o }\n";

static void batch_is_followed(void **unused)
{
    (void)unused;
    static const int8_t args[] = {0, 1, AP_NO_BATCH};
    static const struct {
        const char *name;
        int factor;
    } want[] = {{"x", 0}, {"i", 1}, {"n", -1}, {"c", 0}, {"v", 1}, {"g", 0}, {"a", 0}, {"p", 0},
                {"q", 0}, {"m", 0}, {"k", -1}, {"y", 0}, {"s", 0}, {"r", 0}, {"o", -1}};
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = module_of(ctx, follows);
    ap_batch b;
    assert_verifies(ctx, m);
    assert_ok(ctx, ap_batch_find(ctx, m, args, &ctx->arena, &b));
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        if (factor_of(m, &b, want[i].name) != want[i].factor)
            fail_msg("%%%s: %d, not %d", want[i].name, factor_of(m, &b, want[i].name), want[i].factor);
    assert_int_equal(b.extent, 6);
    assert_int_equal(b.alike[named(m, "k")], 1); /* padded like the batch, bodies too */
    assert_int_equal(b.alike[named(m, "e")], 1);
    assert_int_equal(b.alike[named(m, "o")], 0);
    ap_ctx_release(ctx);
}

static void mixing_is_refused(void **unused)
{
    (void)unused;
    static const struct {
        const char *body;
        uint32_t n;
        const char *message[3];
    } cases[] = {
        {"  %y = reduce sum %x {bk->1k} : f32[1,8]  loc(\"total\", \"ReduceSum\")\n  ret %y }\n",
         1,
         {"node \"total\" (ReduceSum): no microbatches: reduce adds over the batch"}},
        {"  %a = reduce max %x {bk->1k} : f32[1,8]\n  %b = reduce prod %x {bk->1k} : f32[1,8]\n  %y = add %a, %b : "
         "f32[1,8]\n  ret %y }\n",
         2,
         {"reduce takes the largest of the batch", "reduce needs the batch whole"}},
        {"  %c = contract %x, %x {bk,bl->kl} : f32[8,8]\n  %d = contract %x, %x {bk,ck->bc} : f32[6,6]\n  ret %c, %d "
         "}\n",
         2,
         {"contract adds over the batch", "contract brings together entries of different batches"}},
        {"  %y = reshape %x : f32[8,6]\n  ret %y }\n", 1, {"reshape needs the batch whole"}},
        {"  %y = slice %x [0:3,-] : f32[3,8]\n  ret %y }\n", 1, {"slice needs the batch whole"}},
        {"  %y = concat %x, %x dim 0 : f32[12,8]\n  ret %y }\n", 1, {"concat needs the batch whole"}},
        {"  %y = cumulate sum %x dim 0 : f32[6,8]\n  ret %y }\n", 1, {"cumulate needs the batch whole"}},
        {"  %i = constant [0,1,2] : i64[3]\n  %y = gather %x, %i {vk,n->nk} : f32[3,8]\n  ret %y }\n",
         1,
         {"gather looks up entries of the batch"}},
        {"  %y = composite softmax(%x) : f32[6,8] {\n    %e = exp %x : f32[6,8]\n"
         "    %z = reduce sum %e {bk->1k} : f32[1,8]\n    %d = div %e, %z : f32[6,8]\n    yield %d }\n  ret %y }\n",
         1,
         {"reduce adds over the batch"}},
    };
    static const int8_t args[] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        bool two = strstr(cases[i].body, "ret %c, %d") != NULL;
        const char *y = strstr(cases[i].body, "%y = "), *type = y ? strstr(y, ": ") + 2 : "";
        ap_text t;
        ap_text_init(&t, &ctx->arena);
        ap_text_addf(&t, "state normal\nfunc @f(%%x: f32[6,8]) -> %.*s {\n%s", two ? 18 : (int)strcspn(type, "\n {"),
                     two ? "f32[8,8], f32[6,6]" : type, cases[i].body);
        ap_module *m = module_of(ctx, ap_text_str(&t));
        ap_batch b;
        assert_verifies(ctx, m);
        assert_int_equal(ap_batch_find(ctx, m, args, &ctx->arena, &b), AP_ERR_MODEL);
        assert_int_equal(ctx->diags.len, cases[i].n);
        for (uint32_t k = 0; k < cases[i].n; k++)
            if (!strstr(ap_diag_str(ctx, &ctx->diags.at[k]), cases[i].message[k]))
                fail_msg("want: %s\nhave: %s", cases[i].message[k], ap_diag_str(ctx, &ctx->diags.at[k]));
        ap_ctx_release(ctx);
    }
}

static void dimensions_to_factors(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = module_of(ctx, "state normal\nfunc @f(%x: f32[3.2,6], %y: f32[1,3], %z: f32[4]) -> f32[3.2,6] {\n"
                                  "  %r = relu %x : f32[3.2,6]\n  ret %r }\n");
    static const int8_t first[] = {0, 1, -1}, second[] = {1, -1, -1}, none[] = {-1, -1, -1}, one[] = {-1, 0, -1},
                        unequal[] = {1, -1, 0};
    const int8_t *f;
    assert_ok(ctx, ap_batch_arguments(ctx, m, first, 3, &f));
    assert_true(f[0] == 0 && f[1] == 0 && f[2] == -1);
    assert_ok(ctx, ap_batch_arguments(ctx, m, second, 6, &f));
    assert_true(f[0] == 2 && f[1] == -1);
    assert_ok(ctx, ap_batch_arguments(ctx, m, none, 1, &f));
    assert_ok(ctx, ap_batch_arguments(ctx, m, one, 1, &f));
    assert_true(f[1] == -1);
    assert_int_equal(ap_batch_arguments(ctx, m, second, 7, &f), AP_ERR_USAGE);
    assert_int_equal(ap_batch_arguments(ctx, m, none, 2, &f), AP_ERR_USAGE);
    assert_int_equal(ap_batch_arguments(ctx, m, one, 2, &f), AP_ERR_USAGE);
    assert_int_equal(ap_batch_arguments(ctx, m, unequal, 2, &f), AP_ERR_USAGE);
    ap_ctx_release(ctx);
}

/* ---- physical extents ---- */

static ap_mesh_info timed(ap_ctx *ctx, int32_t microbatches, int naxes, const int32_t *size)
{
    ap_mesh_info plain = mesh_of(ctx, naxes, size), mesh = {.name = plain.name, .ntime = 1, .naxes = 1};
    mesh.axis_name[0] = ap_name_make(ctx, AP_TIME_AXIS);
    mesh.axis_size[0] = microbatches;
    for (int a = 0; a < naxes; a++) {
        mesh.axis_name[mesh.naxes] = plain.axis_name[a];
        mesh.axis_size[mesh.naxes++] = plain.axis_size[a];
    }
    return mesh;
}

/* As few entries as can be in a microbatch, unless an eighth more lets ranks divide them. */
static void extents_by_hand(void **unused)
{
    (void)unused;
    static const struct {
        int32_t microbatches, size[2];
        int64_t logical, physical, forced;
    } cases[] = {
        {2, {2, 1}, 5, 6, 8},        {2, {2, 1}, 8, 8, 8},    {4, {2, 2}, 16, 16, 16}, {4, {2, 2}, 64, 64, 64},
        {2, {2, 2}, 30, 32, 32},     {2, {8, 1}, 6, 6, 6},    {1, {2, 1}, 5, 5, 6},    {4, {1, 1}, 5, 8, 8},
        {3, {4, 1}, 8, 9, 9},        {2, {2, 4}, 36, 40, 48}, {2, {2, 4}, 20, 20, 32}, {2, {3, 2}, 12, 12, 12},
        {13, {9, 1}, 100, 104, 104},
    };
    ap_ctx *ctx = ap_ctx_create();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ap_mesh_info mesh = timed(ctx, cases[i].microbatches, 2, cases[i].size);
        assert_int_equal(ap_physical_batch(&mesh, cases[i].logical, false), cases[i].physical);
        assert_int_equal(ap_physical_batch(&mesh, cases[i].logical, true), cases[i].forced);
        assert_int_equal(ap_physical_extent(&mesh, 7, true),
                         (7 + ap_mesh_ranks(&mesh) - 1) / ap_mesh_ranks(&mesh) * ap_mesh_ranks(&mesh));
    }
    ap_ctx_release(ctx);
}

/* All batches and meshes in a range: who has an entry of the last microbatch, counted. */
static void none_is_empty(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    for (int32_t batch = 1; batch <= 70; batch++)
        for (int32_t n = 1; n <= batch; n++) {
            int32_t each = 1, full;
            while (each * n < batch)
                each++;
            for (full = 0; full * each < batch; full++)
                continue;
            assert_int_equal(ap_microbatches_filled(batch, n), full);
            for (int32_t ranks = 1; ranks <= 9 && full == n; ranks++) {
                ap_mesh_info mesh = timed(ctx, n, 2, (int32_t[]){ranks, 2});
                for (int force = 0; force < 2; force++) {
                    int64_t rows = ap_physical_batch(&mesh, batch, force) / n;
                    assert_true(rows * n >= batch && rows * (n - 1) < batch);
                }
            }
        }
    ap_ctx_release(ctx);
}

/* ---- numbers ---- */

enum { ROWS = 3, WIDE = 8, TABLE = 5 };

/* Kinds of values: N images of ROWS x WIDE; of ROWS; transposed; ROWS x ROWS. */
typedef struct drawer {
    ap_ctx *ctx;
    uint64_t *seed;
    ap_text params, body;
    int nvalues, nparams;
    int kind[64];
    char type[4][32];
} drawer;

static int add(drawer *g, int kind)
{
    g->kind[g->nvalues] = kind;
    return g->nvalues++;
}

static int pick(drawer *g, int kind)
{
    for (int attempt = 0; attempt < 20; attempt++) {
        int v = (int)draw(g->seed, (uint32_t)g->nvalues);
        if (g->kind[v] == kind)
            return v;
    }
    return kind == 2;
}

static int add_param(drawer *g, const char *shape, int n)
{
    ap_text_addf(&g->params, "param @w%d : f32[%s] data([", g->nparams, shape);
    for (int i = 0; i < n; i++)
        ap_text_addf(&g->params, "%s%g", i ? "," : "", ((int)draw(g->seed, 9) - 4) / 4.0);
    ap_text_add(&g->params, "])\n");
    return g->nparams++;
}

/* What is the same for all microbatches, with one number for each image or without. */
static void add_timeless(drawer *g, int n)
{
    int v = pick(g, 0), w, r = g->nvalues;
    switch (draw(g->seed, 5)) {
    case 0:
        ap_text_addf(&g->body, "  %%k%d = iota dim 0 : f32[%d,%d,1]\n  %%l%d = neg %%k%d : f32[%d,%d,1]\n", r, n, ROWS,
                     r, r, n, ROWS);
        ap_text_addf(&g->body, "  %%v%d = add %%v%d, %%l%d : %s\n", r, v, r, g->type[0]);
        break;
    case 1:
        ap_text_addf(&g->body, "  %%k%d = constant [", r);
        for (int i = 0; i < n; i++)
            ap_text_addf(&g->body, "%s%d", i ? "," : "", i + 1);
        ap_text_addf(&g->body, "] : f32[%d,1,1]\n  %%v%d = mul %%v%d, %%k%d : %s\n", n, r, v, r, g->type[0]);
        break;
    case 2: /* a parameter, spread over the batch, and sliced with it */
        w = add_param(g, "3,8", ROWS * WIDE);
        ap_text_addf(&g->body, "  %%k%d = view @w%d {sk->bsk} : %s\n  %%l%d = relu %%k%d : %s\n", r, w, g->type[0], r,
                     r, g->type[0]);
        ap_text_addf(&g->body, "  %%v%d = max %%v%d, %%l%d : %s\n", r, v, r, g->type[0]);
        break;
    case 3: /* read whole by one node, by microbatches by another */
        ap_text_addf(&g->body,
                     "  %%k%d = constant splat 0.5 : f32[%d,1,1]\n  %%l%d = reduce sum %%k%d {b11->111} : "
                     "f32[1,1,1]\n  %%h%d = add %%k%d, %%l%d : f32[%d,1,1]\n",
                     r, n, r, r, r, r, r, n);
        ap_text_addf(&g->body, "  %%v%d = sub %%v%d, %%h%d : %s\n", r, v, r, g->type[0]);
        break;
    default:
        ap_text_addf(&g->body, "  %%v%d = add %%v%d, %%t : %s\n", r, v, g->type[0]);
    }
    add(g, 0);
}

static void add_product(drawer *g)
{
    int v = pick(g, 0), r = g->nvalues, w;
    switch (draw(g->seed, 3)) {
    case 0:
        w = add_param(g, "8,8", WIDE * WIDE);
        ap_text_addf(&g->body, "  %%v%d = contract %%v%d, @w%d {bsk,kn->bsn} : %s\n", r, v, w, g->type[0]);
        add(g, 0);
        return;
    case 1:
        ap_text_addf(&g->body, "  %%v%d = contract %%v%d, %%v%d {bsk,btk->bst} : %s\n", r, v, pick(g, 0), g->type[3]);
        add(g, 3);
        return;
    default:
        for (w = 0; w < r && g->kind[w] != 3; w++)
            ;
        if (w == r)
            ap_text_addf(&g->body, "  %%v%d = relu %%v%d : %s\n", r, v, g->type[0]);
        else
            ap_text_addf(&g->body, "  %%v%d = contract %%v%d, %%v%d {bst,btk->bsk} : %s\n", r, w, v, g->type[0]);
        add(g, 0);
    }
}

static void add_node(drawer *g, int n)
{
    int v = (int)draw(g->seed, (uint32_t)g->nvalues), k = g->kind[v], u = pick(g, k), r = g->nvalues;
    switch (draw(g->seed, 9)) {
    case 0:
    case 1:
        add_timeless(g, n);
        return;
    case 2:
    case 3:
        add_product(g);
        return;
    case 4:
        v = pick(g, 0);
        ap_text_addf(&g->body, "  %%v%d = reduce %s %%v%d {bsk->bs1} : %s\n", r, draw(g->seed, 2) ? "sum" : "max", v,
                     g->type[1]);
        add(g, 1);
        return;
    case 5:
        v = pick(g, 0);
        ap_text_addf(&g->body,
                     "  %%v%d = composite soft(%%v%d) : %s {\n    %%m = reduce max %%v%d {bsk->bs1} : %s\n"
                     "    %%d = sub %%v%d, %%m : %s\n    %%z = reduce sum %%d {bsk->bs1} : %s\n"
                     "    %%q = add %%d, %%z : %s\n    yield %%q }\n",
                     r, v, g->type[0], v, g->type[1], v, g->type[0], g->type[1], g->type[0]);
        add(g, 0);
        return;
    case 6:
        k = draw(g->seed, 2) ? 2 : 0;
        v = pick(g, 2 - k);
        ap_text_addf(&g->body, "  %%v%d = view %%v%d %s : %s\n", r, v, k ? "{bsk->sbk}" : "{sbk->bsk}", g->type[k]);
        add(g, k);
        return;
    case 7:
        v = pick(g, 0);
        ap_text_addf(&g->body, "  %%s%d = slice %%v%d [-,-,%s] : f32[%d,%d,4]\n", r, v,
                     draw(g->seed, 2) ? "0:4" : "4:8", n, ROWS);
        ap_text_addf(&g->body, "  %%v%d = concat %%s%d, %%s%d dim 2 : %s\n", r, r, r, g->type[0]);
        add(g, 0);
        return;
    default:
        if (g->kind[u] != k)
            u = v;
        ap_text_addf(&g->body, "  %%v%d = %s %%v%d, %%v%d : %s\n", r, draw(g->seed, 2) ? "add" : "max", v, u,
                     g->type[k]);
        add(g, k);
    }
}

/* %v0, %v2 and %i have the batch; %t has none, nor has the last result. */
static const char *draw_graph(ap_ctx *ctx, uint64_t *seed, int n, int nodes)
{
    drawer g = {.ctx = ctx, .seed = seed, .nvalues = 0};
    ap_text_init(&g.params, &ctx->arena);
    ap_text_init(&g.body, &ctx->arena);
    snprintf(g.type[0], sizeof g.type[0], "f32[%d,%d,%d]", n, ROWS, WIDE);
    snprintf(g.type[1], sizeof g.type[1], "f32[%d,%d,1]", n, ROWS);
    snprintf(g.type[2], sizeof g.type[2], "f32[%d,%d,%d]", ROWS, n, WIDE);
    snprintf(g.type[3], sizeof g.type[3], "f32[%d,%d,%d]", n, ROWS, ROWS);
    add(&g, 0);
    add(&g, 2);
    int table = add_param(&g, "5,8", TABLE * WIDE);
    ap_text_addf(&g.body, "  %%j = cast %%i : i64[%d,%d]\n", n, ROWS);
    ap_text_addf(&g.body, "  %%v%d = gather @w%d, %%j {vk,bs->bsk} : %s\n", add(&g, 0), table, g.type[0]);
    for (int i = 0; i < nodes; i++)
        add_node(&g, n);
    int out[2] = {g.nvalues - 1, (int)draw(seed, (uint32_t)g.nvalues)};
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t,
                 "state normal\n%sfunc @f(%%v0: %s, %%v1: %s, %%i: f32[%d,%d], %%t: f32[%d,%d]) -> %s, %s, f32[%d,%d]",
                 ap_text_str(&g.params), g.type[0], g.type[2], n, ROWS, ROWS, WIDE, g.type[g.kind[out[0]]],
                 g.type[g.kind[out[1]]], ROWS, WIDE);
    ap_text_addf(&t, " {\n%s  %%o = relu %%t : f32[%d,%d]\n  ret %%v%d, %%v%d, %%o }\n", ap_text_str(&g.body), ROWS,
                 WIDE, out[0], out[1]);
    return ap_text_str(&t);
}

static const int8_t graph_batch[] = {0, 1, 0, AP_NO_BATCH};

static ap_tensor *graph_inputs(ap_ctx *ctx, const ap_module *m, uint64_t *seed)
{
    ap_tensor *in = draw_inputs(ctx, m, seed);
    for (int64_t i = 0; i < in[2].count; i++) /* indices */
        in[2].at[i].f = draw(seed, TABLE);
    return in;
}

/* Planned, explicit, local: types that verify, text that comes back, the same numbers. */
static void check_states(ap_ctx *ctx, ap_module *m, const ap_cluster *c, const ap_tensor *in, const ap_tensor *want)
{
    uint32_t n = m->funcs.at[0].nresults;
    assert_verifies(ctx, m);
    const char *text = text_of(ctx, m);
    assert_string_equal(text_of(ctx, module_of(ctx, text)), text);
    assert_same(n, outputs_of(ctx, m, in), want, 1e-4);
    assert_ok(ctx, ap_explicit_run(ctx, m, c));
    assert_verifies(ctx, m);
    assert_same(n, outputs_of(ctx, m, in), want, 1e-4);
    ap_local *p, *again;
    ap_status status = ap_lower_local(ctx, m, "f", &p);
    if (status == AP_OK)
        status = ap_local_verify(p);
    ap_text t, u;
    ap_text_init(&t, &ctx->arena);
    ap_text_init(&u, &ctx->arena);
    if (status == AP_OK)
        ap_local_print(p, &t);
    if (status != AP_OK)
        fprintf(stderr, "%s\n", text_of(ctx, m));
    assert_ok(ctx, status);
    assert_ok(ctx, ap_local_parse(ctx, "again", ap_text_str(&t), t.len, &again));
    ap_local_print(again, &u);
    assert_string_equal(ap_text_str(&u), ap_text_str(&t));
    ap_tensor *out = AP_NEW_ARRAY(&ctx->arena, ap_tensor, n);
    status = ap_local_eval(p, &ctx->arena, in, out);
    if (status != AP_OK)
        fprintf(stderr, "%s\n%s\n", text_of(ctx, m), ap_text_str(&t));
    assert_ok(ctx, status);
    assert_same(n, out, want, 1e-4);
}

static const struct {
    int naxes;
    int32_t size[2];
} meshes[] = {{1, {1}}, {1, {2}}, {1, {4}}, {2, {2, 2}}};

static ap_plan_options options_for(ap_ctx *ctx, int round, int32_t microbatches)
{
    int i = round % 4;
    ap_plan_options opt = {.mesh = timed(ctx, microbatches, meshes[i].naxes, meshes[i].size), .batch = graph_batch};
    ap_cluster_local(ap_mesh_ranks(&opt.mesh), &opt.cluster);
    opt.cluster.launch_ps = 100;
    opt.cluster.inside = (ap_level){.latency_ps = 3000, .bytes_per_second = 20000000000};
    opt.cluster.memory_bytes = INT64_MAX;
    opt.split_force = round / 4 % 2;
    return opt;
}

/* Is time where the batch is, and nowhere else? */
static void check_time(const ap_module *m, const ap_batch *b)
{
    for (ap_value v = 0; v < m->values.len; v++) {
        ap_type_info t = ap_type_get(m->ctx, ap_value_type(m, v));
        if (!t.sharding || ap_value_at(m, v)->name == 0)
            continue;
        const ap_sharding_info *s = ap_sharding_get(m->ctx, t.sharding);
        const ap_value_info *info = ap_value_at(m, v);
        if (info->kind == AP_VALUE_RESULT && ap_block_at(m, ap_node_at(m, info->def)->block)->parent != AP_NONE)
            continue;
        for (int f = 0; f < s->nfactors; f++)
            assert_int_equal(ap_axes_mask(s->axes[f]) & 1, f == b->factor[v]);
    }
}

static void planned_microbatches_agree(void **unused)
{
    (void)unused;
    const char *rounds = getenv("AP_TEST_ROUNDS");
    uint64_t seed = 7;
    for (int round = 0; round < (rounds ? atoi(rounds) : 160); round++) {
        ap_ctx *ctx = ap_ctx_create();
        int n = 2 + (int)draw(&seed, 7);
        const char *text = draw_graph(ctx, &seed, n, 3 + round % 9);
        ap_module *m = module_of(ctx, text);
        assert_verifies(ctx, m);
        ap_tensor *in = graph_inputs(ctx, m, &seed), *want = outputs_of(ctx, m, in);
        ap_plan_options opt = options_for(ctx, round, 1 + (int32_t)draw(&seed, 4));
        ap_plan_result r;
        ap_batch b;
        assert_ok(ctx, ap_batch_find(ctx, m, graph_batch, &ctx->arena, &b));
        ap_status status = ap_pass_plan(ctx, m, &opt, &r);
        if (status != AP_OK)
            fprintf(stderr, "%s\n", text);
        assert_ok(ctx, status);
        check_time(m, &b);
        check_states(ctx, m, &opt.cluster, in, want);
        ap_ctx_release(ctx);
    }
}

/* Any choice that the problem allows, not only good ones. */
static void random_choices_agree(void **unused)
{
    (void)unused;
    uint64_t seed = 3;
    int checked = 0;
    for (int round = 0; round < 60; round++) {
        ap_ctx *ctx = ap_ctx_create();
        int n = 2 + (int)draw(&seed, 7);
        const char *text = draw_graph(ctx, &seed, n, 2 + round % 5);
        ap_module *plain = module_of(ctx, text);
        ap_tensor *in = graph_inputs(ctx, plain, &seed), *want = outputs_of(ctx, plain, in);
        ap_plan_options opt = options_for(ctx, round, 1 + (int32_t)draw(&seed, 4));
        for (int i = 0; i < 3; i++) {
            ap_module *m = module_of(ctx, text);
            ap_planning p;
            int64_t cost, peak;
            ap_plan_result r;
            assert_ok(ctx, ap_planning_open(ctx, &ctx->arena, m, &opt, &p));
            uint32_t *choice = AP_NEW_ARRAY(&ctx->arena, uint32_t, p.problem.nnodes);
            if (!draw_choice(&p.problem, &seed, choice, &cost, &peak))
                continue;
            assert_ok(ctx, ap_planning_apply(&p, choice));
            assert_ok(ctx, ap_plan_evaluate(ctx, m, &opt.cluster, &r));
            assert_int_equal(r.cost_ps, cost);
            assert_true(r.peak_bytes <= peak);
            check_states(ctx, m, &opt.cluster, in, want);
            checked++;
        }
        ap_ctx_release(ctx);
    }
    assert_true(checked > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_is_followed),     cmocka_unit_test(mixing_is_refused),
        cmocka_unit_test(dimensions_to_factors), cmocka_unit_test(extents_by_hand),
        cmocka_unit_test(none_is_empty),         cmocka_unit_test(planned_microbatches_agree),
        cmocka_unit_test(random_choices_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
