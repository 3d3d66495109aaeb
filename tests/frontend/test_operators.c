/* Single operators in the forms that other importers got wrong; the numbers are from the ONNX specification. What
 * the ONNX backend tests cover is not repeated (backend_suite.py). */
#include "tests/frontend/make_model.h"

static const double range10[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

/* y = op(x, more...); `x` is f32 with the given dims */
static Onnx__NodeProto *one(maker *k, int64_t opset, const char *op, const char *dims, const char *in)
{
    make_init(k, opset);
    make_input(k, "x", 1, dims);
    make_output(k, "y");
    return make_node(k, op, "n", in, "y");
}

static void run(maker *k, int rank, const int64_t *dims, const double *x, const char *shape, int n, const double *want)
{
    make_import(k);
    ap_tensor t = make_data(k, 1, rank, dims, x);
    expect_result(k, &t, shape, n, want);
    make_deinit(k);
}

static void refused(maker *k, const char *text)
{
    expect_error(k, text);
    make_deinit(k);
}

static void test_softmax(void **state)
{
    (void)state;
    maker k;
    double zero[24] = {0}, twelfth[24], one_each[3] = {1, 1, 1};
    for (int i = 0; i < 24; i++)
        twelfth[i] = 1.0 / 12;
    one(&k, 11, "Softmax", "2,3,4", "x"); /* flattened at axis 1 */
    run(&k, 3, DIMS(2, 3, 4), zero, "[2,3,4]", 24, twelfth);
    make_int_attribute(&k, one(&k, 13, "Softmax", "1,3", "x"), "axis", -2);
    run(&k, 2, DIMS(1, 3), range10, "[1,3]", 3, one_each);
    one(&k, 13, "Softmax", "2", "x"); /* the largest is taken off first */
    run(&k, 1, DIMS(2), NUMBERS(1000, 1000), "[2]", 2, NUMBERS(0.5, 0.5));
}

static void test_clip(void **state)
{
    (void)state;
    maker k;
    one(&k, 13, "Clip", "3", "x,,hi");
    make_f32(&k, "hi", "", 1, (float[]){6});
    run(&k, 1, DIMS(3), NUMBERS(-5, 0, 50), "[3]", 3, NUMBERS(-5, 0, 6));
    one(&k, 13, "Clip", "3", "x");
    run(&k, 1, DIMS(3), NUMBERS(-5, 0, 5), "[3]", 3, NUMBERS(-5, 0, 5));
    one(&k, 13, "Clip", "2", "x,lo,hi"); /* NaN stays */
    make_f32(&k, "lo", "", 1, (float[]){0});
    make_f32(&k, "hi", "", 1, (float[]){1});
    run(&k, 1, DIMS(2), NUMBERS(NAN, 3), "[2]", 2, NUMBERS(NAN, 1));
}

static void slice_of(maker *k, const char *dims, int64_t start, int64_t end, int64_t step)
{
    one(k, 13, "Slice", dims, "x,s,e,a,t");
    make_i64(k, "s", "1", 1, &start);
    make_i64(k, "e", "1", 1, &end);
    make_ints(k, "a", 1, 0);
    make_i64(k, "t", "1", 1, &step);
}

static void test_slice(void **state)
{
    (void)state;
    maker k;
    slice_of(&k, "10", 9, 0, -1);
    run(&k, 1, DIMS(10), range10, "[9]", 9, NUMBERS(9, 8, 7, 6, 5, 4, 3, 2, 1));
    slice_of(&k, "10", 9, 0, -3);
    run(&k, 1, DIMS(10), range10, "[3]", 3, NUMBERS(9, 6, 3));
    slice_of(&k, "10", INT64_MAX, INT64_MIN, -4);
    run(&k, 1, DIMS(10), range10, "[3]", 3, NUMBERS(9, 5, 1));
    slice_of(&k, "10", -3, INT64_MAX, 1);
    run(&k, 1, DIMS(10), range10, "[3]", 3, NUMBERS(7, 8, 9));
    slice_of(&k, "5", 0, 5, -1);
    run(&k, 1, DIMS(5), range10, "[0]", 0, NULL);
    slice_of(&k, "0,3", INT64_MAX, INT64_MIN, -1);
    run(&k, 2, DIMS(0, 3), NULL, "[0,3]", 0, NULL);
    slice_of(&k, "3,2", 2, 0, -1);
    run(&k, 2, DIMS(3, 2), range10, "[2,2]", 4, NUMBERS(4, 5, 2, 3));
    slice_of(&k, "4", 0, 4, 0);
    refused(&k, "model.onnx: node \"n\" (Slice): a step is zero");
}

static void reshape_to(maker *k, const char *dims, int allowzero, int n, int a, int b, int c)
{
    Onnx__NodeProto *node = one(k, 14, "Reshape", dims, "x,to");
    make_int_attribute(k, node, "allowzero", allowzero);
    make_ints(k, "to", n, a, b, c);
}

static void test_reshape(void **state)
{
    (void)state;
    maker k;
    reshape_to(&k, "0,3,4", 1, 3, 3, 4, 0);
    run(&k, 3, DIMS(0, 3, 4), NULL, "[3,4,0]", 0, NULL);
    reshape_to(&k, "0,3,4", 1, 3, 3, -1, 0);
    refused(&k, "model.onnx: node \"n\" (Reshape): with allowzero, a shape cannot hold both 0 and -1");
    reshape_to(&k, "0,8,2", 0, 3, 4, 2, -1);
    run(&k, 3, DIMS(0, 8, 2), NULL, "[4,2,0]", 0, NULL);
    reshape_to(&k, "2,0", 0, 3, 1, 2, 0);
    refused(&k, "model.onnx: node \"n\" (Reshape): entry 2 of the shape copies a dimension that [2,0] does not have");
    reshape_to(&k, "2,0", 1, 3, 1, 2, 0);
    run(&k, 2, DIMS(2, 0), NULL, "[1,2,0]", 0, NULL);
    reshape_to(&k, "2,3", 0, 2, 4, -1, 0);
    refused(&k, "model.onnx: node \"n\" (Reshape): the -1 of the shape [4,-1] cannot be found for [2,3]");
    reshape_to(&k, "0,3", 0, 2, 0, -1, 0);
    refused(&k, "model.onnx: node \"n\" (Reshape): the -1 of the shape [0,-1] cannot be found for [0,3]");
    reshape_to(&k, "2,3", 0, 2, 7, 1, 0);
    refused(&k, "model.onnx: node \"n\" (Reshape): 6 elements [2,3] cannot become 7 elements [7,1]");
}

static void test_gather(void **state)
{
    (void)state;
    maker k;
    one(&k, 13, "Gather", "3,4", "x,i");
    make_ints(&k, "i", 2, -1, 0);
    run(&k, 2, DIMS(3, 4), range10, "[2,4]", 8, NUMBERS(8, 9, 10, 11, 0, 1, 2, 3));
    one(&k, 13, "Gather", "3,2", "x,i"); /* no slice: a real gather of constant indices */
    make_ints(&k, "i", 4, 2, 0, -3, 1);
    run(&k, 2, DIMS(3, 2), range10, "[4,2]", 8, NUMBERS(4, 5, 0, 1, 0, 1, 2, 3));
    one(&k, 13, "Gather", "3", "x,i");
    make_ints(&k, "i", 1, 5);
    refused(&k, "model.onnx: node \"n\" (Gather): index 5 is out of range for the 3 entries along the axis");
    /* at run time: negative ones count from the end, wrong ones are an error that names the node */
    one(&k, 13, "Gather", "3", "x,i");
    make_input(&k, "i", 7, "2");
    make_import(&k);
    ap_tensor in[] = {make_data(&k, 1, 1, DIMS(3), range10), make_data(&k, 7, 1, DIMS(2), NUMBERS(-1, 1))};
    expect_result(&k, in, "[2]", 2, NUMBERS(2, 1));
    in[1].at[0].i = 3;
    ap_tensor out;
    assert_int_equal(ap_eval_func(k.m, 0, &k.ctx->arena, in, &out), AP_ERR_MODEL);
    assert_non_null(strstr(make_message(&k, k.ctx->diags.len - 1), "node \"n\" (Gather)"));
    make_deinit(&k);
}

/* The output is a number of rank 0 that comes from shapes. */
static void test_scalar_output(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    make_input(&k, "x", 1, "3,5");
    make_i64(&k, "i", "", 1, (int64_t[]){1});
    make_node(&k, "Shape", "", "x", "s");
    make_node(&k, "Gather", "", "s,i", "y");
    make_output(&k, "y");
    make_import(&k);
    ap_tensor x = make_data(&k, 1, 2, DIMS(3, 5), (double[15]){0});
    expect_result(&k, &x, "[]", 1, NUMBERS(5));
    make_deinit(&k);
}

static void test_shape_attributes(void **state)
{
    (void)state;
    maker k;
    make_int_attribute(&k, one(&k, 15, "Shape", "3,4,5", "x"), "start", -2);
    run(&k, 3, DIMS(3, 4, 5), (double[60]){0}, "[2]", 2, NUMBERS(4, 5));
    make_int_attribute(&k, one(&k, 15, "Shape", "3,4,5", "x"), "end", -1);
    run(&k, 3, DIMS(3, 4, 5), (double[60]){0}, "[2]", 2, NUMBERS(3, 4));
    /* a constant of one element keeps its rank */
    Onnx__NodeProto *n = one(&k, 13, "Concat", "3,4", "s,minus");
    make_int_attribute(&k, n, "axis", 0);
    make_node(&k, "Shape", "", "x", "s");
    make_ints(&k, "minus", 1, -1);
    run(&k, 2, DIMS(3, 4), range10, "[3]", 3, NUMBERS(3, 4, -1));
}

static void test_matmul(void **state)
{
    (void)state;
    maker k;
    one(&k, 13, "MatMul", "3", "x,x"); /* dot product: rank 0 */
    run(&k, 1, DIMS(3), NUMBERS(1, 2, 3), "[]", 1, NUMBERS(14));
    one(&k, 13, "MatMul", "3", "x,m"); /* row times matrix */
    make_f32(&k, "m", "3,2", 6, (float[]){1, 2, 3, 4, 5, 6});
    run(&k, 1, DIMS(3), NUMBERS(1, 1, 1), "[2]", 2, NUMBERS(9, 12));
    one(&k, 13, "MatMul", "2,1,1,2", "x,m"); /* batches 2,1 and 3: 2,3 */
    make_f32(&k, "m", "3,2,1", 6, (float[]){1, 2, 3, 4, 5, 6});
    run(&k, 4, DIMS(2, 1, 1, 2), NUMBERS(1, 0, 0, 1), "[2,3,1,1]", 6, NUMBERS(1, 3, 5, 2, 4, 6));
    one(&k, 13, "MatMul", "2,1", "x,m"); /* inner dimension of one entry */
    make_f32(&k, "m", "1,2", 2, (float[]){3, 4});
    run(&k, 2, DIMS(2, 1), NUMBERS(1, 2), "[2,2]", 4, NUMBERS(3, 4, 6, 8));
    one(&k, 13, "MatMul", "2,0", "x,m"); /* of none */
    make_input(&k, "m", 1, "0,2");
    make_import(&k);
    ap_tensor in[] = {make_data(&k, 1, 2, DIMS(2, 0), NULL), make_data(&k, 1, 2, DIMS(0, 2), NULL)};
    expect_result(&k, in, "[2,2]", 4, NUMBERS(0, 0, 0, 0));
    make_deinit(&k);
    one(&k, 13, "MatMul", "2,3,4", "x,m");
    make_f32(&k, "m", "3,4,2", 24, (float[24]){0});
    refused(&k, "model.onnx: node \"n\" (MatMul): batch dimensions differ: 2 and 3");
}

static void test_gemm(void **state)
{
    (void)state;
    static const struct {
        const char *dims;
        int n;
        double want[4];
    } c[] = {{"2", 2, {11, 21, 11, 21}},
             {"1", 1, {11, 11, 11, 11}},
             {"", 1, {11, 11, 11, 11}},
             {"2,1", 2, {11, 11, 21, 21}}};
    maker k;
    for (int i = 0; i < 4; i++) {
        make_int_attribute(&k, one(&k, 13, "Gemm", "2,1", "x,b,c"), "transB", 1);
        make_f32(&k, "b", "2,1", 2, (float[]){1, 1});
        make_f32(&k, "c", c[i].dims, (size_t)c[i].n, (float[]){10, 20});
        run(&k, 2, DIMS(2, 1), NUMBERS(1, 1), "[2,2]", 4, c[i].want);
    }
    one(&k, 13, "Gemm", "2,1", "x,b");
    make_f32(&k, "b", "", 1, (float[]){1});
    refused(&k, "model.onnx: node \"n\" (Gemm): the factors must be matrices, not [2,1] and []");
    one(&k, 13, "Gemm", "2,1", "x,b,c");
    make_f32(&k, "b", "1,2", 2, (float[]){1, 1});
    make_f32(&k, "c", "3,2,2", 12, (float[12]){0});
    refused(&k, "model.onnx: node \"n\" (Gemm): operand C [3,2,2] does not broadcast to [2,2]");
}

static void test_dropout(void **state)
{
    (void)state;
    maker k;
    for (int ratio = 0; ratio < 2; ratio++) {
        one(&k, 12, "Dropout", "2", "x,r,t");
        make_f32(&k, "r", "", 1, (float[]){ratio ? 0.5f : 0});
        k.initializer[k.graph.n_initializer++] = make_raw(&k, "t", 9, "", "\1", 1);
        if (ratio)
            refused(&k, "model.onnx: node \"n\" (Dropout): dropout in training mode is not supported");
        else
            run(&k, 1, DIMS(2), NUMBERS(3, 4), "[2]", 2, NUMBERS(3, 4));
    }
}

/* Integers stay integers; division truncates and does not trap. */
static void test_integers(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    make_input(&k, "a", 7, "6");
    make_input(&k, "b", 7, "6");
    make_node(&k, "Div", "", "a,b", "y");
    make_output(&k, "y");
    make_import(&k);
    ap_tensor in[] = {make_data(&k, 7, 1, DIMS(6), NUMBERS(8, -8, 7, -7, 5, 0)),
                      make_data(&k, 7, 1, DIMS(6), NUMBERS(-3, 3, -2, 2, 0, 1))};
    in[0].at[5].i = 9007199254740993;
    ap_tensor out;
    assert_int_equal(ap_eval_func(k.m, 0, &k.ctx->arena, in, &out), AP_OK);
    const int64_t want[] = {-2, -2, -3, -3, 0, 9007199254740993};
    for (int i = 0; i < 6; i++)
        assert_true(out.at[i].i == want[i]);
    make_deinit(&k);
}

static void test_reductions(void **state)
{
    (void)state;
    maker k;
    Onnx__NodeProto *n = one(&k, 18, "ReduceSumSquare", "2", "x,a");
    make_int_attribute(&k, n, "noop_with_empty_axes", 1);
    make_i64(&k, "a", "0", 0, (int64_t[]){0});
    run(&k, 1, DIMS(2), NUMBERS(2, 3), "[2]", 2, NUMBERS(4, 9));
    static const char *const op[] = {"ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"};
    const double identity[] = {0, 1, -INFINITY, INFINITY};
    for (int i = 0; i < 4; i++) { /* of nothing */
        make_int_attribute(&k, one(&k, 18, op[i], "0,3", "x,a"), "keepdims", 0);
        make_ints(&k, "a", 1, 0);
        run(&k, 2, DIMS(0, 3), NULL, "[3]", 3, (double[]){identity[i], identity[i], identity[i]});
    }
    make_int_attribute(&k, one(&k, 13, "ArgMax", "3", "x"), "select_last_index", 1);
    run(&k, 1, DIMS(3), NUMBERS(3, 1, 3), "[1]", 1, NUMBERS(2));
    one(&k, 13, "ReduceMax", "4", "x");
    run(&k, 1, DIMS(4), NUMBERS(NAN, NAN, NAN, 42), "[1]", 1, NUMBERS(NAN));
}

static void test_layer_norm(void **state)
{
    (void)state;
    maker k;
    one(&k, 17, "LayerNormalization", "1,4", "x,g");
    make_f32(&k, "g", "4", 4, (float[]){1, 1, 1, 1});
    run(&k, 2, DIMS(1, 4), NUMBERS(40000, 40001, 40002, 40003), "[1,4]", 4,
        NUMBERS(-1.341635, -0.447212, 0.447212, 1.341635));
}

static void test_split(void **state)
{
    (void)state;
    maker k;
    Onnx__NodeProto *n = one(&k, 18, "Split", "5", "x");
    n->n_output = make_names(&k, "a,b,y", &n->output);
    make_int_attribute(&k, n, "num_outputs", 3);
    run(&k, 1, DIMS(5), range10, "[1]", 1, NUMBERS(4));
}

static void test_split_impossible(void **state)
{
    (void)state;
    maker k;
    Onnx__NodeProto *n = one(&k, 18, "Split", "5", "x");
    n->n_output = make_names(&k, "a,b,c,y", &n->output);
    make_int_attribute(&k, n, "num_outputs", 4);
    refused(&k, "model.onnx: node \"n\" (Split): 5 entries do not split into 4 parts");
}

static void test_einsum(void **state)
{
    (void)state;
    maker k;
    make_str_attribute(&k, one(&k, 12, "Einsum", "2,3", "x,w,v"), "equation", "ab,bc,c->ca");
    make_f32(&k, "w", "3,2", 6, (float[]){1, 0, 0, 1, 1, 1});
    make_f32(&k, "v", "2", 2, (float[]){1, 10});
    run(&k, 2, DIMS(2, 3), range10, "[2,2]", 4, NUMBERS(2, 8, 30, 90));
    make_str_attribute(&k, one(&k, 12, "Einsum", "2,1", "x,w"), "equation", "ij,jk->ik"); /* j broadcasts */
    make_f32(&k, "w", "4,2", 8, (float[]){1, 2, 3, 4, 5, 6, 7, 8});
    run(&k, 2, DIMS(2, 1), NUMBERS(1, 2), "[2,2]", 4, NUMBERS(16, 20, 32, 40));
    make_str_attribute(&k, one(&k, 12, "Einsum", "2,2,2", "x"), "equation", "...ij -> ...ji");
    run(&k, 3, DIMS(2, 2, 2), range10, "[2,2,2]", 8, NUMBERS(0, 2, 1, 3, 4, 6, 5, 7));
}

static void test_pow(void **state)
{
    (void)state;
    maker k;
    one(&k, 13, "Pow", "3", "x,e");
    make_f32(&k, "e", "", 1, (float[]){2});
    make_import(&k);
    const ap_block_info *b = ap_block_at(k.m, 0);
    assert_int_equal(b->nodes.len, 2); /* mul, ret */
    assert_int_equal(ap_node_at(k.m, b->nodes.at[0])->op, AP_OP_MUL);
    ap_tensor x = make_data(&k, 1, 1, DIMS(3), NUMBERS(-3, 0.5, 2));
    expect_result(&k, &x, "[3]", 3, NUMBERS(9, 0.25, 4));
    make_deinit(&k);
    one(&k, 13, "Pow", "3", "x,e"); /* exponents of another type */
    make_ints(&k, "e", 3, 3, -1, 0);
    run(&k, 1, DIMS(3), NUMBERS(-3, 0.5, 2), "[3]", 3, NUMBERS(-27, 2, 1));
}

/* A factor of rank 0 keeps the shape of the other. */
static void test_rank0_factor(void **state)
{
    (void)state;
    maker k;
    make_init(&k, 13);
    make_input(&k, "x", 1, "1,2");
    make_input(&k, "s", 1, "");
    make_f32(&k, "one", "1", 1, (float[]){1});
    make_node(&k, "Mul", "", "s,one", "v");
    make_node(&k, "MatMul", "", "v,x", "y");
    make_output(&k, "y");
    make_import(&k);
    ap_tensor in[] = {make_data(&k, 1, 2, DIMS(1, 2), NUMBERS(3, 4)), make_data(&k, 1, 0, NULL, NUMBERS(2))};
    expect_result(&k, in, "[2]", 2, NUMBERS(6, 8));
    make_deinit(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_reshape),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_scalar_output),
        cmocka_unit_test(test_shape_attributes),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_impossible),
        cmocka_unit_test(test_einsum),
        cmocka_unit_test(test_pow),
        cmocka_unit_test(test_rank0_factor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
