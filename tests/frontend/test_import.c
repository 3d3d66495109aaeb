/* What import makes of whole models: names, parameters, order, folding, inputs and outputs, functions. */
#include "tests/frontend/make_model.h"

#include <fcntl.h>

static const char *printed(maker *k)
{
    ap_text t;
    ap_text_init(&t, &k->ctx->arena);
    ap_module_print(k->m, &t);
    return ap_text_str(&t);
}

static int count_op(const maker *k, ap_op op)
{
    int n = 0;
    const ap_block_info *b = ap_block_at(k->m, k->m->funcs.at[0].body);
    for (uint32_t i = 0; i < b->nodes.len; i++)
        n += ap_node_at(k->m, b->nodes.at[i])->op == op;
    return n;
}

static void test_mlp(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    const float w[6] = {1, 2, 3, 4, 5, 6}, b[2] = {-10, 0.5f};
    /* listed before what it needs; the initializer is an input as well, as in IR 3 */
    make_input(&k, "w", 1, "3,2");
    make_input(&k, "x", 1, "2,3");
    make_f32(&k, "w", "3,2", 6, w);
    make_f32(&k, "b", "2", 2, b);
    make_node(&k, "Relu", "act", "s", "y");
    make_node(&k, "Add", "", "h,b", "s");
    make_node(&k, "MatMul", "act", "x,w", "h");
    make_output(&k, "y");
    make_import(&k);
    const ap_func_info *f = &k.m->funcs.at[0];
    assert_int_equal(f->narguments, 1);
    assert_string_equal(ap_name_str(k.ctx, f->result_name[0]), "y");
    assert_int_equal(k.m->symbols.len, 2);
    const ap_data *d = &k.m->symbols.at[0].data;
    assert_int_equal(d->kind, AP_DATA_FILE);
    assert_string_equal(ap_name_str(k.ctx, d->file), "model.onnx");
    assert_string_equal(ap_name_str(k.ctx, k.m->folder), k.folder);
    const char *text = printed(&k);
    assert_non_null(strstr(text, "%h = contract %x, @w {mk,kn->mn} : f32[2,2]"));
    /* two nodes are called "act": both go by their first output, the unnamed one too */
    assert_non_null(strstr(text, "loc(\"h\", \"MatMul\")"));
    assert_non_null(strstr(text, "loc(\"s\", \"Add\")"));
    assert_non_null(strstr(text, "loc(\"y\", \"Relu\")"));
    ap_tensor x = make_data(&k, 1, 2, DIMS(2, 3), NUMBERS(1, 0, 0, 1, 1, 1));
    expect_result(&k, &x, "[2,2]", 4, NUMBERS(0, 2.5, 0, 12.5));
    make_deinit(&k);
}

/* Shape, Gather, Concat and Reshape leave one view and no integers. */
static void test_shape_arithmetic(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    make_input(&k, "x", 1, "B,S,12");
    make_i64(&k, "zero", "", 1, (int64_t[]){0});
    make_i64(&k, "one", "", 1, (int64_t[]){1});
    make_ints(&k, "axis0", 1, 0);
    make_ints(&k, "tail", 2, 3, 4);
    make_node(&k, "Shape", "", "x", "shape");
    make_node(&k, "Gather", "", "shape,zero", "batch");
    make_node(&k, "Gather", "", "shape,one", "seq");
    make_node(&k, "Unsqueeze", "", "batch,axis0", "b1");
    make_node(&k, "Unsqueeze", "", "seq,axis0", "s1");
    make_int_attribute(&k, make_node(&k, "Concat", "", "b1,s1,tail", "target"), "axis", 0);
    make_node(&k, "Reshape", "heads", "x,target", "y");
    make_output(&k, "y");
    make_save(&k);
    const ap_dim_binding dims[] = {{"B", 2}, {"S", 5}};
    assert_int_equal(make_import_with(&k, &(ap_import_options){.ndims = 2, .dim = dims}), AP_OK);
    assert_int_equal(ap_block_at(k.m, 0)->nodes.len, 2);
    assert_non_null(strstr(printed(&k), "%y = reshape %x : f32[2,5,3,4]"));
    make_deinit(&k);
}

static void test_reshapes_that_are_views(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    make_input(&k, "x", 1, "2,3,1,4");
    make_ints(&k, "to", 4, 1, 2, 3, 4);
    make_ints(&k, "same", 4, 0, 0, -1, 0);
    make_node(&k, "Reshape", "", "x,to", "a");
    make_node(&k, "Reshape", "", "x,same", "b");
    make_int_attribute(&k, make_node(&k, "Cast", "", "b", "c"), "to", 1);
    make_output(&k, "a");
    make_output(&k, "c");
    make_import(&k);
    assert_non_null(strstr(printed(&k), "%a = view %x {ab1d->1abd} : f32[1,2,3,4]"));
    assert_non_null(strstr(printed(&k), "ret %a, %x"));
    make_deinit(&k);
}

/* Outputs that no node computes; constants of every form. */
static void test_outputs_and_constants(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    const float w[4] = {1, 2, 3, 4};
    make_input(&k, "x", 1, "2");
    make_input(&k, "unused", 7, "3");
    make_f32(&k, "w", "2,2", 4, w);
    make_f32(&k, "half", "", 1, (float[]){0.5f});
    Onnx__NodeProto *c = make_node(&k, "Constant", "c", "", "c");
    make_attribute(&k, c, "value", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR)->t =
        make_raw(&k, "", 1, "2", w, 2 * sizeof *w);
    make_node(&k, "Mul", "", "x,half", "m");
    make_node(&k, "Add", "", "m,c", "y");
    make_output(&k, "y");
    make_output(&k, "x");
    make_output(&k, "w");
    make_output(&k, "half");
    make_import(&k);
    assert_int_equal(k.m->funcs.at[0].narguments, 2);
    assert_int_equal(k.m->symbols.len, 1); /* half and c are constants */
    const ap_tensor in[] = {make_data(&k, 1, 1, DIMS(2), NUMBERS(2, 4)),
                            make_data(&k, 7, 1, DIMS(3), NUMBERS(0, 0, 0))};
    expect_result(&k, in, "[2]", 2, NUMBERS(2, 4));
    ap_tensor out[4];
    assert_int_equal(ap_eval_func(k.m, 0, &k.ctx->arena, in, out), AP_OK);
    assert_true(out[1].at[1].f == 4 && out[2].at[3].f == 4 && out[3].count == 1 && out[3].at[0].f == 0.5);
    make_deinit(&k);
}

/* Values of all typed fields, halves as bit patterns in int32_data. */
static void test_typed_fields(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    Onnx__TensorProto *half = make_tensor(&k, "half", 10, "2"), *flag = make_tensor(&k, "flag", 9, "2");
    Onnx__TensorProto *wide = make_tensor(&k, "wide", 13, "1"), *many = make_tensor(&k, "many", 1, "1000");
    half->n_int32_data = flag->n_int32_data = 2;
    half->int32_data = (int32_t[]){0x3c00, 0xc000}; /* 1 and -2 */
    flag->int32_data = (int32_t[]){0, 1};
    wide->n_uint64_data = 1;
    wide->uint64_data = (uint64_t[]){UINT64_MAX};
    many->n_float_data = 1000;
    many->float_data = AP_NEW_ARRAY(&k.ctx->arena, float, 1000);
    many->float_data[999] = 7;
    k.graph.n_initializer = 4;
    memcpy(k.initializer, (Onnx__TensorProto *[]){half, flag, wide, many}, sizeof(void *) * 4);
    make_output(&k, "half");
    make_output(&k, "flag");
    make_output(&k, "wide");
    make_output(&k, "many");
    make_import(&k);
    ap_tensor out[4];
    assert_int_equal(ap_eval_func(k.m, 0, &k.ctx->arena, NULL, out), AP_OK);
    assert_true(out[0].at[0].f == 1 && out[0].at[1].f == -2);
    assert_true(out[1].at[0].i == 0 && out[1].at[1].i == 1);
    assert_true((uint64_t)out[2].at[0].i == UINT64_MAX);
    assert_true(out[3].at[999].f == 7 && out[3].at[0].f == 0);
    /* a packed list of floats is as good as raw bytes: it stays in the file */
    ap_symbol s = ap_module_find_symbol(k.m, "many");
    assert_int_equal(k.m->symbols.at[s].data.kind, AP_DATA_FILE);
    make_deinit(&k);
}

/* A model's own function, called twice with attributes of its own, of the call, and by default. */
static void test_functions(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    Onnx__FunctionProto f, *list[1] = {&f};
    onnx__function_proto__init(&f);
    f.name = make_str(&k, "Leaky");
    f.domain = make_str(&k, "own");
    f.n_input = make_names(&k, "a", &f.input);
    f.n_output = make_names(&k, "b", &f.output);
    f.n_attribute = make_names(&k, "slope", &f.attribute);
    f.n_opset_import = 1;
    f.opset_import = k.opsets;
    Onnx__NodeProto *inner[2] = {make_node_alone(&k, "LeakyRelu", "leaky", "a", "t"),
                                 make_node_alone(&k, "Neg", "", "t", "b")};
    make_attribute(&k, inner[0], "alpha", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT)->ref_attr_name =
        make_str(&k, "slope");
    f.n_node = 2;
    f.node = inner;
    k.model.n_functions = 1;
    k.model.functions = list;
    make_input(&k, "x", 1, "2");
    Onnx__NodeProto *call = make_node(&k, "Leaky", "first", "x", "y");
    call->domain = make_str(&k, "own");
    Onnx__AttributeProto *slope = make_attribute(&k, call, "slope", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    slope->has_f = 1;
    slope->f = 0.5f;
    make_node(&k, "Leaky", "second", "y", "z")->domain = make_str(&k, "own");
    make_output(&k, "z");
    make_import(&k);
    assert_non_null(strstr(printed(&k), "loc(\"first/leaky\", \"LeakyRelu\")"));
    ap_tensor x = make_data(&k, 1, 1, DIMS(2), NUMBERS(-2, 4));
    /* -leaky(-2) = 1, -leaky(1) = -1; -leaky(4) = -4, -leaky(-4) = 0.04 with the default slope */
    expect_result(&k, &x, "[2]", 2, NUMBERS(-1, 0.04));
    inner[1]->op_type = make_str(&k, "Leaky");
    inner[1]->domain = make_str(&k, "own");
    make_save(&k);
    assert_int_equal(make_import_with(&k, &(ap_import_options){0}), AP_ERR_MODEL);
    assert_non_null(strstr(make_message(&k, 0), "functions call each other more than 100 deep"));
    make_deinit(&k);
}

/* Parameters hold no copies: 3 GB of weights, most of them a hole in the file, in next to no memory. */
static void test_large_file(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    make_input(&k, "x", 1, "1");
    make_node(&k, "Identity", "", "x", "y");
    make_output(&k, "y");
    make_output(&k, "w");
    uint8_t *head;
    k.model.graph = NULL;
    size_t nhead = make_bytes(&k, &head);
    k.model.graph = &k.graph;
    Onnx__TensorProto *w = make_tensor(&k, "w", 1, "800000000");
    size_t ntensor = onnx__tensor_proto__get_packed_size(w), ngraph = onnx__graph_proto__get_packed_size(&k.graph);
    const uint64_t raw = 3200000000u;
    uint8_t b[4096];
    size_t n = 0;
#define VARINT(x)                                                                                                      \
    for (uint64_t v = (x), more = 1; more; v >>= 7) {                                                                  \
        more = v > 0x7f;                                                                                               \
        b[n++] = (uint8_t)((v & 0x7f) | (more ? 0x80 : 0));                                                            \
    }
    memcpy(b, head, nhead);
    n = nhead;
    VARINT(7u << 3 | 2)
    VARINT(ngraph + 6 + ntensor + 6 + raw)
    onnx__graph_proto__pack(&k.graph, b + n);
    n += ngraph;
    VARINT(5u << 3 | 2)
    VARINT(ntensor + 6 + raw)
    onnx__tensor_proto__pack(w, b + n);
    n += ntensor;
    VARINT(9u << 3 | 2)
    VARINT(raw)
#undef VARINT
    int fd = open(k.path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0 && write(fd, b, n) == (ssize_t)n && ftruncate(fd, (off_t)(n + raw)) == 0);
    close(fd);
    size_t before = k.ctx->arena.bytes + k.ctx->scratch.bytes;
    ap_import_info info;
    assert_int_equal(ap_onnx_import(k.ctx, k.path, &(ap_import_options){0}, &k.m, &info), AP_OK);
    assert_true(k.ctx->arena.bytes + k.ctx->scratch.bytes - before < 1 << 20);
    assert_int_equal(info.parameters, 800000000);
    assert_int_equal(k.m->symbols.at[0].data.offset, n);
    assert_int_equal(k.m->symbols.at[0].data.size, raw);
    make_deinit(&k);
}

/* A Constant appended by an editing tool overrides an earlier one; any other second definition is an error. */
static void test_constant_overridden(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    make_input(&k, "x", 1, "1");
    for (int i = 0; i < 2; i++) {
        Onnx__NodeProto *c = make_node(&k, "Constant", "", "", "c");
        Onnx__AttributeProto *a = make_attribute(&k, c, "value_float", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
        a->has_f = 1;
        a->f = (float)(i + 1);
    }
    make_node(&k, "Add", "", "x,c", "y");
    make_output(&k, "y");
    make_import(&k);
    ap_tensor x = make_data(&k, 1, 1, DIMS(1), NUMBERS(5));
    expect_result(&k, &x, "[1]", 1, NUMBERS(7));
    make_deinit(&k);
}

static void test_info(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    const float w[6] = {0};
    make_input(&k, "x", 1, "4,2");
    make_f32(&k, "w", "2,3", 6, w);
    make_f32(&k, "dead", "2,3", 6, w);
    make_node(&k, "MatMul", "", "x,w", "a");
    make_node(&k, "Relu", "", "a", "b");
    make_node(&k, "Gelu", "", "b", "c")->domain = make_str(&k, "com.microsoft");
    make_node(&k, "Relu", "", "c", "y");
    make_output(&k, "y");
    make_save(&k);
    ap_import_info info;
    assert_int_equal(ap_onnx_import(k.ctx, k.path, &(ap_import_options){0}, &k.m, &info), AP_OK);
    assert_int_equal(info.onnx_nodes, 4);
    assert_int_equal(info.nops, 3);
    assert_string_equal(info.op_name[0], "MatMul");
    assert_string_equal(info.op_name[2], "com.microsoft.Gelu");
    assert_int_equal(info.op_count[1], 2);
    assert_int_equal(info.parameters, 6);
    assert_int_equal(info.parameter_bytes, 24);
    assert_int_equal(info.opset, 13);
    assert_int_equal(count_op(&k, AP_OP_CONTRACT), 1);
    make_deinit(&k);
}

/* Which dimension of each input is the batch: by name, by axis, by what all inputs have in common. */
static void test_batch_dims(void **state)
{
    (void)state;
    static const ap_dim_binding dims[] = {{"b", 4}, {"s", 6}, {"N", 2}};
    static const struct {
        const char *x, *y, *batch_dim;
        int8_t want[2];
    } cases[] = {
        {"b,s", "b,8", NULL, {0, 0}},  {"s,b", "4,b", "b", {1, 1}},    {"s,b", "4,8", "b", {1, -1}},
        {"s,N", "N,8", NULL, {1, 0}},  {"4,3", "4,8", NULL, {0, 0}},   {"4,3", "5,8", NULL, {-1, -1}},
        {"4,3", "5,3", "y:1", {1, 1}}, {"4,3", "5,8", "x:0", {0, -1}}, {"s,b", "b,8", "x:1", {1, 0}},
        {"4,3", "", NULL, {-1, -1}},   {"b,s", "5,8", NULL, {-1, -1}}, {"4,?", "4,3", NULL, {0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        maker k;
        ap_import_info info;
        make_init(&k, 13);
        make_input(&k, "x", 1, cases[i].x);
        make_input(&k, "y", 1, cases[i].y);
        make_node(&k, "Relu", "", "x", "z");
        make_output(&k, "z");
        make_save(&k);
        const ap_input_shape given = {.name = "x", .rank = 2, .dim = {4, 3}};
        ap_import_options opt = {.ndims = 3, .dim = dims, .batch_dim = cases[i].batch_dim};
        opt.ndims = strchr(cases[i].x, 'b') || strchr(cases[i].x, 's') ? strchr(cases[i].x, 'N') ? 3 : 2 : 0;
        opt.dim = opt.ndims == 3 ? &dims[1] : dims;
        opt.ndims -= opt.ndims == 3;
        opt.nshapes = strchr(cases[i].x, '?') != NULL;
        opt.shape = &given;
        ap_status s = ap_onnx_import(k.ctx, k.path, &opt, &k.m, &info);
        for (uint32_t d = 0; d < k.ctx->diags.len; d++)
            print_error("case %zu: %s\n", i, ap_diag_str(k.ctx, &k.ctx->diags.at[d]));
        assert_int_equal(s, AP_OK);
        for (int j = 0; j < 2; j++)
            assert_int_equal(info.batch_dim[j], cases[i].want[j]);
        make_deinit(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_shape_arithmetic),
        cmocka_unit_test(test_reshapes_that_are_views),
        cmocka_unit_test(test_outputs_and_constants),
        cmocka_unit_test(test_typed_fields),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_large_file),
        cmocka_unit_test(test_constant_overridden),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_batch_dims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
