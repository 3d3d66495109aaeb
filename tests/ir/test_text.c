/* The text form of modules: the golden example, messages for malformed input, round trips of everything that
 * random edits of good files leave readable, and the verifier on modules that no text can express. */
#include "text_util.h"

#include "ir/op.h"
#include "ir/text_form.h"

static const char *print(const ap_module *m)
{
    ap_text t;
    ap_text_init(&t, &m->ctx->arena);
    ap_module_print(m, &t);
    return ap_text_str(&t);
}

static ap_module *parse(ap_ctx *ctx, const char *text)
{
    ap_module *m = NULL;
    if (ap_module_parse(ctx, "test.ap", text, strlen(text), &m) != AP_OK)
        fail_msg("%s", messages(ctx));
    return m;
}

/* ---- golden ---- */

static void test_canonical(void **state)
{
    (void)state;
    size_t size;
    char *text = read_file("canonical.ap", &size);
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = parse(ctx, text);
    assert_int_equal(m->state, AP_STATE_PLANNED);
    assert_string_equal(print(m), text);
    if (ap_module_verify(m) != AP_OK)
        fail_msg("%s", messages(ctx));
    assert_string_equal(print(m), text);
    assert_string_equal(print(ap_module_clone(m)), text);
    ap_ctx_release(ctx);
    free(text);
}

static void test_style_example(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = parse(ctx, "mesh @m = [dp=2, tp=2] ranks 0..3\n"
                              "func @partial(%x: f32[4,8] @m[dp,tp], %w: f32[8,16] @m[tp,-]) -> f32[4,16] @m[dp,-] {\n"
                              "  %0 = contract %x, %w {bk,kn->bn} : f32[4,16] @m[dp,-] sum(tp)  loc(\"fc1\")\n"
                              "  %1 = reshard %0 : f32[4,16] @m[dp,-]\n"
                              "  %2 = relu %1 : f32[4,16] @m[dp,-]  loc(\"act1\")\n"
                              "  ret %2\n"
                              "}\n");
    const ap_node_info *n = ap_node_at(m, 0);
    assert_int_equal(n->op, AP_OP_CONTRACT);
    assert_string_equal(ap_name_str(ctx, ap_loc_get(ctx, n->loc).node), "fc1");
    const ap_sharding_info *s = ap_sharding_get(ctx, ap_type_get(ctx, ap_value_type(m, n->out[0])).sharding);
    assert_int_equal(s->partial[AP_PARTIAL_SUM], 2);
    assert_int_equal(s->axes[0], 1);
    assert_int_equal(s->axes[1], 0);
    assert_int_equal(ap_module_verify(m), AP_OK);
    ap_ctx_release(ctx);
}

/* ---- what is read ---- */

static void test_values_read(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = parse(ctx, "param @w : f32[3.4^6,1] data(\"w.bin\", 5, 48)\n"
                              "func @f(%x: i64[4.5]) -> i64[3.3] {\n"
                              "  %c = constant [-1, 0x1p+3, 2.5] : f32[3]\n"
                              "  %s = slice %x [3:0:-1.0:6:2] : i64[3.3]\n"
                              "  ret %s }\n");
    const ap_symbol_info *w = &m->symbols.at[0];
    const ap_shape_info *shape = ap_value_shape(m, w->value);
    assert_int_equal(shape->rank, 2);
    assert_int_equal(shape->nfactors, 2);
    assert_int_equal(shape->logical[1], 4);
    assert_int_equal(shape->physical[1], 6);
    assert_int_equal(w->data.kind, AP_DATA_FILE);
    assert_int_equal(w->data.offset, 5);
    const float *c = ap_node_at(m, 0)->u.constant->bytes;
    assert_true(c[0] == -1.0f && c[1] == 8.0f && c[2] == 2.5f);
    const ap_range *r = ap_node_at(m, 1)->u.slice->range;
    assert_true(!r[0].whole && r[0].start == 3 && r[0].step == -1 && r[0].count == 3);
    assert_true(!r[1].whole && r[1].start == 0 && r[1].step == 2 && r[1].count == 3);
    ap_ctx_release(ctx);
}

static void test_floats_are_exact(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    /* smallest subnormal, largest finite, a NaN with a payload: by hex where numbers would lose bits */
    ap_module *m = parse(ctx, "param @a : f64[2] data(hex\"0100000000000000ffffffffffffef7f\")\n"
                              "param @b : f32[1] data(hex\"0100c07f\")\n"
                              "param @c : f32[1] data(hex\"0000c07f\")\n");
    assert_string_equal(print(m), "param @a : f64[2] data([0x0.0000000000001p-1022,0x1.fffffffffffffp+1023])\n"
                                  "param @b : f32[1] data(hex\"0100c07f\")\n"
                                  "param @c : f32[1] data([nan])\n");
    const uint8_t *a = parse(ctx, print(m))->symbols.at[0].data.bytes;
    assert_memory_equal(a, m->symbols.at[0].data.bytes, 16);
    ap_ctx_release(ctx);
}

static void test_sharding_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text, *printed; /* printed NULL: an error that contains ... */
        const char *error;
    } cases[] = {
        {"@m[dp,tp]", "@m[dp,tp.-.-]", NULL},
        {"[dp,-] sum(tp)", "@m[dp,-] sum(tp)", NULL},
        {"[dp*tp,-.-.-]", "@m[dp*tp,-]", NULL},
        {"@m[-,-.tp.dp]", "@m[-,-.tp.dp]", NULL},
        {"[-,-] max(dp,tp)", "@m[-,-] max(dp,tp)", NULL},
        {"[dp]", NULL, "the shape has 2 dimensions, its sharding 1"},
        {"[dp,dp]", NULL, "axis 'dp' occurs twice"},
        {"[dp,-.tp]", NULL, "dimension 1 has 3 factors, its sharding 2"},
        {"[q,-]", NULL, "mesh @m has no axis 'q'"},
        {"@n[dp,-]", NULL, "mesh @n is not defined"},
        {"[dp,-] sum(tp) x", NULL, "column 16: unexpected text after the sharding"},
        {"", NULL, "expected a mesh name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_module *m = parse(ctx, "mesh @m = [dp=2, tp=4] ranks 0..7\nparam @w : f32[8,3.12.64] @m[-,-]\n");
        ap_shape shape = ap_type_get(ctx, ap_value_type(m, m->symbols.at[0].value)).shape;
        ap_sharding s = 0;
        ap_text t;
        ap_text_init(&t, &ctx->arena);
        ap_status status = ap_sharding_parse(m, cases[i].text, shape, &s);
        assert_int_equal(status, cases[i].printed ? AP_OK : AP_ERR_MODEL);
        if (cases[i].printed) {
            ap_sharding_print(m, shape, s, &t);
            assert_string_equal(ap_text_str(&t), cases[i].printed);
        } else {
            expect_message(ctx, cases[i].error);
        }
        ap_ctx_release(ctx);
    }
}

/* ---- malformed modules ---- */

#define MESH "mesh @m = [dp=2] ranks 0..1\n"
#define F "func @f(%x: f32[8,4]) -> f32[8,4] {\n"

static const struct {
    const char *text, *error;
} malformed[] = {
    {"hello", "test.ap:1:1: expected mesh, time, param, state, accum or func"},
    {"state\n", "test.ap:2:1: expected a state: one of imported, normal, planned, explicit"},
    {"state odd", "test.ap:1:7: expected a state"},
    {"mesh @m = [dp=2] ranks 0..3", "test.ap:1:27: the axes make 2 ranks, 0..3 are 4"},
    {"mesh @m = [dp=0] ranks 0..0", "an axis size is 0, not between 1 and"},
    {"mesh @m = [dp=2, dp=2] ranks 0..3", "test.ap:1:18: axis 'dp' occurs twice"},
    {"mesh @m = [a=1,b=1,c=1,d=1,e=1,f=1,g=1] ranks 0..0", "more than 6 axes"},
    {"mesh @m = [a=1048576,b=1048576] ranks 0..1", "a mesh of more than 1048576 ranks"},
    {"mesh @m = [a=99999999999999999999] ranks 0..1", "an axis size is too large"},
    {MESH MESH, "test.ap:2:6: mesh @m is defined twice"},
    {"time mb=2", "test.ap:1:10: time without a mesh"},
    {"time mb=0\n" MESH, "a number of microbatches is 0, not between 1 and"},
    {"time dp=2\n" MESH, "expected 'mb'"},
    {"time mb=2\ntime mb=2\n" MESH, "test.ap:2:1: time stands once, before the meshes"},
    {MESH "time mb=2\n", "test.ap:2:1: time stands once, before the meshes"},
    {"time mb=2\nmesh @m = [mb=2] ranks 0..1", "axis 'mb' occurs twice"},
    {"time mb=2\nmesh @m = [dp=2] ranks 0..3", "the axes make 2 ranks, 0..3 are 4"},
    {"time mb=1024\nmesh @m = [dp=2048] ranks 0..2047", "a mesh of more than 1048576 ranks times microbatches"},
    {"param w : f32[2]", "test.ap:1:7: expected '@', found 'w'"},
    {"param @12 : f32[2]", "a symbol name of digits only must be quoted"},
    {"param @w : f33[2]", "test.ap:1:12: 'f33' is no element type"},
    {"param @w : f32[2", "test.ap:1:17: expected ']', found the end"},
    {"param @w : f32[-1]", "an extent is -1, not between 0 and"},
    {"param @w : f32[1,1,1,1,1,1,1,1,1]", "more than 8 dimensions"},
    {"param @w : f32[2.2.2.2.2]", "more than 4 factors in one dimension"},
    {"param @w : f32[2.2.2.2,2.2.2.2,2.2.2.2,2.2.2.2,2]", "more than 16 factors"},
    {"param @w : f32[2.1]", "a factor of extent 1 cannot be cut or padded"},
    {"param @w : f32[1^4]", "a factor of extent 1 cannot be cut or padded"},
    {"param @w : f32[4^4]", "the padded extent must be larger than the logical one"},
    {"param @w : f32[4611686018427387904,2]", "the shape has too many elements"},
    {"param @w : f32[2] @m[-]", "mesh @m is not defined"},
    {MESH "param @w : f32[2] @m[-,-]", "test.ap:2:23: the shape has 1 dimension"},
    {MESH "param @w : f32[2] @m[tp]", "test.ap:2:22: mesh @m has no axis 'tp'"},
    {MESH "param @w : f32[2] @m[dp*dp]", "axis 'dp' occurs twice"},
    {MESH "param @w : f32[2] @m[dp] sum(dp)", "axis 'dp' occurs twice"},
    {MESH "param @w : f32[2.3] @m[dp]", "dimension 0 has 2 factors, its sharding 1"},
    {MESH "param @w : f32[1] @m[dp]", "dimension 0 has 0 factors, its sharding 1"},
    {"param @w : f32[2] data(splat)", "expected a number"},
    {"param @w : f32[2] data([1])", "test.ap:1:24: data of 4 bytes for 2 elements of 4 bytes"},
    {"param @w : f32[2] data(hex\"001\")", "an even number of hexadecimal digits"},
    {"param @w : i8[1] data([128])", "the number is no value of type i8"},
    {"param @w : u8[1] data([-1])", "the number is no value of type u8"},
    {"param @w : bool[1] data([2])", "the number is no value of type bool"},
    {"param @w : i64[1] data([1.5])", "the number is no value of type i64"},
    {"param @w : i64[1] data([9223372036854775808])", "the number is no value of type i64"},
    {"param @w : f64[1] data([1e999])", "'1e999' is no number"},
    {"param @w : f64[1] data([0x])", "is no number"},
    {"param @w : f64[1] data([infinity])", "'infinity' is no number"},
    {"param @w : f32[2] data(\"a)", "the quote is not closed on its line"},
    {"param @w : f32[2] data(\"\\q\", 0, 8)", "unknown escape"},
    {"param @w : f32[2] data(\"\\x00\", 0, 8)", "must not contain a NUL byte"},
    {"param @w : f32[2] data(\"a\", 0, 99999999999999999999)", "a size is too large"},
    {"param @w : f32[2]\nparam @w : f32[2]", "test.ap:2:7: symbol @w is defined twice"},
    {F F, "test.ap:2:1: 'func' is no operator"},
    {"func @f(%x: f32[8], %x: f32[8]) {", "test.ap:1:21: value %x is defined twice"},
    {F, "the block is not closed by '}'"},
    {F "  %y = foo %x : f32[8,4]\n", "test.ap:2:8: 'foo' is no operator"},
    {F "  %y = exp %z : f32[8,4]\n", "test.ap:2:12: %z is not defined here"},
    {F "  %y = exp @z : f32[8,4]\n", "test.ap:2:12: @z is not defined here"},
    {F "  %y = exp %y : f32[8,4]\n", "%y is not defined here"},
    {F "  %y = add %x : f32[8,4]\n", "test.ap:2:8: add has 2 operands, not 1"},
    {F "  exp %x : f32[8,4]\n", "exp has 1 result, not 0"},
    {F "  %a, %b = exp %x : f32[8,4], f32[8,4]\n", "exp has 1 result, not 2"},
    {F "  %y = exp %x\n", "expected ':'"},
    {F "  %x = exp %x : f32[8,4]\n", "value %x is defined twice"},
    {F "  %y = concat dim 0 : f32[8,4]\n", "concat needs an operand"},
    {F "  %y = contract %x, %x {bk->b} : f32[8]\n", "letters for 1 operands, the node has 2"},
    {F "  %y = view %x {bk->kb : f32[8]\n  ret %y ", "the letters are not closed by '}'"},
    {F "  %y = view %x {b(k->kb} : f32[8]\n", "letters: "},
    {F "  %y = reduce mean %x {bk->b} : f32[8]\n", "expected a reduction: one of sum, prod, max"},
    {F "  %y = slice %x [-] : f32[8,4]\n", "expected ',', found ']'"},
    {F "  %y = slice %x [0:1.0:1,-] : f32[8,4]\n", "dimension 0 has 1 factor, not 2"},
    {F "  %y = slice %x [0:3:2,-] : f32[8,4]\n", "test.ap:2:18: the stop must be a whole number of steps"},
    {F "  %y = slice %x [3:0,-] : f32[8,4]\n", "the stop must be a whole number of steps"},
    {F "  %y = slice %x [0:0:0,-] : f32[8,4]\n", "the stop must be a whole number of steps"},
    {F "  %y = concat %x dim 8 : f32[8,4]\n", "a dimension is 8, not between 0 and 7"},
    {F "  %y = all_gather %x over dp : f32[8,4]\n", "the operand has no sharding"},
    {F "  %y = composite f(%x) : f32[8,4] {\n yield %x }\n ret %x }\n ret", "expected mesh"},
    {F "  %y = composite f(%x) : f32[8,4] {\n %z = exp %x : f32[8,4]\n yield %z }\n ret %z }\n",
     "%z is not defined here"},
    {F "  ret %x\n  ret %x\n}", "test.ap:3:3: expected '}', found 'ret'"},
    {F "  ret %x } func @f() {", "function @f is defined twice"},
    {F "  ret %x }  loc(\"x\")", "expected mesh"},
    {"func @f() {\n  ret  loc(x) }", "expected a node name in quotes, found 'x'"},
    {"\xff", "test.ap:1:1: expected mesh"},
    {"param @\xff : f32[2]", "expected a symbol name, found byte 0xff"},
};

static void test_malformed(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_module *m;
        size_t n = strlen(malformed[i].text);
        char *exact = malloc(n ? n : 1); /* no NUL behind it: reading on would be seen */
        memcpy(exact, malformed[i].text, n);
        ap_status s = ap_module_parse(ctx, "test.ap", exact, n, &m);
        failures += case_fails(ctx, malformed[i].text, s, malformed[i].error) || ctx->diags.len != 1;
        free(exact);
        ap_ctx_release(ctx);
    }
    assert_int_equal(failures, 0);
}

static void test_deep_nesting(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_text t;
    ap_module *m;
    ap_text_init(&t, &ctx->arena);
    ap_text_add(&t, "func @f(%x: f32[8]) {\n");
    for (int i = 0; i < 100000; i++)
        ap_text_add(&t, "%y = composite f(%x) : f32[8] {\n");
    assert_int_equal(ap_module_parse(ctx, "test.ap", t.s, t.len, &m), AP_ERR_MODEL);
    expect_message(ctx, "composites are nested more than 16 deep");
    ap_ctx_release(ctx);
}

/* ---- random edits ---- */

static bool check_module(const char *text, size_t size)
{
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m, *again;
    bool ok = ap_module_parse(ctx, "fuzz", text, size, &m) == AP_OK;
    if (ok) {
        const char *first = print(m);
        ap_module_verify(m);
        assert_string_equal(print(m), first);
        if (ap_module_parse(ctx, "again", first, strlen(first), &again) != AP_OK)
            fail_msg("%s\n%s", messages(ctx), first);
        assert_string_equal(print(again), first);
        assert_int_equal(again->state, m->state);
    } else {
        assert_int_equal(ctx->diags.len, 1);
        assert_true(strncmp(messages(ctx), "fuzz:", 5) == 0);
    }
    ap_ctx_release(ctx);
    return ok;
}

static void test_mutations(void **state)
{
    (void)state;
    static const char *const files[] = {"canonical.ap", "ops.ap",    "names.ap",
                                        "explicit.ap",  "states.ap", "verify_bad.ap"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        mutations_of(files[i], 4000, 0x9e3779b97f4a7c15u + i, check_module);
}

static void test_noise(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    char text[256];
    for (int i = 0; i < 3000; i++)
        check_module(text, make_noise(&seed, i % 2, text, sizeof text));
}

/* ---- modules that no text can express ---- */

static ap_module *small_module(ap_ctx *ctx)
{
    return parse(ctx, "param @w : f32[8]\n"
                      "func @f(%x: f32[8], %y: f32[8]) -> f32[8] {\n"
                      "  %a = add %x, @w : f32[8]\n"
                      "  %b = composite g(%a, %y) : f32[8] {\n"
                      "    %c = exp %a : f32[8]\n"
                      "    yield %c }\n"
                      "  ret %b }\n");
}

typedef void edit_fn(ap_module *m);

static void swap_nodes(ap_module *m)
{
    ap_block_info *b = ap_block_at(m, m->funcs.at[0].body);
    ap_node n = b->nodes.at[0];
    b->nodes.at[0] = b->nodes.at[1];
    b->nodes.at[1] = n;
}
static void same_name(ap_module *m)
{
    ap_value_at(m, ap_node_at(m, 0)->out[0])->name = ap_value_at(m, m->funcs.at[0].argument[0])->name;
}
static void lost_value(ap_module *m)
{
    ap_node_at(m, 0)->in[1] = AP_NONE;
}
static void no_type(ap_module *m)
{
    ap_value_at(m, ap_node_at(m, 0)->out[0])->type = 0;
}
static void removed_symbol(ap_module *m)
{
    m->symbols.at[0].kind = AP_SYMBOL_KIND_COUNT;
}
static void no_operator(ap_module *m)
{
    ap_node_at(m, 0)->op = AP_OP_COUNT;
}
static void own_body(ap_module *m)
{
    ap_node_at(m, 1)->body = m->funcs.at[0].body;
}
static void lost_body(ap_module *m)
{
    ap_node_at(m, 1)->body = AP_NONE;
}
static void no_spec(ap_module *m)
{
    ap_node_at(m, 2)->op = AP_OP_VIEW;
    ap_node_at(m, 2)->u.spec = NULL;
}
static void wrong_arity(ap_module *m)
{
    ap_node_at(m, 2)->op = AP_OP_MUL;
}
static void no_terminator(ap_module *m)
{
    ap_block_at(m, ap_node_at(m, 1)->body)->nodes.len--;
}
static void not_in_block(ap_module *m)
{
    ap_node_at(m, 0)->block = AP_NONE;
}
static void twice_in_block(ap_module *m)
{
    ap_block_info *b = ap_block_at(m, m->funcs.at[0].body);
    b->nodes.at[1] = b->nodes.at[0];
}
static void unknown_node(ap_module *m)
{
    ap_block_at(m, m->funcs.at[0].body)->nodes.at[0] = 99;
}
static void stranger(ap_module *m)
{
    ap_node_at(m, 0)->out[0] = m->funcs.at[0].argument[0];
}
static void odd_state(ap_module *m)
{
    m->state = AP_STATE_COUNT;
}
static void two_funcs(ap_module *m)
{
    ap_module_add_func(m, m->funcs.at[0].name);
}
static void two_symbols(ap_module *m)
{
    ap_module_add_symbol(m, AP_SYMBOL_STATE, m->symbols.at[0].name, ap_value_type(m, 0), (ap_data){0}, 0);
}
static void wrong_data(ap_module *m)
{
    m->symbols.at[0].data = (ap_data){.kind = AP_DATA_SPLAT, .dtype = AP_I32, .size = 4, .bytes = "abc"};
}

static void test_verify_edits(void **state)
{
    (void)state;
    static const struct {
        edit_fn *edit;
        const char *error;
    } cases[] = {
        {swap_nodes, "operand 0 (%a) is not defined before its use"},
        {same_name, "two values are named %x"},
        {lost_value, "operand 1 is no value"},
        {no_type, "result 0 is no value of this node, or has no type"},
        {removed_symbol, "operand 1 is a symbol that was removed"},
        {no_operator, "is of no operator or of another block"},
        {own_body, "it has no body of its own"},
        {lost_body, "it has no body of its own"},
        {no_spec, "@f: %c = view: an attribute is missing"},
        {wrong_arity, "mul takes 2 operands, here are 1"},
        {no_terminator, "the block does not end here: a terminator is missing"},
        {not_in_block, "is of no operator or of another block"},
        {twice_in_block, "is defined twice"},
        {unknown_node, "holds a node that does not exist"},
        {stranger, "result 0 is no value of this node"},
        {odd_state, "the module is in no known state"},
        {two_funcs, "function @f is defined twice"},
        {two_symbols, "symbol @w is defined twice"},
        {wrong_data, "@w has data of another element type"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_module *m = small_module(ctx);
        if (ap_module_verify(m) != AP_OK)
            fail_msg("%s", messages(ctx));
        cases[i].edit(m);
        assert_int_equal(ap_module_verify(m), AP_ERR_MODEL);
        expect_message(ctx, cases[i].error);
        print(m); /* whatever is wrong, a dump is possible */
        ap_ctx_release(ctx);
    }
}

static void middle_terminator(ap_module *m)
{
    ap_node ret = ap_module_add_node(m, AP_OP_RET, 1, m->funcs.at[0].argument, 0, 0);
    ap_block_insert(m, m->funcs.at[0].body, 0, ret);
}

static void test_verify_middle(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = small_module(ctx);
    middle_terminator(m);
    assert_int_equal(ap_module_verify(m), AP_ERR_MODEL);
    expect_message(ctx, "@f: ret: a terminator in the middle of a block");
    ap_ctx_release(ctx);
}

/* Shardings that the parser would not make. */
static void test_verify_shardings(void **state)
{
    (void)state;
    static const struct {
        ap_sharding_info sharding;
        const char *error;
    } cases[] = {
        {{.mesh = 3, .nfactors = 2}, "a sharding names no mesh"},
        {{.mesh = 0, .nfactors = 1}, "a sharding does not fit its shape"},
        {{.mesh = 0, .nfactors = 2, .axes = {3}}, "a sharding names no axis of its mesh"},
        {{.mesh = 0, .nfactors = 2, .axes = {1, 1}}, "an axis occurs twice in a sharding"},
        {{.mesh = 0, .nfactors = 2, .axes = {1}, .partial = {1}}, "an axis occurs twice in a sharding"},
        {{.mesh = 0, .nfactors = 2, .partial = {2, 2}}, "an axis occurs twice in a sharding"},
        {{.mesh = 0, .nfactors = 2, .partial = {4}}, "a value is partial over no axis of its mesh"},
        {{.mesh = 0, .nfactors = 2, .axes = {0, 2}}, "the axes of a factor do not divide its physical extent"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_module *m = parse(ctx, "mesh @m = [dp=2, tp=4] ranks 0..7\n"
                                  "func @f(%x: f32[8,6] @m[dp,-]) -> f32[8,6] @m[dp,-] {\n"
                                  "  %y = exp %x : f32[8,6] @m[dp,-]\n"
                                  "  ret %x }\n");
        assert_int_equal(ap_module_verify(m), AP_OK);
        ap_value_info *y = ap_value_at(m, ap_node_at(m, 0)->out[0]);
        y->type =
            ap_type_make(ctx, AP_F32, ap_type_get(ctx, y->type).shape, ap_sharding_intern(ctx, &cases[i].sharding));
        assert_int_equal(ap_module_verify(m), AP_ERR_MODEL);
        expect_message(ctx, cases[i].error);
        print(m);
        ap_ctx_release(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_canonical),      cmocka_unit_test(test_style_example),
        cmocka_unit_test(test_values_read),    cmocka_unit_test(test_floats_are_exact),
        cmocka_unit_test(test_sharding_parse), cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_deep_nesting),   cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_noise),          cmocka_unit_test(test_verify_edits),
        cmocka_unit_test(test_verify_middle),  cmocka_unit_test(test_verify_shardings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
