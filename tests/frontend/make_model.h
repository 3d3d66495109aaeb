/* ONNX files for tests, written with protobuf-c from a few calls. Everything lives in one arena and, on disk, in
 * one temporary folder. */
#ifndef AP_TESTS_FRONTEND_MAKE_MODEL_H
#define AP_TESTS_FRONTEND_MAKE_MODEL_H

#include "frontend/frontend.h"
#include "frontend/tensor.h"
#include "ir/base/file.h"
#include "ir/eval.h"
#include "ir/text_form.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MAKE_MAX 64

typedef struct maker {
    ap_ctx *ctx;
    char folder[64];
    char path[128];
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset[2];
    Onnx__OperatorSetIdProto *opsets[2];
    Onnx__NodeProto *node[MAKE_MAX];
    Onnx__ValueInfoProto *input[MAKE_MAX], *output[MAKE_MAX];
    Onnx__TensorProto *initializer[MAKE_MAX];
    ap_module *m; /* after make_import */
} maker;

static inline char *make_str(maker *k, const char *s)
{
    return ap_arena_strdup(&k->ctx->arena, s);
}

static inline void make_init(maker *k, int64_t opset)
{
    memset(k, 0, sizeof *k);
    k->ctx = ap_ctx_create();
    assert_non_null(k->ctx);
    strcpy(k->folder, "/tmp/ap_frontend_XXXXXX");
    assert_non_null(mkdtemp(k->folder));
    snprintf(k->path, sizeof k->path, "%s/model.onnx", k->folder);
    onnx__model_proto__init(&k->model);
    onnx__graph_proto__init(&k->graph);
    k->model.has_ir_version = 1;
    k->model.ir_version = 8;
    k->model.graph = &k->graph;
    for (int i = 0; i < 2; i++) {
        onnx__operator_set_id_proto__init(&k->opset[i]);
        k->opsets[i] = &k->opset[i];
        k->opset[i].has_version = 1;
    }
    k->opset[0].domain = make_str(k, "");
    k->opset[0].version = opset;
    k->opset[1].domain = make_str(k, "com.microsoft");
    k->opset[1].version = 1;
    k->model.n_opset_import = 2;
    k->model.opset_import = k->opsets;
    k->graph.node = k->node;
    k->graph.input = k->input;
    k->graph.output = k->output;
    k->graph.initializer = k->initializer;
}

static inline void make_deinit(maker *k)
{
    ap_dir_remove(k->ctx, k->folder);
    ap_ctx_release(k->ctx);
}

/* dims: "2,N,?" (a number, a name, unknown), "" for rank 0, NULL for no shape */
static inline Onnx__ValueInfoProto *make_value(maker *k, const char *name, int dtype, const char *dims)
{
    ap_arena *a = &k->ctx->arena;
    Onnx__ValueInfoProto *v = AP_NEW(a, Onnx__ValueInfoProto);
    onnx__value_info_proto__init(v);
    v->name = make_str(k, name);
    v->type = AP_NEW(a, Onnx__TypeProto);
    onnx__type_proto__init(v->type);
    v->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    Onnx__TypeProto__Tensor *t = v->type->tensor_type = AP_NEW(a, Onnx__TypeProto__Tensor);
    onnx__type_proto__tensor__init(t);
    t->has_elem_type = 1;
    t->elem_type = dtype;
    if (!dims)
        return v;
    t->shape = AP_NEW(a, Onnx__TensorShapeProto);
    onnx__tensor_shape_proto__init(t->shape);
    t->shape->dim = AP_NEW_ARRAY(a, Onnx__TensorShapeProto__Dimension *, 16);
    char *copy = make_str(k, dims), *save = NULL;
    for (char *s = strtok_r(copy, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
        Onnx__TensorShapeProto__Dimension *d = AP_NEW(a, Onnx__TensorShapeProto__Dimension);
        onnx__tensor_shape_proto__dimension__init(d);
        if (*s >= '0' && *s <= '9') {
            d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            d->dim_value = strtoll(s, NULL, 10);
        } else if (*s != '?') {
            d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            d->dim_param = s;
        }
        t->shape->dim[t->shape->n_dim++] = d;
    }
    return v;
}

static inline void make_input(maker *k, const char *name, int dtype, const char *dims)
{
    k->input[k->graph.n_input++] = make_value(k, name, dtype, dims);
}

/* Type and shape of outputs are left open. */
static inline void make_output(maker *k, const char *name)
{
    Onnx__ValueInfoProto *v = AP_NEW(&k->ctx->arena, Onnx__ValueInfoProto);
    onnx__value_info_proto__init(v);
    v->name = make_str(k, name);
    k->output[k->graph.n_output++] = v;
}

static inline Onnx__TensorProto *make_tensor(maker *k, const char *name, int dtype, const char *dims)
{
    Onnx__TensorProto *t = AP_NEW(&k->ctx->arena, Onnx__TensorProto);
    onnx__tensor_proto__init(t);
    t->name = make_str(k, name);
    t->has_data_type = 1;
    t->data_type = dtype;
    t->dims = AP_NEW_ARRAY(&k->ctx->arena, int64_t, 16);
    char *copy = make_str(k, dims), *save = NULL;
    for (char *s = strtok_r(copy, ",", &save); s; s = strtok_r(NULL, ",", &save))
        t->dims[t->n_dims++] = strtoll(s, NULL, 10);
    return t;
}

static inline Onnx__TensorProto *make_raw(maker *k, const char *name, int dtype, const char *dims, const void *p,
                                          size_t n)
{
    Onnx__TensorProto *t = make_tensor(k, name, dtype, dims);
    t->has_raw_data = 1;
    t->raw_data.data = ap_arena_memdup(&k->ctx->arena, p, n);
    t->raw_data.len = n;
    return t;
}

static inline void make_f32(maker *k, const char *name, const char *dims, size_t n, const float *x)
{
    k->initializer[k->graph.n_initializer++] = make_raw(k, name, 1, dims, x, n * sizeof *x);
}

static inline void make_i64(maker *k, const char *name, const char *dims, size_t n, const int64_t *x)
{
    k->initializer[k->graph.n_initializer++] = make_raw(k, name, 7, dims, x, n * sizeof *x);
}

/* One number of rank 1 */
static inline void make_ints(maker *k, const char *name, int n, ...)
{
    int64_t x[16];
    char dims[16];
    va_list args;
    va_start(args, n);
    for (int i = 0; i < n; i++)
        x[i] = va_arg(args, int);
    va_end(args);
    snprintf(dims, sizeof dims, "%d", n);
    make_i64(k, name, dims, (size_t)n, x);
}

static inline size_t make_names(maker *k, const char *list, char ***out)
{
    *out = AP_NEW_ARRAY(&k->ctx->arena, char *, 32);
    size_t n = 0;
    char *p = make_str(k, list);
    while (*list && p) {
        (*out)[n++] = p;
        p = strchr(p, ',');
        if (p)
            *p++ = 0;
    }
    return n;
}

/* Names of inputs and outputs with commas; nothing between two commas leaves one out. */
static inline Onnx__NodeProto *make_node_alone(maker *k, const char *op, const char *name, const char *in,
                                               const char *out)
{
    Onnx__NodeProto *n = AP_NEW(&k->ctx->arena, Onnx__NodeProto);
    onnx__node_proto__init(n);
    n->op_type = make_str(k, op);
    n->name = make_str(k, name);
    n->n_input = make_names(k, in, &n->input);
    n->n_output = make_names(k, out, &n->output);
    n->attribute = AP_NEW_ARRAY(&k->ctx->arena, Onnx__AttributeProto *, 8);
    return n;
}

static inline Onnx__NodeProto *make_node(maker *k, const char *op, const char *name, const char *in, const char *out)
{
    return k->node[k->graph.n_node++] = make_node_alone(k, op, name, in, out);
}

static inline Onnx__AttributeProto *make_attribute(maker *k, Onnx__NodeProto *n, const char *name, int type)
{
    Onnx__AttributeProto *a = AP_NEW(&k->ctx->arena, Onnx__AttributeProto);
    onnx__attribute_proto__init(a);
    a->name = make_str(k, name);
    a->has_type = 1;
    a->type = (Onnx__AttributeProto__AttributeType)type;
    n->attribute[n->n_attribute++] = a;
    return a;
}

static inline void make_int_attribute(maker *k, Onnx__NodeProto *n, const char *name, int64_t x)
{
    Onnx__AttributeProto *a = make_attribute(k, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    a->has_i = 1;
    a->i = x;
}

static inline void make_str_attribute(maker *k, Onnx__NodeProto *n, const char *name, const char *s)
{
    Onnx__AttributeProto *a = make_attribute(k, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    a->has_s = 1;
    a->s.data = (uint8_t *)make_str(k, s);
    a->s.len = strlen(s);
}

static inline size_t make_bytes(maker *k, uint8_t **out)
{
    size_t n = onnx__model_proto__get_packed_size(&k->model);
    *out = ap_arena_alloc(&k->ctx->arena, n);
    assert_int_equal(onnx__model_proto__pack(&k->model, *out), n);
    return n;
}

static inline void make_save(maker *k)
{
    uint8_t *bytes;
    size_t n = make_bytes(k, &bytes);
    assert_int_equal(ap_file_write(k->ctx, k->path, bytes, n), AP_OK);
}

static inline ap_status make_import_with(maker *k, const ap_import_options *opt)
{
    k->ctx->diags.len = 0;
    ap_status s = ap_onnx_import(k->ctx, k->path, opt, &k->m, NULL);
    if (s == AP_OK)
        assert_int_equal(ap_module_verify(k->m), AP_OK);
    return s;
}

/* Saves, imports, and on failure prints the messages. */
static inline void make_import(maker *k)
{
    make_save(k);
    ap_status s = make_import_with(k, &(ap_import_options){0});
    for (uint32_t i = 0; s && i < k->ctx->diags.len; i++)
        print_error("%s\n", ap_diag_str(k->ctx, &k->ctx->diags.at[i]));
    assert_int_equal(s, AP_OK);
}

static inline const char *make_message(maker *k, uint32_t i)
{
    assert_true(i < k->ctx->diags.len);
    const char *s = ap_diag_str(k->ctx, &k->ctx->diags.at[i]);
    size_t n = strlen(k->folder);
    return strncmp(s, k->folder, n) == 0 ? s + n + 1 : s;
}

/* The import fails with exactly this one message, the folder cut off in front. */
static inline void expect_message(maker *k, const ap_import_options *opt, ap_status status, const char *text)
{
    assert_int_equal(make_import_with(k, opt), status);
    assert_string_equal(make_message(k, 0), text);
    assert_int_equal(k->ctx->diags.len, 1);
}

static inline void expect_error(maker *k, const char *text)
{
    make_save(k);
    expect_message(k, &(ap_import_options){0}, AP_ERR_MODEL, text);
}

static inline ap_tensor make_data(maker *k, int dtype, int rank, const int64_t *dims, const double *x)
{
    ap_tensor t;
    ap_dtype d;
    assert_true(ap_dtype_from_onnx(dtype, &d));
    const ap_shape_info *shape = ap_shape_get(k->ctx, ap_shape_of_dims(k->ctx, rank, dims));
    assert_true(ap_tensor_make(&k->ctx->arena, d, shape, &t));
    for (int64_t i = 0; i < t.count; i++) {
        if (ap_dtype_is_float(d))
            t.at[i].f = x[i];
        else
            t.at[i].i = (int64_t)x[i];
    }
    return t;
}

/* Evaluates and compares the first output: shape as "[2,3]" and elements. */
static inline void expect_result(maker *k, const ap_tensor *inputs, const char *shape, int n, const double *want)
{
    ap_tensor out[8];
    ap_status s = ap_eval_func(k->m, 0, &k->ctx->arena, inputs, out);
    for (uint32_t i = 0; s && i < k->ctx->diags.len; i++)
        print_error("%s\n", ap_diag_str(k->ctx, &k->ctx->diags.at[i]));
    assert_int_equal(s, AP_OK);
    ap_text t;
    ap_text_init(&t, &k->ctx->arena);
    ap_shape_print(&out[0].shape, &t);
    assert_string_equal(ap_text_str(&t), shape);
    assert_int_equal(out[0].count, n);
    for (int i = 0; i < n; i++) {
        double x = ap_dtype_is_float(out[0].dtype) ? out[0].at[i].f : (double)out[0].at[i].i;
        if (!(fabs(x - want[i]) <= 1e-5 * fmax(1, fabs(want[i]))) && !(isnan(x) && isnan(want[i])) && x != want[i]) {
            print_error("element %d is %g, not %g\n", i, x, want[i]);
            fail();
        }
    }
}

#define NUMBERS(...)                                                                                                   \
    (const double[])                                                                                                   \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define DIMS(...)                                                                                                      \
    (const int64_t[])                                                                                                  \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

#endif
