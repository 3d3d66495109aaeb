/* The text form of local programs: records made by hand, messages for malformed input, round trips of random
 * edits, and one wrong edit for each rule of the verifier. */
#include "text_util.h"

#include "ir/local.h"

static const char *print_local(const ap_local *p)
{
    ap_text t;
    ap_text_init(&t, &p->ctx->arena);
    ap_local_print(p, &t);
    return ap_text_str(&t);
}

static bool check_local(const char *text, size_t size)
{
    ap_ctx *ctx = ap_ctx_create();
    ap_local *p, *again;
    bool ok = ap_local_parse(ctx, "fuzz", text, size, &p) == AP_OK;
    if (ok) {
        const char *first = print_local(p);
        ap_local_verify(p);
        if (ap_local_parse(ctx, "again", first, strlen(first), &again) != AP_OK)
            fail_msg("%s\n%s", messages(ctx), first);
        assert_string_equal(print_local(again), first);
    } else {
        assert_int_equal(ctx->diags.len, 1);
        assert_true(strncmp(messages(ctx), "fuzz:", 5) == 0);
    }
    ap_ctx_release(ctx);
    return ok;
}

static void test_local_mutations(void **state)
{
    (void)state;
    mutations_of("local.ap", 12000, 0x2545f4914f6cdd1du, check_local);
}

static void test_local_noise(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    char text[256];
    for (int i = 0; i < 3000; i++)
        check_local(text, make_noise(&seed, i % 2, text, sizeof text));
}

static ap_local *parse_local(ap_ctx *ctx, const char *text)
{
    ap_local *p = NULL;
    if (ap_local_parse(ctx, "test.ap", text, strlen(text), &p) != AP_OK)
        fail_msg("%s", messages(ctx));
    return p;
}

static void test_local_read(void **state)
{
    (void)state;
    size_t size;
    char *text = read_file("local.ap", &size);
    ap_ctx *ctx = ap_ctx_create();
    ap_local *p = parse_local(ctx, text);
    if (ap_local_verify(p) != AP_OK)
        fail_msg("%s", messages(ctx));
    assert_int_equal(p->nranks, 4);
    assert_int_equal(p->axis_stride[0], 2);
    assert_int_equal(p->params.at[0].offset.step[1], 512);
    assert_int_equal(p->params.at[2].data.size, 24);
    assert_int_equal(p->groups.at[1].rank[2], 1);
    const ap_nest *n = &p->kernels.at[1].nest;
    assert_int_equal(n->nsections, 4);
    assert_true(n->inner[0] && !n->inner[1] && n->inner[2]);
    assert_int_equal(n->sop[1].reduce, AP_REDUCE_MAX);
    assert_int_equal(n->sop[2].loop_stride[1], 1);
    assert_int_equal(n->sop[2].imm.i, 0);
    assert_true(n->sop[6].imm.f == -1.5);
    assert_int_equal(n->sop[7].imm.i, 7);
    assert_int_equal(n->sop[10].arg[1], 8);
    assert_int_equal(n->sop[17].imm.i, -1);
    assert_true(p->kernels.at[2].gemm.sum[0]);
    const ap_instr *in = &p->instrs.at[2];
    assert_int_equal(in->when, AP_WHEN_NOT_ZERO);
    assert_int_equal(in->when_mask, 3);
    assert_int_equal(in->ints[0].value.base, 3);
    assert_int_equal(in->ints[0].value.step[0], -2);
    assert_int_equal(p->instrs.at[1].picoseconds, 3000);
    assert_int_equal(p->instrs.at[7].exchange.dst_peer, 16);
    assert_int_equal(p->instrs.at[8].ref[1].offset.step[1], 64);
    ap_ctx_release(ctx);
    free(text);
}

/* A record made by hand, printed as it should read. */
static void test_local_print(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_local *p = AP_NEW(&ctx->arena, ap_local);
    *p = (ap_local){.ctx = ctx, .name = ap_name_make(ctx, "p"), .nranks = 2, .naxes = 1, .arena_bytes = 64};
    p->axis_name[0] = ap_name_make(ctx, "tp");
    p->axis_size[0] = 2;
    p->axis_stride[0] = 1;
    ap_vec_push(&ctx->arena, &p->inputs,
                (ap_port){.name = ap_name_make(ctx, "x"), .dtype = AP_F32, .rank = 1, .dim = {8}});
    ap_vec_push(&ctx->arena, &p->outputs,
                (ap_port){.name = ap_name_make(ctx, "y:0"), .dtype = AP_F32, .rank = 1, .dim = {8}});
    ap_kernel_operand operands[2] = {{.dtype = AP_F32, .stride = {1}},
                                     {.dtype = AP_F32, .written = true, .stride = {1}}};
    ap_sop sops[3] = {{.kind = AP_SOP_LOAD, .dtype = AP_F32},
                      {.kind = AP_SOP_POINTWISE, .dtype = AP_F32, .pw = AP_PW_EXP},
                      {.kind = AP_SOP_STORE, .dtype = AP_F32, .operand = 1, .arg = {1}}};
    ap_kernel k = {.name = ap_name_make(ctx, "exp"), .noperands = 2, .operand = operands};
    k.nest = (ap_nest){.nouter = 1, .extent = {4}, .nsections = 1, .nsops = 3, .sop = sops};
    ap_vec_push(&ctx->arena, &p->kernels, k);
    ap_ref refs[2] = {{.space = AP_SPACE_INPUT, .offset = {.step = {4}}},
                      {.space = AP_SPACE_OUTPUT, .offset = {.base = 0, .step = {4}}}};
    ap_vec_push(&ctx->arena, &p->instrs, (ap_instr){.nrefs = 2, .ref = refs, .picoseconds = 7});
    if (ap_local_verify(p) != AP_OK)
        fail_msg("%s", messages(ctx));
    assert_string_equal(print_local(p), "local @p ranks 2 axes [tp=2 stride 1] arena 64 params 0\n"
                                        "input \"x\" f32[8]\n"
                                        "output \"y:0\" f32[8]\n"
                                        "kernel nest @exp {\n"
                                        "  read f32 [1]\n"
                                        "  write f32 [1]\n"
                                        "  outer [4] inner []\n"
                                        "  row:\n"
                                        "    %0 = load 0 : f32\n"
                                        "    %1 = exp %0 : f32\n"
                                        "    store 1, %1 : f32\n"
                                        "}\n"
                                        "call @exp(input(0)+4*tp, output(0)+4*tp) ps 7\n");
    refs[1].offset.base = 1; /* the second rank would write one element too far */
    assert_int_equal(ap_local_verify(p), AP_ERR_MODEL);
    expect_message(ctx, "call @exp: operand 1 leaves the output on rank 1: bytes 20 to 36 of 32");
    ap_ctx_release(ctx);
}

/* One edit of the good program each, and what the verifier says. */
static const struct {
    const char *from, *to, *error;
} local_edits[] = {
    {"ranks 4 axes", "ranks 8 axes", "program: the axes make 4 ranks, not 8"},
    {"arena 4096", "arena 2300", "all_to_all: operand 1 leaves the arena"},
    {"params 4352", "params 3000", "param 1: it lies at byte 2048"},
    {"from 512*tp", "from 513*tp", "param 0: its box leaves the tensor on rank 1"},
    {"from 512*tp", "from 512*tp-1", "param 0: its box leaves the tensor on rank 0"},
    {"bytes 2048", "bytes 2052", "param 0: its box is not of 2052 bytes"},
    {"at 2048", "at 2050", "param 1: it lies at byte 2050, which is no multiple of 64"},
    {"at 2048", "at 1984", "param 1: it overlaps param 0"},
    {"128, 4096)", "128, 4095)", "param 0: it has 4095 bytes of data, its shape needs 4096"},
    {"[0,1] [2,3]", "[0,1] [2,1]", "group 0: rank 1 occurs twice"},
    {"[0,1] [2,3]", "[0,1,2]", "group 0: 1 lists of 3 ranks where there are 4"},
    {"[0,1] [2,3]", "[0,1] [2,4]", "group 0: rank 4 occurs twice, or does not exist"},
    {"kernel gemm @matmul {", "kernel nest @\"a b\" { outer [] inner [] }\nkernel gemm @matmul {",
     "kernel @\"a b\": its name is no C identifier"},
    {"%0 = load 0 : i64", "%0 = load 3 : i64", "operation %0: it names no operand"},
    {"%0 = load 0 : i64", "%0 = load 0 : f32", "operation %0: its type is not that of the operand"},
    {"gather 1 at %0 - int 0", "gather 1 at %0", "operation %1: it names no int"},
    {"gather 1 at %0 - int 0", "gather 1 at %0 - int 1", "operation %1: it names no int"},
    {"extent 32 limit", "extent 33 limit", "call @lookup: operand 1 leaves the param"},
    {"store 2, %1", "store 1, %1", "operation %2: it stores to an operand that is only read"},
    {"store 2, %1 : f32", "store 2, %0 : f32", "operation %2: what it stores has another type"},
    {"%8 = neg %1 : f32", "%8 = neg %0 : f32", "operation %8: it uses an inner value of another section"},
    {"%4 = add %0, %3", "%4 = add %0, %1", "operation %4: it uses a reduction in the section that computes it"},
    {"%9 = temp_load 0", "%9 = temp_load 1", "operation %9: it names no temporary"},
    {"temp_store 0, %4 : f32\n  row", "store 1, %4 : f32\n  row", "operation %9: it reads a temporary that is not"},
    {"temp f32", "temp f64", "operation %5: its type is not that of the temporary"},
    {"%13 = reduce argmax %11 : i64", "%13 = reduce argmax %11 : f32", "its type is not what it reduces to"},
    {"%2 = index [0,1] + int 0", "%2 = index [0,1] + int 1", "operation %2: it names no int"},
    {"%8 = neg %1 : f32", "%8 = reduce max %1 : f32", "operation %8: a reduction outside the inner loops"},
    {"a [16,1] b", "a [16,2] b", "an operand is laid out as BLAS does not take it"},
    {"c [16,1]", "c [8,1]", "the result is not row-major"},
    {"b 128 c 0 sum", "b 128 c 1 sum", "a summed loop moves through the result"},
    {"loop 2 a 8 b 128", "loop 2 a 8 b 144", "call @matmul: operand 1 leaves the param"},
    {"(arena(1024), param(1), arena(1280))", "(arena(1024), param(1), param(1))",
     "operand 2 is written, but lies in a"},
    {"(arena(1024), param(1), arena(1280))", "(arena(1024), param(2), arena(1280))",
     "operand 1 has another element type"},
    {"(arena(1024), param(1), arena(1280))", "(arena(1024), param(9), arena(1280))", "operand 1 is at no place"},
    {"(arena(1024), param(1), arena(1280))", "(arena(1024), arena(1280))", "2 operands and 0 ints for a kernel with 3"},
    {"(arena(1024), param(1), arena(1280))", "(arena(1030), param(1), arena(1280))", "which is no multiple of 64"},
    {"input(0)+4*dp", "input(0)+5*dp", "call @lookup: operand 0 leaves the input on rank 2"},
    {"ints(32*tp) ps", "ints(32*tp, 1) ps", "3 operands and 2 ints for a kernel with 3 and 1"},
    {"to arena(256)", "to arena(192)", "all_reduce: source and destination overlap on rank 0"},
    {"from arena(1280)[16,1] me 32", "from arena(1280)[16,1] me 900", "all_to_all: operand 0 leaves the arena"},
    {"peer 128", "peer 129", "all_gather: operand 1 leaves the output on rank 1"},
    {"group 1 box [2,32]", "group 2 box [2,32]", "it has no kind, element type, group or places"},
    {"group 0 box [4,16]", "group 0 box [-4,16]", "its box has a negative extent"},
    {"outer [4] inner [16]\n  row:\n    %0 = load 0 : i64",
     "outer [4] inner [16]\n  turns 0 int 1\n  row:\n    %0 = load 0 : i64", "kernel @lookup: a loop names no int"},
    {"outer [4] inner [16]\n  row:\n    %0 = load 0 : i64",
     "outer [4] inner [16]\n  turns 0 int 0\n  row:\n    %0 = load 0 : i64",
     "a loop has more turns than its extent, or fewer than none, on rank 1"},
    {"ints(32*tp) ps", "ints(clamp(32*tp, 64, 65)) ps", ""},
    {"m 4 n 16 k 8", "m 4 n 16 int 0 k 8", "an extent names no int"},
    {"box [2,32] from", "box [2,32] count 0 of 3-2*dp peer 1 from", ""},
    {"box [2,32] from", "box [2,32] count 0 of 3*dp peer -9 from", ""},
    {"box [2,16] from arena(768)", "box [900,16] count 0 of 2-1*tp from arena(768)", ""},
    {"box [2,16] from arena(768)", "box [900,16] count 0 of 2 peer -900 from arena(768)",
     "all_gather: operand 1 leaves the arena on rank 0"},
    {"box [32,16] strides", "box [32,16] count 0 of 9-16*tp strides", ""},
    {"peer 128", "peer 128 when zero(tp)", "an exchange runs on every rank, without condition"},
    {"(arena(256), arena(512)) ints(3", "(arena(512), arena(512)) ints(3", ""}, /* in place */
    {"(arena(256), arena(512)) ints(3", "(arena(512)+1, arena(512)) ints(3",
     "call @softmax: operand 1 overwrites operand 0 on rank 1"},
    {"(arena(256), arena(512)) ints(3", "(arena(320), arena(512)) ints(3",
     "call @softmax: operand 1 overwrites operand 0 on rank 1"},
    {"(arena(1024), param(1), arena(1280))", "(arena(1280), param(1), arena(1280))",
     "call @matmul: operand 2 overwrites operand 0 on rank 0"},
    {"to arena(256)[16,1]", "to arena(0)[16,1]", ""}, /* in place */
    {"to arena(256)[16,1]", "to arena(0)[1,16]", "all_reduce: source and destination overlap on rank 0"},
    {"box [2,16] from arena(768)[16,1] to arena(1024)[16,1]", "box [2,16] from arena(768)[16,1] to arena(768)[16,1]",
     "all_gather: source and destination overlap on rank 0"},
};

/* Comments would be edited instead of what they speak about. */
static void drop_comments(char *text)
{
    char *to = text;
    for (char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        if (*line == ';')
            continue;
        memmove(to, line, (size_t)(end - line));
        to += end - line;
    }
    *to = 0;
}

static void test_local_verify(void **state)
{
    (void)state;
    int failures = 0;
    size_t size;
    char *good = read_file("local.ap", &size);
    drop_comments(good);
    for (size_t i = 0; i < sizeof local_edits / sizeof local_edits[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_text t;
        ap_text_init(&t, &ctx->arena);
        const char *at = strstr(good, local_edits[i].from);
        if (!at)
            fail_msg("not in the file: %s", local_edits[i].from);
        ap_text_add_n(&t, good, (size_t)(at - good));
        ap_text_add(&t, local_edits[i].to);
        ap_text_add(&t, at + strlen(local_edits[i].from));
        ap_local *p = parse_local(ctx, ap_text_str(&t));
        ap_status status = ap_local_verify(p);
        if (*local_edits[i].error) /* "": right as well */
            failures += case_fails(ctx, local_edits[i].to, status, local_edits[i].error);
        else
            assert_int_equal(status, AP_OK);
        ap_ctx_release(ctx);
    }
    assert_int_equal(failures, 0);
    free(good);
}

static const struct {
    const char *text, *error;
} local_malformed[] = {
    {"", "test.ap:1:1: expected 'local', found the end"},
    {"local @p ranks 0", "the number of ranks is 0"},
    {"local @p ranks 2 axes [tp=2 stride 1] arena 0 params 0 what", "expected input, output, param"},
    {"local @p ranks 2 axes [tp=2 stride 1, tp=1 stride 1]", "an axis occurs twice"},
    {"local @p ranks 1 axes [] arena 0 params 0 param 1", "param 1 where 0 comes next"},
    {"local @p ranks 1 axes [] arena 0 params 0 group 0", "expected '[', found the end"},
    {"local @p ranks 1 axes [] arena 0 params 0 group 0 [0] [1,2]", "the lists of a group have different lengths"},
    {"local @p ranks 1 axes [] arena 0 params 0 call @k()", "kernel @k is not defined"},
    {"local @p ranks 1 axes [] arena 0 params 0 kernel nest @k { outer [] inner [] row: %1 = load 0 : f32 }",
     "operation %1 where %0 comes next"},
    {"local @p ranks 1 axes [] arena 0 params 0 kernel nest @k { outer [] inner [] row: %0 = exp %0 : f32 }",
     "%0 is no value made before"},
    {"local @p ranks 1 axes [] arena 0 params 0 kernel nest @k { outer [] inner [] load 0 : f32 }",
     "expected a section: row or inner"},
    {"local @p ranks 1 axes [] arena 0 params 0 kernel nest @k { outer [] inner [] row: load 0 : f32 }",
     "the value has no number"},
    {"local @p ranks 1 axes [] arena 0 params 0 kernel nest @k { read f32 [1] outer [] inner [] }",
     "1 strides for 0 loops"},
    {"local @p ranks 1 axes [] arena 0 params 0 all_gather f32 group 0 box [1] from arena(0)[1,1]",
     "more than 1 numbers in strides"},
    {"local @p ranks 1 axes [] arena 0 params 0 all_gather f32 group 0 box [1] from arena(0)+2*tp[1]",
     "there is no axis 'tp'"},
    {"local @p ranks 1 axes [] arena 0 params 0 all_gather f32 group 0 box [1] from heap(0)[1]",
     "expected a space: one of arena, param, input, output"},
};

static void test_local_malformed(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < sizeof local_malformed / sizeof local_malformed[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_local *p;
        const char *text = local_malformed[i].text;
        ap_status s = ap_local_parse(ctx, "test.ap", text, strlen(text), &p);
        failures += case_fails(ctx, text, s, local_malformed[i].error);
        ap_ctx_release(ctx);
    }
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local_mutations), cmocka_unit_test(test_local_read),
        cmocka_unit_test(test_local_print),     cmocka_unit_test(test_local_verify),
        cmocka_unit_test(test_local_malformed), cmocka_unit_test(test_local_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
