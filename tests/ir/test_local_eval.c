/* The interpreter of local programs on programs built by hand: every kind of scalar step, matrix products that
 * accumulate, the four exchanges against their formulas, parameters as boxes, conditions, and what it refuses. */
#include "ir/local.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct prog {
    ap_ctx *ctx;
    ap_module *m;
    ap_local *p;
} prog;

static prog make(int naxes, int32_t a, int32_t b)
{
    prog g;
    g.ctx = ap_ctx_create();
    g.m = ap_module_create(g.ctx);
    g.p = AP_NEW(&g.ctx->arena, ap_local);
    g.p->ctx = g.ctx;
    g.p->m = g.m;
    g.p->nranks = a * b;
    g.p->naxes = (uint8_t)naxes;
    g.p->axis_size[0] = a, g.p->axis_size[1] = b;
    g.p->axis_stride[0] = b, g.p->axis_stride[1] = 1;
    return g;
}

static ap_port port(prog *g, const char *name, ap_dtype t, int rank, int64_t d0, int64_t d1)
{
    return (ap_port){.name = ap_name_make(g->ctx, name), .dtype = t, .rank = (uint8_t)rank, .dim = {d0, d1}};
}

static ap_tensor tensor(prog *g, const ap_port *p)
{
    ap_tensor t;
    assert_true(
        ap_tensor_make(&g->ctx->arena, p->dtype, ap_shape_get(g->ctx, ap_shape_of_dims(g->ctx, p->rank, p->dim)), &t));
    return t;
}

static ap_tensor numbers(prog *g, const ap_port *p, double scale)
{
    ap_tensor t = tensor(g, p);
    for (int64_t i = 0; i < t.count; i++) {
        if (ap_dtype_is_float(p->dtype))
            t.at[i].f = scale * (double)((i * 37 + 11) % 23 - 9);
        else
            t.at[i].i = (i * 37 + 11) % 23 - 9;
    }
    return t;
}

/* A nest over `loops` with the given operands and sops; returns its number. */
static uint32_t nest(prog *g, ap_nest n, uint32_t noperands, const ap_kernel_operand *operand, uint32_t nsops,
                     const ap_sop *sop, uint32_t nints)
{
    ap_kernel k = {.name = ap_name_format(g->ctx, "k%u", g->p->kernels.len), .kind = AP_KERNEL_NEST};
    k.noperands = noperands;
    k.operand = ap_arena_memdup(&g->ctx->arena, operand, noperands * sizeof *operand);
    k.nints = nints;
    k.nest = n;
    k.nest.nsops = nsops;
    k.nest.sop = ap_arena_memdup(&g->ctx->arena, sop, nsops * sizeof *sop);
    for (uint32_t i = 0; i < nsops; i++)
        k.nest.nsections = (uint8_t)(sop[i].section + 1);
    ap_vec_push(&g->ctx->arena, &g->p->kernels, k);
    return g->p->kernels.len - 1;
}

static ap_instr *call(prog *g, uint32_t kernel, uint32_t nrefs, const ap_ref *ref, uint32_t nints,
                      const ap_affine *ints)
{
    ap_instr i = {.kind = AP_INSTR_CALL, .kernel = kernel, .nrefs = nrefs, .nints = nints};
    i.loc = ap_loc_make(g->ctx, 0, ap_name_make(g->ctx, "node"), 0);
    i.ref = ap_arena_memdup(&g->ctx->arena, ref, nrefs * sizeof *ref);
    i.ints = AP_NEW_ARRAY(&g->ctx->arena, ap_int, nints);
    for (uint32_t k = 0; k < nints; k++)
        i.ints[k] = ap_int_plain(&ints[k]);
    ap_vec_push(&g->ctx->arena, &g->p->instrs, i);
    return &g->p->instrs.at[g->p->instrs.len - 1];
}

static void run(prog *g, const ap_tensor *in, ap_tensor *out)
{
    ap_status s = ap_local_eval(g->p, &g->ctx->arena, in, out);
    for (uint32_t i = 0; i < g->ctx->diags.len; i++)
        print_error("%s\n", ap_diag_str(g->ctx, &g->ctx->diags.at[i]));
    assert_int_equal(s, AP_OK);
}

static void expect_fail(prog *g, const ap_tensor *in, ap_status want, const char *message)
{
    ap_tensor out[2];
    assert_int_equal(ap_local_eval(g->p, &g->ctx->arena, in, out), want);
    const char *text = ap_diag_str(g->ctx, &g->ctx->diags.at[g->ctx->diags.len - 1]);
    if (!strstr(text, message))
        fail_msg("\"%s\" does not contain \"%s\"", text, message);
}

/* Softmax of [4,5] by rows, rows split over two ranks; the exponentials stay in a row temporary. */
static void test_softmax(void **state)
{
    (void)state;
    enum { R = 4, C = 5 };
    prog g = make(1, 2, 1);
    ap_port x = port(&g, "x", AP_F32, 2, R, C), y = port(&g, "y", AP_F32, 2, R, C);
    ap_vec_push(&g.ctx->arena, &g.p->inputs, x);
    ap_vec_push(&g.ctx->arena, &g.p->outputs, y);
    const ap_sop sop[] = {
        {.kind = AP_SOP_LOAD, .dtype = AP_F32, .section = 0, .operand = 0},
        {.kind = AP_SOP_REDUCE, .dtype = AP_F32, .section = 0, .reduce = AP_REDUCE_MAX, .arg = {0}},
        {.kind = AP_SOP_LOAD, .dtype = AP_F32, .section = 1, .operand = 0},
        {.kind = AP_SOP_POINTWISE, .dtype = AP_F32, .section = 1, .pw = AP_PW_SUB, .arg = {2, 1}},
        {.kind = AP_SOP_POINTWISE, .dtype = AP_F32, .section = 1, .pw = AP_PW_EXP, .arg = {3}},
        {.kind = AP_SOP_TEMP_STORE, .dtype = AP_F32, .section = 1, .arg = {4}, .imm.i = 0},
        {.kind = AP_SOP_REDUCE, .dtype = AP_F32, .section = 1, .reduce = AP_REDUCE_SUM, .arg = {4}},
        {.kind = AP_SOP_CONST, .dtype = AP_F32, .section = 2, .imm.f = 1},
        {.kind = AP_SOP_POINTWISE, .dtype = AP_F32, .section = 2, .pw = AP_PW_DIV, .arg = {7, 6}},
        {.kind = AP_SOP_TEMP_LOAD, .dtype = AP_F32, .section = 3, .imm.i = 0},
        {.kind = AP_SOP_POINTWISE, .dtype = AP_F32, .section = 3, .pw = AP_PW_MUL, .arg = {9, 8}},
        {.kind = AP_SOP_STORE, .dtype = AP_F32, .section = 3, .operand = 1, .arg = {10}},
    };
    ap_nest n = {.nouter = 1,
                 .ninner = 1,
                 .extent = {R / 2, C},
                 .inner = {true, true, false, true},
                 .ntemps = 1,
                 .temp_dtype = {AP_F32}};
    ap_kernel_operand operand[] = {{.dtype = AP_F32, .stride = {C, 1}},
                                   {.dtype = AP_F32, .written = true, .stride = {C, 1}}};
    uint32_t k = nest(&g, n, 2, operand, sizeof sop / sizeof *sop, sop, 0);
    ap_ref ref[] = {{.space = AP_SPACE_INPUT, .offset.step = {R / 2 * C}},
                    {.space = AP_SPACE_OUTPUT, .offset.step = {R / 2 * C}}};
    call(&g, k, 2, ref, 0, NULL);
    ap_tensor in = numbers(&g, &x, 0.25), out;
    run(&g, &in, &out);
    for (int i = 0; i < R; i++) {
        double max = -INFINITY, sum = 0;
        for (int j = 0; j < C; j++)
            max = fmax(max, in.at[i * C + j].f);
        for (int j = 0; j < C; j++)
            sum += exp(in.at[i * C + j].f - max);
        for (int j = 0; j < C; j++)
            assert_true(fabs(out.at[i * C + j].f - exp(in.at[i * C + j].f - max) / sum) < 1e-6);
    }
    ap_ctx_release(g.ctx);
}

/* Arguments of extremes, loop indices with an offset of the rank, a column sum through strides. */
static void test_argmax_and_index(void **state)
{
    (void)state;
    enum { R = 2, C = 6 };
    prog g = make(1, 2, 1);
    ap_port x = port(&g, "x", AP_F32, 2, R, C), best = port(&g, "best", AP_I64, 1, R, 0),
            at = port(&g, "at", AP_I64, 2, R, C);
    ap_vec_push(&g.ctx->arena, &g.p->inputs, x);
    ap_vec_push(&g.ctx->arena, &g.p->outputs, best);
    ap_vec_push(&g.ctx->arena, &g.p->outputs, at);
    const ap_sop sop[] = {
        {.kind = AP_SOP_LOAD, .dtype = AP_F32, .operand = 0},
        {.kind = AP_SOP_REDUCE, .dtype = AP_I64, .reduce = AP_REDUCE_ARGMAX, .arg = {0}},
        {.kind = AP_SOP_INDEX, .dtype = AP_I64, .loop_stride = {100, 1}, .imm.i = 0},
        {.kind = AP_SOP_STORE, .dtype = AP_I64, .operand = 2, .arg = {2}},
        {.kind = AP_SOP_STORE, .dtype = AP_I64, .section = 1, .operand = 1, .arg = {1}},
    };
    ap_nest n = {.nouter = 1, .ninner = 1, .extent = {1, C}, .inner = {true, false}};
    ap_kernel_operand operand[] = {{.dtype = AP_F32, .stride = {C, 1}},
                                   {.dtype = AP_I64, .written = true, .stride = {1, 99}},
                                   {.dtype = AP_I64, .written = true, .stride = {C, 1}}};
    uint32_t k = nest(&g, n, 3, operand, sizeof sop / sizeof *sop, sop, 1);
    ap_ref ref[] = {{.space = AP_SPACE_INPUT, .offset.step = {C}},
                    {.space = AP_SPACE_OUTPUT, .offset.step = {1}},
                    {.space = AP_SPACE_OUTPUT, .index = 1, .offset.step = {C}}};
    call(&g, k, 3, ref, 1, &(ap_affine){.base = 7, .step = {1000}});
    ap_tensor in = tensor(&g, &x), out[2];
    const double v[] = {1, 9, 3, 9, 2, 0, -1, NAN, 5, NAN, -3, -2};
    for (int i = 0; i < R * C; i++)
        in.at[i].f = v[i];
    run(&g, &in, out);
    assert_int_equal(out[0].at[0].i, 1);
    assert_int_equal(out[0].at[1].i, 1);
    for (int i = 0; i < R * C; i++)
        assert_int_equal(out[1].at[i].i, 7 + i / C * 1000 + i % C);
    ap_ctx_release(g.ctx);
}

/* C[2,3] = sum over a loop of two and k of A[2,2*4] B[2*4,3]; the second operand read transposed. */
static void test_gemm(void **state)
{
    (void)state;
    enum { M = 2, N = 3, L = 2, K = 4 };
    prog g = make(1, 1, 1);
    ap_port a = port(&g, "a", AP_F32, 2, M, L * K), b = port(&g, "b", AP_F32, 2, N, L * K),
            c = port(&g, "c", AP_F32, 2, M, N);
    ap_vec_push(&g.ctx->arena, &g.p->inputs, a);
    ap_vec_push(&g.ctx->arena, &g.p->inputs, b);
    ap_vec_push(&g.ctx->arena, &g.p->outputs, c);
    ap_kernel_operand operand[] = {{.dtype = AP_F32}, {.dtype = AP_F32}, {.dtype = AP_F32, .written = true}};
    ap_kernel k = {.name = ap_name_make(g.ctx, "gemm"), .kind = AP_KERNEL_GEMM, .noperands = 3, .operand = operand};
    k.gemm = (ap_gemm){.dtype = AP_F32,
                       .nloops = 1,
                       .extent = {L},
                       .stride_a = {K},
                       .stride_b = {K},
                       .sum = {true},
                       .m = M,
                       .n = N,
                       .k = K,
                       .rsa = L * K,
                       .csa = 1,
                       .rsb = 1,
                       .csb = L * K,
                       .rsc = N,
                       .csc = 1};
    ap_vec_push(&g.ctx->arena, &g.p->kernels, k);
    ap_ref ref[] = {{.space = AP_SPACE_INPUT}, {.space = AP_SPACE_INPUT, .index = 1}, {.space = AP_SPACE_OUTPUT}};
    call(&g, 0, 3, ref, 0, NULL);
    ap_tensor in[2] = {numbers(&g, &a, 0.5), numbers(&g, &b, 2)}, out;
    run(&g, in, &out);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int p = 0; p < L * K; p++)
                sum += in[0].at[i * L * K + p].f * in[1].at[j * L * K + p].f;
            assert_true(out.at[i * N + j].f == sum);
        }
    g.p->instrs.at[0].ref[1].offset.base = 1; /* one element too far */
    expect_fail(&g, in, AP_ERR_BUG, "leaves its buffer");
    ap_ctx_release(g.ctx);
}

/* Copies n elements of an f32 input to the arena, or back to the output. */
static void copy(prog *g, ap_ref from, ap_ref to, int64_t n)
{
    const ap_sop sop[] = {{.kind = AP_SOP_LOAD, .dtype = AP_F32, .operand = 0},
                          {.kind = AP_SOP_STORE, .dtype = AP_F32, .operand = 1, .arg = {0}}};
    ap_kernel_operand operand[] = {{.dtype = AP_F32, .stride = {1}}, {.dtype = AP_F32, .written = true, .stride = {1}}};
    ap_nest l = {.nouter = 0, .ninner = 1, .extent = {n}, .inner = {true}};
    uint32_t k = nest(g, l, 2, operand, 2, sop, 0);
    call(g, k, 2, (ap_ref[]){from, to}, 0, NULL);
}

/* Four ranks of a mesh 2x2, groups along either axis; each rank holds N numbers of its own. */
static void check_exchange(ap_exchange_kind kind, ap_partial fold, int axis)
{
    enum { N = 6 };
    prog g = make(2, 2, 2);
    bool gathers = kind == AP_EXCHANGE_ALL_GATHER, scatters = kind == AP_EXCHANGE_REDUCE_SCATTER;
    bool moves = kind == AP_EXCHANGE_ALL_TO_ALL;
    int64_t nout = gathers ? 2 * N : scatters ? N / 2 : N, box = scatters || moves ? N / 2 : N;
    ap_port x = port(&g, "x", AP_F32, 2, 4, N), y = port(&g, "y", AP_F32, 2, 4, nout);
    ap_vec_push(&g.ctx->arena, &g.p->inputs, x);
    ap_vec_push(&g.ctx->arena, &g.p->outputs, y);
    g.p->arena_bytes = 256;
    static int32_t along[2][4] = {{0, 2, 1, 3}, {0, 1, 2, 3}};
    ap_group group = {.count = 2, .size = 2, .rank = along[axis]};
    ap_vec_push(&g.ctx->arena, &g.p->groups, group);
    ap_ref src = {.space = AP_SPACE_ARENA}, dst = {.space = AP_SPACE_ARENA, .byte_offset = 128};
    copy(&g, (ap_ref){.space = AP_SPACE_INPUT, .offset.step = {2 * N, N}}, src, N);
    /* the box as two dimensions, so that strides count: [box/3][3] */
    ap_instr i = {.kind = AP_INSTR_EXCHANGE, .nrefs = 2, .ref = (ap_ref[]){src, dst}};
    i.exchange = (ap_exchange){.kind = kind,
                               .fold = fold,
                               .dtype = AP_F32,
                               .ndims = 2,
                               .extent = {box / 3, 3},
                               .src_stride = {3, 1},
                               .dst_stride = {3, 1}};
    i.exchange.src_me = scatters || moves ? box : 0;
    i.exchange.dst_peer = gathers || moves ? box : 0;
    ap_vec_push(&g.ctx->arena, &g.p->instrs, i);
    copy(&g, dst, (ap_ref){.space = AP_SPACE_OUTPUT, .offset.step = {2 * nout, nout}}, nout);
    ap_tensor in = numbers(&g, &x, 0.5), out;
    run(&g, &in, &out);
    for (int rank = 0; rank < 4; rank++) {
        int me = axis == 0 ? rank / 2 : rank % 2;
        int peer[2] = {axis == 0 ? rank % 2 : rank / 2 * 2, axis == 0 ? 2 + rank % 2 : rank / 2 * 2 + 1};
        for (int e = 0; e < nout; e++) {
            double a, b, want = 0;
            switch (kind) {
            case AP_EXCHANGE_ALL_GATHER:
                want = in.at[peer[e / N] * N + e % N].f;
                break;
            case AP_EXCHANGE_ALL_TO_ALL:
                want = in.at[peer[e / box] * N + me * box + e % box].f;
                break;
            default:
                a = in.at[peer[0] * N + (scatters ? me * box : 0) + e].f;
                b = in.at[peer[1] * N + (scatters ? me * box : 0) + e].f;
                want = fold == AP_PARTIAL_SUM ? a + b : fold == AP_PARTIAL_MAX ? fmax(a, b) : fmin(a, b);
            }
            assert_true(out.at[rank * nout + e].f == want);
        }
    }
    ap_ctx_release(g.ctx);
}

static void test_exchanges(void **state)
{
    (void)state;
    for (int axis = 0; axis < 2; axis++) {
        check_exchange(AP_EXCHANGE_ALL_GATHER, AP_PARTIAL_SUM, axis);
        check_exchange(AP_EXCHANGE_ALL_TO_ALL, AP_PARTIAL_SUM, axis);
        for (int fold = 0; fold < AP_PARTIAL_COUNT; fold++) {
            check_exchange(AP_EXCHANGE_REDUCE_SCATTER, (ap_partial)fold, axis);
            check_exchange(AP_EXCHANGE_ALL_REDUCE, (ap_partial)fold, axis);
        }
    }
}

/* A weight [4, 3.2] whose factor 3 lies whole and whose factor 2 is split over two ranks, and a splat. */
static void test_params_and_conditions(void **state)
{
    (void)state;
    prog g = make(1, 2, 1);
    float w[4 * 6], two = 2;
    for (int i = 0; i < 24; i++)
        w[i] = (float)i;
    ap_port y = port(&g, "y", AP_F32, 2, 2, 12), z = port(&g, "z", AP_F32, 2, 2, 2);
    ap_vec_push(&g.ctx->arena, &g.p->outputs, y);
    ap_vec_push(&g.ctx->arena, &g.p->outputs, z);
    ap_local_param box = {
        .port = port(&g, "w", AP_F32, 2, 4, 6), .nfactors = 3, .extent = {4, 3, 1}, .stride = {6, 2, 1}};
    box.data = (ap_data){.kind = AP_DATA_INLINE, .dtype = AP_F32, .bytes = w, .size = sizeof w};
    box.offset.step[0] = 1;
    box.bytes = 48;
    ap_local_param splat = {.port = port(&g, "s", AP_F32, 1, 2, 0), .nfactors = 1, .extent = {2}, .stride = {1}};
    splat.data = (ap_data){.kind = AP_DATA_SPLAT, .dtype = AP_F32, .bytes = &two, .size = 4};
    splat.byte_offset = 64;
    splat.bytes = 8;
    ap_vec_push(&g.ctx->arena, &g.p->params, box);
    ap_vec_push(&g.ctx->arena, &g.p->params, splat);
    g.p->param_bytes = 128;
    copy(&g, (ap_ref){.space = AP_SPACE_PARAM}, (ap_ref){.space = AP_SPACE_OUTPUT, .offset.step = {12}}, 12);
    /* rank 0 stores the splat, the others the first two weights */
    copy(&g, (ap_ref){.space = AP_SPACE_PARAM, .index = 1},
         (ap_ref){.space = AP_SPACE_OUTPUT, .index = 1, .offset.step = {2}}, 2);
    copy(&g, (ap_ref){.space = AP_SPACE_PARAM}, (ap_ref){.space = AP_SPACE_OUTPUT, .index = 1, .offset.step = {2}}, 2);
    g.p->instrs.at[1].when = AP_WHEN_ZERO, g.p->instrs.at[1].when_mask = 1;
    g.p->instrs.at[2].when = AP_WHEN_NOT_ZERO, g.p->instrs.at[2].when_mask = 1;
    ap_tensor out[2];
    run(&g, NULL, out);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 12; i++)
            assert_true(out[0].at[r * 12 + i].f == i / 3 * 6 + i % 3 * 2 + r);
    assert_true(out[1].at[0].f == 2 && out[1].at[1].f == 2 && out[1].at[2].f == 1 && out[1].at[3].f == 3);
    g.p->params.at[0].offset.step[0] = 2; /* rank 1 would read beyond the end */
    expect_fail(&g, NULL, AP_ERR_BUG, "a parameter's part leaves its buffer");
    ap_ctx_release(g.ctx);
}

/* Rows of a table split over two ranks; each gives 0 for rows that the other has. */
static void test_gather(void **state)
{
    (void)state;
    enum { V = 4, H = 2, I = 3 };
    prog g = make(1, 2, 1);
    ap_port w = port(&g, "w", AP_F32, 2, V, H), ids = port(&g, "ids", AP_I64, 1, I, 0),
            y = port(&g, "y", AP_F32, 2, 2, I * H);
    ap_vec_push(&g.ctx->arena, &g.p->inputs, w);
    ap_vec_push(&g.ctx->arena, &g.p->inputs, ids);
    ap_vec_push(&g.ctx->arena, &g.p->outputs, y);
    const ap_sop sop[] = {
        {.kind = AP_SOP_LOAD, .dtype = AP_I64, .operand = 1},
        {.kind = AP_SOP_GATHER, .dtype = AP_F32, .operand = 0, .arg = {0}, .stride = H, .extent = V / 2, .limit = V},
        {.kind = AP_SOP_STORE, .dtype = AP_F32, .operand = 2, .arg = {1}},
    };
    ap_nest n = {.nouter = 0, .ninner = 2, .extent = {I, H}, .inner = {true}};
    ap_kernel_operand operand[] = {{.dtype = AP_F32, .stride = {0, 1}},
                                   {.dtype = AP_I64, .stride = {1, 0}},
                                   {.dtype = AP_F32, .written = true, .stride = {H, 1}}};
    uint32_t k = nest(&g, n, 3, operand, 3, sop, 1);
    ap_ref ref[] = {{.space = AP_SPACE_INPUT, .offset.step = {V / 2 * H}},
                    {.space = AP_SPACE_INPUT, .index = 1},
                    {.space = AP_SPACE_OUTPUT, .offset.step = {I * H}}};
    call(&g, k, 3, ref, 1, &(ap_affine){.step = {V / 2}});
    ap_tensor in[2] = {tensor(&g, &w), tensor(&g, &ids)}, out;
    for (int i = 0; i < V * H; i++)
        in[0].at[i].f = 1 + i;
    in[1].at[0].i = 3, in[1].at[1].i = 0, in[1].at[2].i = 2;
    run(&g, in, &out);
    const double want[] = {0, 0, 1, 2, 0, 0, 7, 8, 0, 0, 5, 6};
    for (int i = 0; i < 12; i++)
        assert_true(out.at[i].f == want[i]);
    in[1].at[1].i = 4;
    expect_fail(&g, in, AP_ERR_MODEL, "node \"node\": index 4 is outside [0, 4)");
    in[1].at[1].i = -1;
    expect_fail(&g, in, AP_ERR_MODEL, "index -1 is outside [0, 4)");
    ap_ctx_release(g.ctx);
}

static void test_refuses(void **state)
{
    (void)state;
    prog g = make(1, 2, 1);
    ap_port x = port(&g, "x", AP_F32, 2, 1, 4);
    ap_vec_push(&g.ctx->arena, &g.p->inputs, x);
    ap_vec_push(&g.ctx->arena, &g.p->outputs, x);
    g.p->arena_bytes = 16;
    copy(&g, (ap_ref){.space = AP_SPACE_INPUT}, (ap_ref){.space = AP_SPACE_ARENA, .byte_offset = 4}, 4);
    ap_tensor in = numbers(&g, &x, 1), wrong = in;
    expect_fail(&g, &in, AP_ERR_BUG, "k0 leaves its buffer");
    g.p->instrs.at[0].ref[1].byte_offset = -4;
    expect_fail(&g, &in, AP_ERR_BUG, "k0 leaves its buffer");
    g.p->instrs.at[0].ref[1] = (ap_ref){.space = AP_SPACE_PARAM};
    expect_fail(&g, &in, AP_ERR_BUG, "a place that does not exist");
    wrong.dtype = AP_F64;
    expect_fail(&g, &wrong, AP_ERR_MODEL, "input \"x\"");
    ap_ctx_release(g.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax), cmocka_unit_test(test_argmax_and_index),
        cmocka_unit_test(test_gemm),    cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_gather),  cmocka_unit_test(test_params_and_conditions),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
