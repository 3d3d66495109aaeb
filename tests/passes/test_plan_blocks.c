/* Two transformer blocks on a fast mesh of four, batch 1, input and output held split by sequence (DESIGN §7,
 * "What optimal means"). docs/planning.md says under which conditions the plan of Megatron with sequence
 * parallelism is the optimum; here they hold:
 *
 *   memory near the least possible   weights must be split, and there is no room to gather one
 *   S <= H                           moving activations is cheaper than moving weights
 *
 * and the planner is to find it by itself: column then row, heads split through the fused QKV, norms split by
 * sequence, two all-gathers and two reduce-scatters a block. With loose memory it may do anything cheaper. */
#include "tests/passes/plan_util.h"

#include "ir/op.h"

typedef struct sizes {
    int s, h, heads; /* sequence, hidden, attention heads */
} sizes;

static void add_param(ap_text *t, uint64_t *state, bool data, const char *name, const char *shape, int count)
{
    ap_text_addf(t, "param @%s : f32[%s]", name, shape);
    for (int i = 0; data && i < count; i++)
        ap_text_addf(t, "%s%g", i ? "," : " data([", ((int)draw(state, 17) - 8) / 16.0);
    ap_text_add(t, data ? "])\n" : "\n");
}

static void add_params(ap_text *t, uint64_t *state, bool data, int b, const sizes *z)
{
    int h = z->h, d = h / z->heads;
    const struct {
        const char *name, *shape;
        int count;
    } all[] = {
        {"g1", "%H", h}, {"b1", "%H", h}, {"wqkv", "%H,3.%A.%D", 3 * h * h}, {"wo", "%A.%D,%H", h * h},
        {"g2", "%H", h}, {"b2", "%H", h}, {"w1", "%H,%F", 4 * h * h},        {"w2", "%F,%H", 4 * h * h},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char name[16], shape[64] = "";
        snprintf(name, sizeof name, "%s_%d", all[i].name, b);
        for (const char *c = all[i].shape; *c; c++) {
            size_t n = strlen(shape);
            if (*c != '%')
                snprintf(shape + n, sizeof shape - n, "%c", *c);
            else {
                c++;
                snprintf(shape + n, sizeof shape - n, "%d",
                         *c == 'H'   ? h
                         : *c == 'A' ? z->heads
                         : *c == 'D' ? d
                                     : 4 * h);
            }
        }
        add_param(t, state, data, name, shape, all[i].count);
    }
}

static void add_norm(ap_text *t, const sizes *z, int b, int i, const char *in)
{
    int s = z->s, h = z->h;
    ap_text_addf(t, "  %%n%d_%d = composite layernorm(%s, @g%d_%d, @b%d_%d) : f32[1,%d,%d] {\n", i, b, in, i, b, i, b,
                 s, h);
    ap_text_addf(t, "    %%nr%d_%d = constant splat %.17g : f32[]\n", i, b, 1.0 / h);
    ap_text_addf(t, "    %%ne%d_%d = constant splat 0.00001 : f32[]\n", i, b);
    ap_text_addf(t, "    %%na%d_%d = reduce sum %s {1sk->1s1} : f32[1,%d,1]\n", i, b, in, s);
    ap_text_addf(t, "    %%nb%d_%d = mul %%na%d_%d, %%nr%d_%d : f32[1,%d,1]\n", i, b, i, b, i, b, s);
    ap_text_addf(t, "    %%nc%d_%d = sub %s, %%nb%d_%d : f32[1,%d,%d]\n", i, b, in, i, b, s, h);
    ap_text_addf(t, "    %%nd%d_%d = mul %%nc%d_%d, %%nc%d_%d : f32[1,%d,%d]\n", i, b, i, b, i, b, s, h);
    ap_text_addf(t, "    %%nf%d_%d = reduce sum %%nd%d_%d {1sk->1s1} : f32[1,%d,1]\n", i, b, i, b, s);
    ap_text_addf(t, "    %%ng%d_%d = mul %%nf%d_%d, %%nr%d_%d : f32[1,%d,1]\n", i, b, i, b, i, b, s);
    ap_text_addf(t, "    %%nh%d_%d = add %%ng%d_%d, %%ne%d_%d : f32[1,%d,1]\n", i, b, i, b, i, b, s);
    ap_text_addf(t, "    %%ni%d_%d = rsqrt %%nh%d_%d : f32[1,%d,1]\n", i, b, i, b, s);
    ap_text_addf(t, "    %%nj%d_%d = mul %%nc%d_%d, %%ni%d_%d : f32[1,%d,%d]\n", i, b, i, b, i, b, s, h);
    ap_text_addf(t, "    %%nk%d_%d = mul %%nj%d_%d, @g%d_%d : f32[1,%d,%d]\n", i, b, i, b, i, b, s, h);
    ap_text_addf(t, "    %%nl%d_%d = add %%nk%d_%d, @b%d_%d : f32[1,%d,%d]\n", i, b, i, b, i, b, s, h);
    ap_text_addf(t, "    yield %%nl%d_%d }\n", i, b);
}

static void add_attention(ap_text *t, const sizes *z, int b)
{
    int s = z->s, a = z->heads, d = z->h / z->heads;
    ap_text_addf(t, "  %%c_%d = contract %%n1_%d, @wqkv_%d {1sk,k(thd)->1s(thd)} : f32[1,%d,3.%d.%d]\n", b, b, b, s, a,
                 d);
    for (int i = 0; i < 3; i++)
        ap_text_addf(t, "  %%%c_%d = slice %%c_%d [-,-,%d:%d.-.-] : f32[1,%d,%d.%d]\n", "qkv"[i], b, b, i, i + 1, s, a,
                     d);
    ap_text_addf(t, "  %%a_%d = composite attention(%%q_%d, %%k_%d, %%v_%d) : f32[1,%d,%d.%d] {\n", b, b, b, b, s, a,
                 d);
    ap_text_addf(t, "    %%as_%d = contract %%q_%d, %%k_%d {1s(hd),1t(hd)->1hst} : f32[1,%d,%d,%d]\n", b, b, b, a, s,
                 s);
    ap_text_addf(t, "    %%am_%d = reduce max %%as_%d {1hst->1hs1} : f32[1,%d,%d,1]\n", b, b, a, s);
    ap_text_addf(t, "    %%ad_%d = sub %%as_%d, %%am_%d : f32[1,%d,%d,%d]\n", b, b, b, a, s, s);
    ap_text_addf(t, "    %%ae_%d = exp %%ad_%d : f32[1,%d,%d,%d]\n", b, b, a, s, s);
    ap_text_addf(t, "    %%az_%d = reduce sum %%ae_%d {1hst->1hs1} : f32[1,%d,%d,1]\n", b, b, a, s);
    ap_text_addf(t, "    %%ap_%d = div %%ae_%d, %%az_%d : f32[1,%d,%d,%d]\n", b, b, b, a, s, s);
    ap_text_addf(t, "    %%au_%d = contract %%ap_%d, %%v_%d {1hst,1t(hd)->1s(hd)} : f32[1,%d,%d.%d]\n", b, b, b, s, a,
                 d);
    ap_text_addf(t, "    yield %%au_%d }\n", b);
    ap_text_addf(t, "  %%o_%d = contract %%a_%d, @wo_%d {1s(hd),(hd)n->1sn} : f32[1,%d,%d]\n", b, b, b, s, z->h);
}

static void add_mlp(ap_text *t, const sizes *z, int b)
{
    int s = z->s, f = 4 * z->h;
    ap_text_addf(t, "  %%u_%d = contract %%n2_%d, @w1_%d {1sk,kf->1sf} : f32[1,%d,%d]\n", b, b, b, s, f);
    ap_text_addf(t, "  %%ge_%d = composite gelu(%%u_%d) : f32[1,%d,%d] {\n", b, b, s, f);
    ap_text_addf(t,
                 "    %%gc_%d = constant splat 0.70710678118654752 : f32[]\n    %%gh_%d = constant splat 0.5 : f32[]\n",
                 b, b);
    ap_text_addf(t, "    %%gx_%d = mul %%u_%d, %%gc_%d : f32[1,%d,%d]\n", b, b, b, s, f);
    ap_text_addf(t, "    %%gy_%d = erf %%gx_%d : f32[1,%d,%d]\n", b, b, s, f);
    ap_text_addf(t, "    %%gz_%d = mul %%u_%d, %%gh_%d : f32[1,%d,%d]\n", b, b, b, s, f);
    ap_text_addf(t, "    %%gw_%d = mul %%gz_%d, %%gy_%d : f32[1,%d,%d]\n", b, b, b, s, f);
    ap_text_addf(t, "    %%gv_%d = add %%gz_%d, %%gw_%d : f32[1,%d,%d]\n    yield %%gv_%d }\n", b, b, b, s, f, b);
    ap_text_addf(t, "  %%d_%d = contract %%ge_%d, @w2_%d {1sf,fn->1sn} : f32[1,%d,%d]\n", b, b, b, s, z->h);
}

/* Pre-norm blocks; `data`: with weights, for evaluation. */
static const char *blocks(ap_ctx *ctx, const sizes *z, int nblocks, bool data)
{
    uint64_t state = 1;
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_add(&t, "state normal\n");
    for (int b = 0; b < nblocks; b++)
        add_params(&t, &state, data, b, z);
    ap_text_addf(&t, "func @main(%%x: f32[1,%d,%d]) -> \"y\" f32[1,%d,%d] {\n", z->s, z->h, z->s, z->h);
    char in[16] = "%x", mid[16];
    for (int b = 0; b < nblocks; b++) {
        add_norm(&t, z, b, 1, in);
        add_attention(&t, z, b);
        ap_text_addf(&t, "  %%r_%d = add %s, %%o_%d : f32[1,%d,%d]\n", b, in, b, z->s, z->h);
        snprintf(mid, sizeof mid, "%%r_%d", b);
        add_norm(&t, z, b, 2, mid);
        add_mlp(&t, z, b);
        ap_text_addf(&t, "  %%y_%d = add %s, %%d_%d : f32[1,%d,%d]\n", b, mid, b, z->s, z->h);
        snprintf(in, sizeof in, "%%y_%d", b);
    }
    ap_text_addf(&t, "  ret %s }\n", in);
    return ap_text_str(&t);
}

static const ap_pin ends_split[] = {{"x", "[-,x,-]", NULL, 1}, {"y", "[-,x,-]", NULL, 2}};

static ap_plan_options options_of(ap_ctx *ctx)
{
    const int32_t devices = 4;
    ap_plan_options opt = {.mesh = mesh_of(ctx, 1, &devices), .npins = 2, .pin = ends_split, .pin_file = "pins"};
    assert_ok(ctx, ap_cluster_from_preset(ctx, "dgx-a100-80gb:1x4", &opt.cluster));
    return opt;
}

static ap_status plan_in(ap_ctx *ctx, const char *text, ap_plan_options opt, int64_t memory, ap_module **m,
                         ap_plan_result *r)
{
    opt.memory = memory;
    *m = module_of(ctx, text);
    ap_status status = ap_pass_plan(ctx, *m, &opt, r);
    ap_arena_reset(&ctx->scratch);
    return status;
}

/* The least memory in which a plan exists, to 1 in 1000. */
static int64_t least_memory(ap_ctx *ctx, const char *text, const ap_plan_options *opt, int64_t enough)
{
    int64_t lo = 0, hi = enough;
    while (hi - lo > hi / 1000) {
        int64_t mid = lo + (hi - lo) / 2;
        ap_module *m;
        ap_plan_result r;
        ap_status status = plan_in(ctx, text, *opt, mid, &m, &r);
        assert_true(status == AP_OK || status == AP_ERR_NO_PLAN);
        if (status == AP_OK)
            hi = r.peak_bytes;
        else
            lo = mid;
    }
    ctx->diags.len = 0;
    return hi;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, what)); s += strlen(what))
        n++;
    return n;
}

static void assert_has(const char *text, const char *line)
{
    if (!strstr(text, line))
        print_error("missing: %s\nin\n%s\n", line, text);
    assert_non_null(strstr(text, line));
}

/* Column then row, heads split through the fused QKV, sequence-split norms, 2 + 2 collectives a block. */
static void assert_megatron(ap_ctx *ctx, const sizes *z, int nblocks, ap_module *m, const ap_cluster *c)
{
    int s = z->s, h = z->h, a = z->heads, d = h / a;
    char line[160];
    const char *planned = text_of(ctx, m);
    for (int b = 0; b < nblocks; b++) {
        snprintf(line, sizeof line, "param @wqkv_%d : f32[%d,3.%d.%d] @m[-,-.x.-]", b, h, a, d);
        assert_has(planned, line);
        snprintf(line, sizeof line, "param @wo_%d : f32[%d.%d,%d] @m[x.-,-]", b, a, d, h);
        assert_has(planned, line);
        snprintf(line, sizeof line, "param @w1_%d : f32[%d,%d] @m[-,x]", b, h, 4 * h);
        assert_has(planned, line);
        snprintf(line, sizeof line, "param @w2_%d : f32[%d,%d] @m[x,-]", b, 4 * h, h);
        assert_has(planned, line);
        for (int i = 1; i <= 2; i++) {
            snprintf(line, sizeof line, "@g%d_%d, @b%d_%d) : f32[1,%d,%d] @m[-,x,-]", i, b, i, b, s, h);
            assert_has(planned, line);
        }
        snprintf(line, sizeof line, "%%q_%d, %%k_%d, %%v_%d) : f32[1,%d,%d.%d] @m[-,-,x.-]", b, b, b, s, a, d);
        assert_has(planned, line);
    }
    assert_ok(ctx, ap_explicit_run(ctx, m, c));
    assert_verifies(ctx, m);
    const char *explicit = text_of(ctx, m);
    assert_int_equal(count(explicit, "= all_gather"), 2 * nblocks);
    assert_int_equal(count(explicit, "= reduce_scatter"), 2 * nblocks);
    assert_int_equal(count(explicit, "= all_reduce") + count(explicit, "= all_to_all") + count(explicit, "= mask"), 0);
}

static void check_sizes(sizes z)
{
    ap_ctx *ctx = ap_ctx_create();
    const char *text = blocks(ctx, &z, 2, false);
    ap_plan_options opt = options_of(ctx);
    ap_module *m;
    ap_plan_result loose, tight;
    assert_ok(ctx, plan_in(ctx, text, opt, 0, &m, &loose));
    assert_verifies(ctx, m);
    int64_t least = least_memory(ctx, text, &opt, loose.peak_bytes);
    assert_ok(ctx, plan_in(ctx, text, opt, least + least / 20, &m, &tight));
    assert_verifies(ctx, m);
    print_message("s %d h %d: loose %lld us in %lld bytes, least %lld bytes, tight %lld us in %lld bytes (%s)\n", z.s,
                  z.h, (long long)loose.cost_ps / 1000000, (long long)loose.peak_bytes, (long long)least,
                  (long long)tight.cost_ps / 1000000, (long long)tight.peak_bytes, tight.proof);
    assert_int_equal(tight.bound_ps, tight.cost_ps);
    assert_true(loose.cost_ps <= tight.cost_ps);
    assert_true(tight.sharded_flops_fraction == 1.0);
    assert_megatron(ctx, &z, 2, m, &opt.cluster);
    ap_ctx_release(ctx);
}

static void megatron_when_memory_is_tight(void **unused)
{
    (void)unused;
    check_sizes((sizes){1024, 1024, 16});
    check_sizes((sizes){1024, 2048, 16});
    check_sizes((sizes){2048, 2048, 32});
}

/* Both plans at a size that can be evaluated: no latency, so that proportions are those of the large ones. */
static void both_plans_give_the_same_numbers(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    sizes z = {16, 16, 4};
    const char *text = blocks(ctx, &z, 2, true);
    ap_plan_options opt = options_of(ctx);
    opt.cluster.inside.latency_ps = 1;
    opt.cluster.launch_ps = 1;
    ap_module *m = module_of(ctx, text);
    assert_verifies(ctx, m);
    uint64_t state = 2;
    ap_tensor *in = draw_inputs(ctx, m, &state), *expected = outputs_of(ctx, m, in);
    ap_plan_result loose, tight;
    assert_ok(ctx, plan_in(ctx, text, opt, 0, &m, &loose));
    assert_verifies(ctx, m);
    assert_same(1, expected, outputs_of(ctx, m, in), 1e-5);
    int64_t least = least_memory(ctx, text, &opt, loose.peak_bytes);
    assert_ok(ctx, plan_in(ctx, text, opt, least + least / 20, &m, &tight));
    assert_true(loose.cost_ps <= tight.cost_ps);
    assert_verifies(ctx, m);
    assert_same(1, expected, outputs_of(ctx, m, in), 1e-5);
    assert_megatron(ctx, &z, 2, m, &opt.cluster);
    assert_same(1, expected, outputs_of(ctx, m, in), 1e-5);
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatron_when_memory_is_tight),
        cmocka_unit_test(both_plans_give_the_same_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
