/* Products and what follows them: random modules of a contract and a chain of element-by-element operators behind it,
 * lowered on one rank and, with splits forced, on meshes of 2, 4 and 2x2. The local program must give the module's
 * numbers; most of the chains must have become one kernel with the product. */
#include "plan_util.h"

#include "ir/local.h"
#include "passes/pass.h"

typedef struct maker {
    ap_text params, head, before, body;
    uint64_t *state;
    int next, inputs;
    int64_t size[3]; /* s, h, d of the product's result [b,s,h.d] */
    int64_t batch;
    char last[16];  /* the value made last, f32[b,s,h.d] */
    char early[16]; /* one made before the product, of that type; or "" */
} maker;

static void made(maker *k)
{
    snprintf(k->last, sizeof k->last, "%%v%d", k->next++);
}

/* An operand of a binary operator: the whole, one number, along the columns, along the rows, without the batch. */
static void add_operand(maker *k, char *name, size_t n)
{
    char type[80];
    const long long b = k->batch, s = k->size[0], h = k->size[1], d = k->size[2];
    uint32_t which = draw(k->state, 6);
    bool whole = which == 0;
    switch (which) {
    case 0:
        snprintf(type, sizeof type, "f32[%lld,%lld,%lld.%lld]", b, s, h, d);
        break;
    case 1:
        snprintf(type, sizeof type, "f32[]");
        break;
    case 2:
        snprintf(type, sizeof type, "f32[%lld.%lld]", h, d);
        break;
    case 3:
        snprintf(type, sizeof type, "f32[%lld,%lld,1]", b, s);
        break;
    case 4: /* [b,1,...] and [s,...]: rows of the product do not walk them as one when there are several batches */
        snprintf(type, sizeof type, "f32[%lld,1,%lld.%lld]", b, h, d);
        break;
    default:
        snprintf(type, sizeof type, "f32[%lld,%lld.%lld]", s, h, d);
    }
    snprintf(name, n, "%%x%d", k->inputs++);
    ap_text_addf(&k->head, ", %s: %s", name, type);
    if (draw(k->state, 3) > 0)
        return;
    /* computed before the product, in the group that follows it */
    ap_text_addf(&k->before, "  %%e%s = relu %s : %s\n", name + 1, name, type);
    snprintf(name, n, "%%ex%d", k->inputs - 1);
    if (whole)
        memcpy(k->early, name, sizeof k->early);
}

static void add_binary(maker *k, const char *type)
{
    static const char *const ops[] = {"add", "sub", "mul", "max"};
    char other[16], was[16];
    memcpy(was, k->last, sizeof was);
    bool again = draw(k->state, 8) == 0;
    if (again)
        memcpy(other, was, sizeof other);
    else
        add_operand(k, other, sizeof other);
    made(k);
    ap_text_addf(&k->body, "  %s = %s %s, %s : %s\n", k->last, ops[draw(k->state, 4)], was, other, type);
}

static void add_unary(maker *k, const char *type)
{
    static const char *const ops[] = {"tanh", "relu", "neg", "sigmoid", "erf"};
    char was[16];
    memcpy(was, k->last, sizeof was);
    made(k);
    ap_text_addf(&k->body, "  %s = %s %s : %s\n", k->last, ops[draw(k->state, 5)], was, type);
}

/* What lies behind the row's number is replaced: a causal mask. */
static void add_mask(maker *k, const char *type)
{
    char was[16];
    const long long s = k->size[0];
    memcpy(was, k->last, sizeof was);
    int i = k->next;
    k->next += 6;
    ap_text_addf(&k->body,
                 "  %%v%d = iota dim 0 : i64[%lld]\n  %%v%d = view %%v%d {s->s11} : i64[%lld,1,1]\n"
                 "  %%v%d = constant splat %d : i64[]\n  %%v%d = le %%v%d, %%v%d : bool[%lld,1,1]\n",
                 i, s, i + 1, i, s, i + 2, (int)draw(k->state, 5), i + 3, i + 1, i + 2, s);
    ap_text_addf(&k->body, "  %%v%d = view %%v%d {s11->1s1} : bool[1,%lld,1]\n  %%v%d = constant splat -3 : f32[]\n",
                 i + 4, i + 3, s, i + 5);
    made(k);
    ap_text_addf(&k->body, "  %s = select %%v%d, %s, %%v%d : %s\n", k->last, i + 4, was, i + 5, type);
}

static const char *random_module(ap_ctx *ctx, uint64_t *state)
{
    static const int64_t sizes[] = {2, 3, 4, 5, 6, 8};
    maker k = {.state = state, .batch = sizes[draw(state, 3)]};
    ap_text all;
    char type[80], second[16] = "";
    ap_text_init(&k.params, &ctx->arena);
    ap_text_init(&k.head, &ctx->arena);
    ap_text_init(&k.before, &ctx->arena);
    ap_text_init(&k.body, &ctx->arena);
    ap_text_init(&all, &ctx->arena);
    for (int i = 0; i < 3; i++)
        k.size[i] = sizes[draw(state, 6)];
    long long depth = 2 + draw(state, 20), b = k.batch, s = k.size[0], h = k.size[1], d = k.size[2];
    snprintf(type, sizeof type, "f32[%lld,%lld,%lld.%lld]", b, s, h, d);
    bool weight = draw(state, 3) > 0, turned = draw(state, 2);
    ap_text_addf(&k.head, "%%x: f32[%lld,%lld,%lld]", b, s, depth);
    if (weight)
        ap_text_addf(&k.params,
                     turned ? "param @w : f32[%lld.%lld,%lld] data([" : "param @w : f32[%3$lld,%1$lld.%2$lld] data([",
                     h, d, depth);
    else
        ap_text_addf(&k.head, turned ? ", %%w: f32[%lld.%lld,%lld]" : ", %%w: f32[%3$lld,%1$lld.%2$lld]", h, d, depth);
    for (int i = 0; weight && i < h * d * depth; i++)
        ap_text_addf(&k.params, "%s%g", i ? "," : "", ((int)draw(state, 17) - 8) / 8.0);
    if (weight)
        ap_text_add(&k.params, "])\n");
    made(&k);
    ap_text_addf(&k.body, "  %s = contract %%x, %sw {bsk,%s->bs(hd)} : %s\n", k.last, weight ? "@" : "%",
                 turned ? "(hd)k" : "k(hd)", type);
    for (int i = 1 + (int)draw(state, 5); i > 0; i--) {
        uint32_t what = draw(state, 8);
        if (what < 4)
            add_binary(&k, type);
        else if (what < 7)
            add_unary(&k, type);
        else
            add_mask(&k, type);
        if (draw(state, 8) == 0)
            memcpy(second, k.last, sizeof second);
    }
    if (*k.early && draw(state, 2) == 0)
        memcpy(second, k.early, sizeof second);
    bool two = *second && strcmp(second, k.last) != 0;
    ap_text_addf(&all, "state normal\n%sfunc @f(%s) -> %s%s%s {\n%s%s  ret %s%s%s }\n", ap_text_str(&k.params),
                 ap_text_str(&k.head), type, two ? ", " : "", two ? type : "", ap_text_str(&k.before),
                 ap_text_str(&k.body), k.last, two ? ", " : "", two ? second : "");
    return ap_text_str(&all);
}

static void check_local(ap_ctx *ctx, ap_module *m, const ap_tensor *in, const ap_tensor *want, ap_local **out)
{
    uint32_t n = m->funcs.at[0].nresults;
    ap_tensor *got = AP_NEW_ARRAY(&ctx->arena, ap_tensor, n);
    assert_ok(ctx, ap_lower_local(ctx, m, "test", out));
    ap_status status = ap_local_verify(*out);
    if (status == AP_OK)
        status = ap_local_eval(*out, &ctx->arena, in, got);
    if (status != AP_OK)
        print_error("%s\n", text_of(ctx, m));
    assert_ok(ctx, status);
    assert_same(n, got, want, 1e-5);
    ap_text t;
    ap_local *again;
    ap_text_init(&t, &ctx->arena);
    ap_local_print(*out, &t);
    assert_ok(ctx, ap_local_parse(ctx, "test", ap_text_str(&t), t.len, &again));
    ap_text twice;
    ap_text_init(&twice, &ctx->arena);
    ap_local_print(again, &twice);
    assert_string_equal(ap_text_str(&t), ap_text_str(&twice));
}

static int count_followed(const ap_local *p, int *products, int *panels)
{
    int followed = 0;
    for (uint32_t i = 0; i < p->kernels.len; i++) {
        const ap_kernel *k = &p->kernels.at[i];
        *products += k->kind == AP_KERNEL_GEMM;
        *panels += k->kind == AP_KERNEL_GEMM && k->gemm.panels;
        followed += k->kind == AP_KERNEL_GEMM && k->nest.nsops > 0;
    }
    return followed;
}

static void products_with_what_follows(void **unused)
{
    (void)unused;
    static const struct {
        int naxes;
        int32_t size[2];
    } meshes[] = {{0, {0}}, {1, {2}}, {1, {4}}, {2, {2, 2}}};
    uint64_t state = 11;
    int followed = 0, products = 0, panels = 0;
    for (int round = 0; round < 400; round++) {
        ap_ctx *ctx = ap_ctx_create();
        const char *text = random_module(ctx, &state);
        uint64_t seed = (uint64_t)round;
        ap_module *m = module_of(ctx, text);
        assert_verifies(ctx, m);
        ap_tensor *in = draw_inputs(ctx, m, &seed), *want = outputs_of(ctx, m, in);
        ap_local *p;
        int naxes = meshes[round % 4].naxes;
        if (naxes) {
            ap_plan_options opt = {.mesh = mesh_of(ctx, naxes, meshes[round % 4].size), .split_force = round % 8 < 4};
            ap_plan_result r;
            assert_ok(ctx,
                      ap_cluster_from_preset(
                          ctx, naxes == 1 ? (round % 4 == 1 ? "local:1x2" : "local:1x4") : "local:1x4", &opt.cluster));
            assert_ok(ctx, ap_pass_plan(ctx, m, &opt, &r));
            assert_ok(ctx, ap_explicit_run(ctx, m, &opt.cluster));
        }
        check_local(ctx, m, in, want, &p);
        followed += count_followed(p, &products, &panels);
        ap_ctx_release(ctx);
    }
    print_message("%d products, %d of them with what follows, %d from panels\n", products, followed, panels);
    assert_true(products > 200);
    assert_true(2 * followed > products);
    assert_true(4 * panels > products);
}

/* A parameter is stored in panels unless somebody else reads it, or other products read it in another way. */
static void who_gets_panels(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        int panels;
    } cases[] = {
        {"param @w : f32[16,8] data(splat 1)\nfunc @f(%x: f32[4,16]) -> f32[4,8] {\n"
         "  %y = contract %x, @w {bk,kn->bn} : f32[4,8]\n  ret %y }\n",
         1},
        /* turned: nothing is turned at run time */
        {"param @w : f32[8,16] data(splat 1)\nfunc @f(%x: f32[4,16]) -> f32[4,8] {\n"
         "  %y = contract %x, @w {bk,nk->bn} : f32[4,8]\n  ret %y }\n",
         1},
        /* twice in the same way */
        {"param @w : f32[8,8] data(splat 1)\nfunc @f(%x: f32[4,8]) -> f32[4,8] {\n"
         "  %y = contract %x, @w {bk,kn->bn} : f32[4,8]\n  %z = contract %y, @w {bk,kn->bn} : f32[4,8]\n  ret %z }\n",
         1},
        /* and once turned */
        {"param @w : f32[8,8] data(splat 1)\nfunc @f(%x: f32[4,8]) -> f32[4,8] {\n"
         "  %y = contract %x, @w {bk,kn->bn} : f32[4,8]\n  %z = contract %y, @w {bk,nk->bn} : f32[4,8]\n  ret %z }\n",
         0},
        /* tied with a table that is looked up */
        {"param @w : f32[8,16] data(splat 1)\nfunc @f(%i: i64[4]) -> f32[4,8] {\n"
         "  %x = gather @w, %i {vh,b->bh} : f32[4,16]\n  %y = contract %x, @w {bk,nk->bn} : f32[4,8]\n  ret %y }\n",
         0},
        /* also returned */
        {"param @w : f32[16,8] data(splat 1)\nfunc @f(%x: f32[4,16]) -> f32[4,8], f32[16,8] {\n"
         "  %y = contract %x, @w {bk,kn->bn} : f32[4,8]\n  ret %y, @w }\n",
         0},
        /* a matrix for each of three heads */
        {"param @w : f32[3,16,8] data(splat 1)\nfunc @f(%x: f32[3,4,16]) -> f32[3,4,8] {\n"
         "  %y = contract %x, @w {hbk,hkn->hbn} : f32[3,4,8]\n  ret %y }\n",
         1},
        /* half of it */
        {"param @w : f32[16,2.8] data(splat 1)\nfunc @f(%x: f32[4,16]) -> f32[4,8] {\n"
         "  %h = slice @w [-,1:2.-] : f32[16,8]\n  %y = contract %x, %h {bk,kn->bn} : f32[4,8]\n  ret %y }\n",
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ap_ctx *ctx = ap_ctx_create();
        uint64_t seed = i;
        ap_text t;
        ap_text_init(&t, &ctx->arena);
        ap_text_addf(&t, "state normal\n%s", cases[i].text);
        ap_module *m = module_of(ctx, ap_text_str(&t));
        ap_tensor *in = draw_inputs(ctx, m, &seed);
        for (int64_t j = 0; i == 4 && j < in[0].count; j++)
            in[0].at[j].i = j;
        ap_tensor *want = outputs_of(ctx, m, in);
        ap_local *p;
        check_local(ctx, m, in, want, &p);
        int panels = 0;
        for (uint32_t j = 0; j < p->params.len; j++)
            panels += p->params.at[j].store.kind == AP_STORE_PANELS;
        if (panels != cases[i].panels)
            print_error("case %zu\n", i);
        assert_int_equal(panels, cases[i].panels);
        ap_ctx_release(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_with_what_follows),
        cmocka_unit_test(who_gets_panels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
