/* Wrong files: one clear message each, no crash, whatever the bytes are. */
#include "tests/frontend/make_model.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* x[4,8] · w[8,2] + b, relu; weights of 64 and 8 bytes */
static void make_mlp(maker *k)
{
    float w[16], b[2] = {1, -1};
    for (int i = 0; i < 16; i++)
        w[i] = (float)i / 8;
    make_init(k, 13);
    make_input(k, "x", 1, "4,8");
    make_f32(k, "w", "8,2", 16, w);
    make_f32(k, "b", "2", 2, b);
    make_node(k, "MatMul", "fc1", "x,w", "h");
    make_node(k, "Add", "bias", "h,b", "s");
    make_node(k, "Relu", "act", "s", "y");
    make_output(k, "y");
}

static void write_bytes(maker *k, const void *p, size_t n)
{
    assert_int_equal(ap_file_write(k->ctx, k->path, p, n), AP_OK);
}

static void test_not_onnx(void **state)
{
    (void)state;
    static const char text[] = "#!/bin/sh\necho no\n", png[] = "\x89PNG\r\n\x1a\n0000";
    maker k;
    make_init(&k, 13);
    write_bytes(&k, "", 0);
    expect_message(&k, &(ap_import_options){0}, AP_ERR_MODEL,
                   "model.onnx: this is not an ONNX model: the file is empty");
    write_bytes(&k, text, sizeof text - 1);
    expect_message(&k, &(ap_import_options){0}, AP_ERR_MODEL,
                   "model.onnx: this is not an ONNX model (byte 0: unknown wire type)");
    write_bytes(&k, png, sizeof png - 1);
    assert_int_equal(make_import_with(&k, &(ap_import_options){0}), AP_ERR_MODEL);
    assert_non_null(strstr(make_message(&k, 0), "this is not an ONNX model"));
    k.model.graph = NULL;
    expect_error(&k, "model.onnx: this is not an ONNX model: it has no graph");
    make_deinit(&k);
}

static void test_missing_file(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    assert_int_equal(make_import_with(&k, &(ap_import_options){0}), AP_ERR_ENV);
    assert_int_equal(k.ctx->diags.len, 1);
    make_deinit(&k);
}

/* Every cut is refused with one message; most say where. */
static void test_truncated(void **state)
{
    (void)state;
    maker k;
    make_mlp(&k);
    k.model.n_opset_import = 1;
    uint8_t *bytes;
    size_t n = make_bytes(&k, &bytes);
    int named = 0;
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes(&k, bytes, cut);
        assert_int_equal(make_import_with(&k, &(ap_import_options){0}), AP_ERR_MODEL);
        named += strstr(make_message(&k, 0), "the file is cut off: ") != NULL;
        assert_int_equal(k.ctx->diags.len, 1);
    }
    assert_true(named > (int)n / 2);
    /* in the middle of w's contents */
    write_bytes(&k, bytes, n / 2);
    assert_int_equal(make_import_with(&k, &(ap_import_options){0}), AP_ERR_MODEL);
    assert_non_null(strstr(make_message(&k, 0), "the file is cut off: graph, at byte 2, announces "));
    make_deinit(&k);
}

static void test_wire_types(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    const uint8_t fixed_graph[] = {0x08, 8, 0x3a, 4, 0x0a, 2, 0x20, 1}; /* graph.node.op_type as a varint */
    write_bytes(&k, fixed_graph, sizeof fixed_graph);
    expect_message(&k, &(ap_import_options){0}, AP_ERR_MODEL,
                   "model.onnx: the file is damaged at byte 6, in graph.node.op_type: the field has the wrong wire "
                   "type");
    const uint8_t group[] = {0x08, 8, 0x3a, 2, 0x0b, 0x0c};
    write_bytes(&k, group, sizeof group);
    expect_message(&k, &(ap_import_options){0}, AP_ERR_MODEL,
                   "model.onnx: the file is damaged at byte 4, in graph.node: unknown wire type");
    const uint8_t endless[] = {0x08, 8,    0x3a, 12,   0x0a, 0xff, 0xff, 0xff,
                               0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
    write_bytes(&k, endless, sizeof endless);
    expect_message(&k, &(ap_import_options){0}, AP_ERR_MODEL,
                   "model.onnx: the file is damaged at byte 4, in graph.node: a length that does not end");
    const uint8_t packed[] = {0x08, 8, 0x3a, 7, 0x2a, 5, 0x22, 3, 1, 2, 3}; /* three bytes of float_data */
    write_bytes(&k, packed, sizeof packed);
    expect_message(&k, &(ap_import_options){0}, AP_ERR_MODEL,
                   "model.onnx: the file is damaged at byte 8, in graph.initializer.float_data: the numbers of this "
                   "list do not fill its length");
    make_deinit(&k);
}

/* A sequence of sequences of ... : 20,000 levels would overflow the stack of a plain decoder. */
static void test_deep_nesting(void **state)
{
    (void)state;
    enum { LEVELS = 20000 };
    maker k;
    make_init(&k, 13);
    size_t cap = LEVELS * 16, at = cap;
    uint8_t *b = malloc(cap);
    assert_non_null(b);
    size_t len = 0;
    for (int i = 0; i < 2 * LEVELS + 3; i++) { /* from the inside out */
        uint8_t field = i < 2 * LEVELS ? (i % 2 ? 4 : 1) : i == 2 * LEVELS ? 2 : i == 2 * LEVELS + 1 ? 11 : 7;
        uint8_t head[8];
        size_t n = 0;
        head[n++] = (uint8_t)(field << 3 | 2);
        for (size_t x = len; n == 1 || x; x >>= 7)
            head[n++] = (uint8_t)((x & 0x7f) | (x > 0x7f ? 0x80 : 0));
        at -= n;
        memcpy(b + at, head, n);
        len += n;
    }
    write_bytes(&k, b + at, len);
    free(b);
    assert_int_equal(make_import_with(&k, &(ap_import_options){0}), AP_ERR_MODEL);
    assert_non_null(strstr(make_message(&k, 0), "messages are nested more than 100 deep"));
    assert_int_equal(k.ctx->diags.len, 1);
    make_deinit(&k);
}

static void test_unknown_operators(void **state)
{
    (void)state;
    maker k;
    make_mlp(&k);
    k.node[2]->op_type = make_str(&k, "Frobnicate");
    make_node(&k, "Quux", "q", "y", "z")->domain = make_str(&k, "org.example");
    make_node(&k, "Gelu", "g", "z", "u");
    make_node(&k, "Unheard", "dead", "x", "nobody");
    make_output(&k, "u");
    make_save(&k);
    assert_int_equal(make_import_with(&k, &(ap_import_options){0}), AP_ERR_MODEL);
    assert_int_equal(k.ctx->diags.len, 3);
    assert_string_equal(make_message(&k, 0), "model.onnx: node \"act\" (Frobnicate): operator Frobnicate of ai.onnx "
                                             "(opset 13) is not supported");
    assert_string_equal(make_message(&k, 1), "model.onnx: node \"q\" (Quux): operator Quux of org.example (opset 0) is "
                                             "not supported");
    assert_string_equal(make_message(&k, 2),
                        "model.onnx: node \"g\" (Gelu): Gelu needs opset 20 of ai.onnx, the model declares 13");
    make_deinit(&k);
}

static void test_graph_errors(void **state)
{
    (void)state;
    maker k;
    make_mlp(&k);
    k.node[1]->input[1] = make_str(&k, "nowhere");
    expect_error(&k, "model.onnx: node \"bias\" (Add): input 1, \"nowhere\", is defined nowhere");
    k.node[1]->input[1] = make_str(&k, "y");
    expect_error(&k, "model.onnx: node \"bias\" (Add): the graph has a cycle, each node using the next: \"bias\" -> "
                     "\"act\" -> \"bias\"");
    k.node[1]->input[1] = make_str(&k, "b");
    k.node[1]->output[0] = make_str(&k, "h");
    expect_error(&k, "model.onnx: node \"bias\" (Add): value \"h\" is defined a second time");
    k.node[1]->output[0] = make_str(&k, "s");
    k.node[1]->n_input = 1;
    expect_error(&k, "model.onnx: node \"bias\" (Add): Add takes at least 2 inputs, here is 1");
    k.node[1]->n_input = 2;
    make_int_attribute(&k, k.node[2], "mystery", 1);
    expect_error(&k, "model.onnx: node \"act\" (Relu): attribute \"mystery\" is not understood");
    k.node[2]->n_attribute = 0;
    k.output[0]->name = make_str(&k, "yy");
    expect_error(&k, "model.onnx: output \"yy\" is defined by no node");
    make_deinit(&k);
}

static void test_shape_mismatch(void **state)
{
    (void)state;
    maker k;
    make_mlp(&k);
    k.input[0] = make_value(&k, "x", 1, "4,12");
    expect_error(&k, "model.onnx: node \"fc1\" (MatMul): inner dimensions differ: 12 and 8");
    k.input[0] = make_value(&k, "x", 11, "4,8");
    expect_error(&k, "model.onnx: node \"fc1\" (MatMul): operand types differ: f64 and f32");
    k.input[0] = make_value(&k, "x", 77, "4,8");
    expect_error(&k, "model.onnx: input \"x\": 77 is no element type");
    k.input[0] = make_value(&k, "x", 8, "4,8");
    expect_error(&k, "model.onnx: input \"x\": element type STRING is not supported");
    k.input[0]->type = NULL;
    expect_error(&k, "model.onnx: input \"x\" is not a tensor");
    make_deinit(&k);
}

static void test_tensor_sizes(void **state)
{
    (void)state;
    maker k;
    make_mlp(&k);
    k.initializer[0]->raw_data.len = 20;
    expect_error(&k, "model.onnx: initializer \"w\": its dimensions ask for 64 bytes, its data has 20");
    k.initializer[0]->raw_data.len = 64;
    k.initializer[0]->dims[0] = INT64_MAX;
    expect_error(&k, "model.onnx: initializer \"w\": its dimensions ask for more than 2^56 elements");
    k.initializer[0]->dims[0] = -8;
    expect_error(&k, "model.onnx: initializer \"w\": dimension 0 is -8");
    k.initializer[0]->dims[0] = 8;
    k.initializer[0]->data_type = 17;
    expect_error(&k, "model.onnx: initializer \"w\": element type FLOAT8E4M3FN is not supported");
    k.initializer[0]->data_type = 1;
    k.initializer[0]->has_raw_data = 0;
    expect_error(&k, "model.onnx: initializer \"w\": its dimensions ask for 16 elements, its data has 0");
    make_deinit(&k);
}

static void test_dims(void **state)
{
    (void)state;
    maker k;
    make_mlp(&k);
    k.input[0] = make_value(&k, "x", 1, "batch,?");
    make_input(&k, "z", 1, "batch,seq");
    expect_error(&k, "model.onnx: dimensions without a size: \"batch\", \"x:1\", \"seq\"; bind them with --dim "
                     "NAME=SIZE or --shapes-from DIR");
    const ap_dim_binding all[] = {{"batch", 4}, {"x:1", 8}, {"seq", 3}}, wrong[] = {{"batsh", 4}},
                         low[] = {{"seq", -1}};
    assert_int_equal(make_import_with(&k, &(ap_import_options){.ndims = 3, .dim = all}), AP_OK);
    expect_message(&k, &(ap_import_options){.ndims = 1, .dim = wrong}, AP_ERR_USAGE,
                   "model.onnx: the model has no dimension \"batsh\" to bind");
    expect_message(&k, &(ap_import_options){.ndims = 1, .dim = low}, AP_ERR_USAGE,
                   "model.onnx: dimension \"seq\" cannot be -1");
    const ap_input_shape shapes[] = {{.name = "x", .rank = 2, .dim = {4, 8}}, {.index = 1, .rank = 2, .dim = {5, 3}}};
    expect_message(&k, &(ap_import_options){.nshapes = 2, .shape = shapes}, AP_ERR_MODEL,
                   "model.onnx: dimension \"batch\" is 4 by the given shape of \"x\" and 5 by the given shape of "
                   "\"z\"");
    const ap_input_shape rank[] = {{.name = "x", .rank = 3, .dim = {4, 8, 1}}};
    expect_message(&k, &(ap_import_options){.nshapes = 1, .shape = rank}, AP_ERR_MODEL,
                   "model.onnx: input \"x\" has 2 dimensions, its given shape has 3");
    make_deinit(&k);
}

/* ---- external data ---- */

static void make_external(maker *k, const char *location, const char *offset, const char *length)
{
    Onnx__TensorProto *w = k->initializer[0];
    const char *pairs[3][2] = {{"location", location}, {"offset", offset}, {"length", length}};
    w->has_raw_data = 0;
    w->has_data_location = 1;
    w->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    w->external_data = AP_NEW_ARRAY(&k->ctx->arena, Onnx__StringStringEntryProto *, 3);
    w->n_external_data = 0;
    for (int i = 0; i < 3; i++) {
        if (!pairs[i][1])
            continue;
        Onnx__StringStringEntryProto *e = AP_NEW(&k->ctx->arena, Onnx__StringStringEntryProto);
        onnx__string_string_entry_proto__init(e);
        e->key = make_str(k, pairs[i][0]);
        e->value = make_str(k, pairs[i][1]);
        w->external_data[w->n_external_data++] = e;
    }
}

static void write_beside(maker *k, const char *name, size_t n, const void *p)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", k->folder, name);
    assert_int_equal(ap_file_write(k->ctx, path, p, n), AP_OK);
}

static void test_external(void **state)
{
    (void)state;
    maker k;
    make_mlp(&k);
    float data[20] = {0};
    for (int i = 0; i < 16; i++)
        data[i + 2] = (float)i / 8;
    make_external(&k, "w.bin", "8", "64");
    expect_error(&k, "model.onnx: initializer \"w\": its external data file \"w.bin\" cannot be read: No such file or "
                     "directory");
    assert_int_equal(make_import_with(&k, &(ap_import_options){.weights_absent = true}), AP_OK);
    write_beside(&k, "w.bin", 70, data);
    expect_error(&k, "model.onnx: initializer \"w\": 64 bytes at offset 8 of \"w.bin\" are wanted, the file has 70");
    write_beside(&k, "w.bin", sizeof data, data);
    make_import(&k); /* the folder of the model is not the working directory */
    const ap_symbol_info *w = &k.m->symbols.at[0];
    assert_int_equal(w->data.kind, AP_DATA_FILE);
    assert_string_equal(ap_name_str(k.ctx, w->data.file), "w.bin");
    assert_int_equal(w->data.offset, 8);
    const double ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                             1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    ap_tensor x = make_data(&k, 1, 2, DIMS(4, 8), ones);
    expect_result(&k, &x, "[4,2]", 8, NUMBERS(8, 7, 8, 7, 8, 7, 8, 7));
    make_external(&k, "w.bin", "8", "60");
    expect_error(&k, "model.onnx: initializer \"w\": its dimensions ask for 64 bytes, its external data has 60");
    make_external(&k, "w.bin", "-8", NULL);
    expect_error(&k, "model.onnx: initializer \"w\": offset \"-8\" or length \"\" of its external data is not a size");
    make_deinit(&k);
}

static void test_external_escapes(void **state)
{
    (void)state;
    maker k;
    make_mlp(&k);
    float data[16] = {0};
    make_external(&k, "sub/../../w.bin", NULL, NULL);
    expect_error(&k, "model.onnx: initializer \"w\": its external data leaves the model's folder by `..`: "
                     "\"sub/../../w.bin\"");
    make_external(&k, "/etc/passwd", NULL, NULL);
    expect_error(&k, "model.onnx: initializer \"w\": its external data has an absolute path: \"/etc/passwd\"");
    make_external(&k, NULL, NULL, NULL);
    expect_error(&k, "model.onnx: initializer \"w\": its external data has no location: \"\"");
    char link[256];
    snprintf(link, sizeof link, "%s/link.bin", k.folder);
    assert_int_equal(symlink("/etc/passwd", link), 0);
    make_external(&k, "link.bin", NULL, NULL);
    expect_error(&k, "model.onnx: initializer \"w\": its external data file \"link.bin\" is a link that leaves the "
                     "model's folder");
    write_beside(&k, "w.bin", sizeof data, data);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("w.bin", link), 0); /* stays inside */
    make_import(&k);
    make_deinit(&k);
}

/* ---- random damage ---- */

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* Either it is refused with a message, or it is a module that verifies. */
static void test_mutations(void **state)
{
    (void)state;
    maker k;
    make_mlp(&k);
    make_ints(&k, "shape", 2, 2, -1);
    make_node(&k, "Reshape", "", "y,shape", "r");
    make_int_attribute(&k, make_node(&k, "Softmax", "", "r", "p"), "axis", -1);
    make_int_attribute(&k, make_node(&k, "Concat", "", "p,r", "c"), "axis", 0);
    make_output(&k, "c");
    uint8_t *bytes;
    size_t n = make_bytes(&k, &bytes);
    uint64_t seed = 88172645463325252u;
    int accepted = 0;
    for (int round = 0; round < 3000; round++) {
        ap_ctx *ctx = ap_ctx_create();
        assert_non_null(ctx);
        uint8_t *copy = ap_arena_memdup(&ctx->arena, bytes, n);
        for (uint64_t edits = 1 + next_random(&seed) % 3; edits; edits--)
            copy[next_random(&seed) % n] = (uint8_t)(round % 2 ? next_random(&seed) : next_random(&seed) % 16);
        assert_int_equal(ap_file_write(ctx, k.path, copy, n), AP_OK);
        ap_module *m;
        ap_import_info info;
        ap_status s = ap_onnx_import(ctx, k.path, &(ap_import_options){0}, &m, &info);
        if (s == AP_OK)
            assert_int_equal(ap_module_verify(m), AP_OK);
        else
            assert_true(ctx->diags.len > 0 && s != AP_ERR_BUG);
        accepted += s == AP_OK;
        ap_ctx_release(ctx);
    }
    assert_true(accepted > 100 && accepted < 2900);
    make_deinit(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_onnx),     cmocka_unit_test(test_missing_file),
        cmocka_unit_test(test_truncated),    cmocka_unit_test(test_wire_types),
        cmocka_unit_test(test_deep_nesting), cmocka_unit_test(test_unknown_operators),
        cmocka_unit_test(test_graph_errors), cmocka_unit_test(test_shape_mismatch),
        cmocka_unit_test(test_tensor_sizes), cmocka_unit_test(test_dims),
        cmocka_unit_test(test_external),     cmocka_unit_test(test_external_escapes),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
