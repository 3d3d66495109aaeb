/* The text forms: the golden example, messages for malformed input, round trips of everything that random
 * edits of good files leave readable, and the verifiers on records that no text can express. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/base/file.h"
#include "ir/local.h"
#include "ir/op.h"
#include "ir/text_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_file(const char *stem, size_t *out_size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/ir/%s", AP_TESTS_DIR, stem);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *s = malloc(1 << 16);
    *out_size = fread(s, 1, (1 << 16) - 1, f);
    s[*out_size] = 0;
    assert_true(*out_size > 0 && *out_size < (1 << 16) - 1);
    fclose(f);
    return s;
}

static const char *messages(ap_ctx *ctx)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        ap_text_addf(&t, "%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
    return ap_text_str(&t);
}

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

static void expect_message(ap_ctx *ctx, const char *want)
{
    if (!strstr(messages(ctx), want))
        fail_msg("want: %s\nhave: %s", want, messages(ctx));
}

/* For tables of cases, which all run: 1 and a line when the case is wrong. */
static int case_fails(ap_ctx *ctx, const char *text, ap_status status, const char *want)
{
    if (status == AP_ERR_MODEL && strstr(messages(ctx), want))
        return 0;
    print_error("case: %s\n  want: %s\n  have (%d): %s\n", text, want, (int)status, messages(ctx));
    return 1;
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
    {"hello", "test.ap:1:1: expected mesh, param, state, accum or func"},
    {"state\n", "test.ap:2:1: expected a state: one of imported, normal, planned, explicit"},
    {"state odd", "test.ap:1:7: expected a state"},
    {"mesh @m = [dp=2] ranks 0..3", "test.ap:1:27: the axes make 2 ranks, 0..3 are 4"},
    {"mesh @m = [dp=0] ranks 0..0", "an axis size is 0, not between 1 and"},
    {"mesh @m = [dp=2, dp=2] ranks 0..3", "test.ap:1:18: axis 'dp' occurs twice"},
    {"mesh @m = [a=1,b=1,c=1,d=1,e=1,f=1,g=1] ranks 0..0", "more than 6 axes"},
    {"mesh @m = [a=1048576,b=1048576] ranks 0..1", "a mesh of more than 1048576 ranks"},
    {"mesh @m = [a=99999999999999999999] ranks 0..1", "an axis size is too large"},
    {MESH MESH, "test.ap:2:6: mesh @m is defined twice"},
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

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static size_t below(uint64_t *s, size_t n)
{
    return n ? (size_t)(next_random(s) % n) : 0;
}

/* Replaces `cut` bytes at `at` by n bytes. */
static void splice(char *text, size_t *size, size_t cap, size_t at, size_t cut, const char *with, size_t n)
{
    if (*size - cut + n >= cap)
        return;
    char *copy = malloc(n ? n : 1);
    memcpy(copy, with, n);
    memmove(text + at + n, text + at + cut, *size - at - cut);
    memcpy(text + at, copy, n);
    *size = *size - cut + n;
    free(copy);
}

static void mutate(char *text, size_t *size, size_t cap, uint64_t *seed)
{
    static const char *const words[] = {
        "%",
        "@",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ",",
        ".",
        "*",
        ":",
        "-",
        "->",
        "=",
        "^",
        "\"",
        "0",
        "1",
        "2",
        "4",
        "8",
        "inf",
        "dp",
        "tp",
        "f32",
        "i64",
        "bool",
        "sum(",
        "dim",
        "ret",
        ";",
        "hex",
        "loc(\"",
        "add",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "yield",
        "splat",
        "0x1p-1074",
    };
    size_t at = below(seed, *size), n = below(seed, 12), from = below(seed, *size);
    n = n < *size - at ? n : *size - at;
    switch (below(seed, 7)) {
    case 0:
        text[at] = (char)next_random(seed);
        break;
    case 1:
        text[at] = (char)(text[at] ^ (1 << below(seed, 8)));
        break;
    case 2:
        splice(text, size, cap, at, n, "", 0);
        break;
    case 3: {
        const char *w = words[below(seed, sizeof words / sizeof words[0])];
        splice(text, size, cap, at, below(seed, 2) ? 0 : n, w, strlen(w));
        break;
    }
    case 4: {
        size_t len = below(seed, 40);
        splice(text, size, cap, at, 0, text + from, len < *size - from ? len : *size - from);
        break;
    }
    case 5: { /* another number */
        size_t k = at;
        while (k < *size && (text[k] < '0' || text[k] > '9'))
            k++;
        if (k < *size)
            text[k] = (char)('0' + below(seed, 10));
        break;
    }
    default:
        if (below(seed, 20) == 0)
            *size = at;
        break;
    }
}

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

static void mutations_of(const char *stem, int count, uint64_t seed, bool (*check)(const char *, size_t))
{
    size_t size, cap = 1 << 16;
    char *good = read_file(stem, &size), *text = malloc(cap);
    int parsed = 0;
    for (int i = 0; i < count; i++) {
        size_t n = size;
        memcpy(text, good, size);
        for (size_t k = 1 + below(&seed, 3); k > 0; k--)
            if (n)
                mutate(text, &n, cap, &seed);
        char *exact = malloc(n ? n : 1);
        memcpy(exact, text, n);
        parsed += check(exact, n);
        free(exact);
    }
    /* edits of comments and numbers leave a fair part readable: otherwise the test looks at little */
    assert_true(parsed > count / 50);
    free(good);
    free(text);
}

static void test_mutations(void **state)
{
    (void)state;
    static const char *const files[] = {"canonical.ap", "ops.ap",    "names.ap",
                                        "explicit.ap",  "states.ap", "verify_bad.ap"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        mutations_of(files[i], 4000, 0x9e3779b97f4a7c15u + i, check_module);
}

static void test_local_mutations(void **state)
{
    (void)state;
    mutations_of("local.ap", 12000, 0x2545f4914f6cdd1du, check_local);
}

/* Text without any structure. */
static void test_noise(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    char text[256];
    for (int i = 0; i < 3000; i++) {
        size_t n = below(&seed, sizeof text);
        for (size_t k = 0; k < n; k++)
            text[k] = i % 2 ? (char)next_random(&seed) : "%@{}[]().,*-=\"\n;0189afx"[below(&seed, 23)];
        check_module(text, n);
        check_local(text, n);
    }
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

/* ---- local programs ---- */

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
    assert_int_equal(in->ints[0].base, 3);
    assert_int_equal(in->ints[0].step[0], -2);
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
    {"peer 128", "peer 128 when zero(tp)", "an exchange runs on every rank, without condition"},
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
        failures += case_fails(ctx, local_edits[i].to, ap_local_verify(p), local_edits[i].error);
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
        cmocka_unit_test(test_canonical),       cmocka_unit_test(test_style_example),
        cmocka_unit_test(test_values_read),     cmocka_unit_test(test_floats_are_exact),
        cmocka_unit_test(test_sharding_parse),  cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_deep_nesting),    cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_local_mutations), cmocka_unit_test(test_noise),
        cmocka_unit_test(test_verify_edits),    cmocka_unit_test(test_local_read),
        cmocka_unit_test(test_local_print),     cmocka_unit_test(test_local_verify),
        cmocka_unit_test(test_local_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
