/* Tensor and weight files: what is written is read back, what NumPy and ONNX write is read, and no sequence of bytes
 * does more than fail with a text (run under AddressSanitizer). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "autopar_rt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[2][128];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ap-files-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static const int32_t all_types[] = {APRT_F32,  APRT_U8,  APRT_I8,  APRT_U16, APRT_I16, APRT_I32, APRT_I64,
                                    APRT_BOOL, APRT_F16, APRT_F64, APRT_U32, APRT_U64, APRT_BF16};

static void write_then_read(void **state)
{
    (void)state;
    uint8_t data[8 * 24];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 31 % 251);
    for (size_t t = 0; t < sizeof all_types / sizeof *all_types; t++)
        for (int32_t rank = 0; rank <= 4; rank++)
            for (int proto = 0; proto < 2; proto++) {
                aprt_port port = {"a name", all_types[t], rank, {2, 3, 4, 1}};
                uint8_t want[sizeof data];
                aprt_failure why;
                aprt_tensor got;
                memcpy(want, data, sizeof data);
                for (size_t i = 0; i < sizeof data && all_types[t] == APRT_BOOL; i++)
                    want[i] = data[i] != 0;
                int status = proto ? aprt_proto_write(in_folder("t"), &port, want, &why)
                                   : aprt_npy_write(in_folder("t"), &port, want, &why);
                assert_int_equal(status, APRT_OK);
                assert_int_equal(aprt_tensor_read(in_folder("t"), &got, &why), APRT_OK);
                assert_int_equal(got.dtype, port.dtype);
                assert_int_equal(got.rank, rank);
                assert_memory_equal(got.dim, port.dim, (size_t)rank * sizeof *port.dim);
                assert_memory_equal(got.data, want, (size_t)got.bytes);
                assert_string_equal(got.name, proto ? "a name" : "");
                aprt_tensor_free(&got);
            }
}

static void npy_variants(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want; /* shape, or part of the error */
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "f32[2]"},
        {"{\"shape\":(1,2),\"fortran_order\":True,\"descr\":\"=f4\"}", "f32[1,2]"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (), }", "f64[]"},
        {"{'descr': '<i1', 'fortran_order': False, 'shape': (2L,4L), }", "i8[2,4]"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", "'>f4' are not supported"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", "'<c8' are not supported"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "do not fit"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "no dictionary"},
        {"{'descr': '<f4', 'fortran_order': False}", "no dictionary"},
        {"{'descr': '<f4', 'fortran_order': 7, 'shape': (2,), }", "no dictionary"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "no dictionary"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296), }", "do not fit"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "no dictionary"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2), }", "no dictionary"},
        {"", "no dictionary"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int version = 1; version <= 3; version++) {
            char bytes[300] = "\x93NUMPY", shape[128];
            size_t n = strlen(cases[i].text), at = version == 1 ? 10 : 12;
            aprt_tensor t;
            aprt_failure why;
            bytes[6] = (char)version;
            bytes[8] = (char)n;
            memcpy(bytes + at, cases[i].text, n);
            memcpy(bytes + at + n, "\0\0\200\077\0\0\0\100", 8);
            if (aprt_tensor_parse(bytes, at + n + 8, &t, &why) == APRT_OK) {
                aprt_shape_text(t.dtype, t.rank, t.dim, shape, sizeof shape);
                assert_string_equal(shape, cases[i].want);
                aprt_tensor_free(&t);
            } else {
                if (!strstr(why.text, cases[i].want))
                    print_message("%s: %s\n", cases[i].text, why.text);
                assert_non_null(strstr(why.text, cases[i].want));
            }
        }
}

/* Files by NumPy and onnx themselves. */
static void files_of_others(void **state)
{
    (void)state;
    char command[1600];
    snprintf(
        command, sizeof command,
        "cd %s && " AP_PYTHON " -c '"
        "import numpy as np, onnx\n"
        "from onnx import helper, numpy_helper, TensorProto as T\n"
        "x = np.arange(24).reshape(2,3,4)\n"
        "for i, t in enumerate([\"f4\",\"f8\",\"i8\",\"u1\",\"f2\",\"i4\"]):\n"
        "    np.save(\"n%%d.npy\" %% i, x.astype(t))\n"
        "    np.save(\"f%%d.npy\" %% i, np.asfortranarray(x.astype(t)))\n"
        "    open(\"p%%d.pb\" %% i, \"wb\").write(numpy_helper.from_array(x.astype(t), \"x\").SerializeToString())\n"
        "for i, t in enumerate([T.FLOAT, T.DOUBLE, T.INT64, T.UINT8, T.FLOAT16, T.INT32]):\n"
        "    open(\"t%%d.pb\" %% i, \"wb\").write(helper.make_tensor(\"x\", t, [2,3,4], x.flatten())"
        ".SerializeToString())\n"
        "open(\"neg.pb\", \"wb\").write(helper.make_tensor(\"n\", T.INT32, [2], [-1, -2]).SerializeToString())\n"
        "open(\"s.pb\", \"wb\").write(helper.make_tensor(\"s\", T.STRING, [1], [b\"a\"]).SerializeToString())\n"
        "'",
        folder);
    assert_int_equal(system(command), 0);
    static const char *const shapes[] = {"f32[2,3,4]", "f64[2,3,4]", "i64[2,3,4]",
                                         "u8[2,3,4]",  "f16[2,3,4]", "i32[2,3,4]"};
    static const char kinds[] = "nfpt";
    aprt_failure why;
    aprt_tensor t;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 6; i++) {
            char name[32], shape[64];
            snprintf(name, sizeof name, "%c%d.%s", kinds[k], i, k < 2 ? "npy" : "pb");
            int status = aprt_tensor_read(in_folder(name), &t, &why);
            if (status)
                print_message("%s\n", why.text);
            assert_int_equal(status, APRT_OK);
            aprt_shape_text(t.dtype, t.rank, t.dim, shape, sizeof shape);
            assert_string_equal(shape, shapes[i]);
            for (int j = 0; j < 24; j++) {
                double x = i == 0   ? ((float *)t.data)[j]
                           : i == 1 ? ((double *)t.data)[j]
                           : i == 2 ? (double)((int64_t *)t.data)[j]
                           : i == 3 ? ((uint8_t *)t.data)[j]
                           : i == 4 ? aprt_f16_to_f32(((uint16_t *)t.data)[j])
                                    : ((int32_t *)t.data)[j];
                assert_true(x == j);
            }
            aprt_tensor_free(&t);
        }
    assert_int_equal(aprt_tensor_read(in_folder("neg.pb"), &t, &why), APRT_OK);
    assert_int_equal(((int32_t *)t.data)[1], -2);
    aprt_tensor_free(&t);
    assert_int_equal(aprt_tensor_read(in_folder("s.pb"), &t, &why), APRT_ERR_DATA);
    assert_non_null(strstr(why.text, "s.pb: a tensor of strings"));
    assert_int_equal(aprt_tensor_read(folder, &t, &why), APRT_ERR_ENV);
    assert_int_equal(aprt_npy_write("/nonexistent/x", &(aprt_port){"", APRT_F32, 0, {0}}, &t, &why), APRT_ERR_ENV);
}

/* Bytes changed, removed, repeated at random: a text or a tensor, nothing else. */
static void mutated_tensors(void **state)
{
    (void)state;
    static const char *const names[] = {"n0.npy", "f1.npy", "p0.pb", "t0.pb", "t2.pb", "t5.pb"};
    uint32_t seed = 1;
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        FILE *file = fopen(in_folder(names[f]), "rb");
        uint8_t original[1024];
        assert_non_null(file);
        size_t size = fread(original, 1, sizeof original, file);
        fclose(file);
        for (int turn = 0; turn < 20000; turn++) {
            size_t n = size;
            uint8_t *bytes = malloc(size + 1); /* exact size, so that a read beyond it is seen */
            aprt_tensor t;
            aprt_failure why = {""};
            memcpy(bytes, original, size);
            for (int k = 0; k <= turn % 4; k++) {
                seed = seed * 1664525u + 1013904223u;
                size_t at = (seed >> 8) % (turn % 2 ? size : (size < 130 ? size : 130));
                bytes[at] = (uint8_t)(turn % 3 ? seed >> 24 : bytes[at] ^ 1u << (seed >> 29));
                if (turn % 5 == 0)
                    n = at;
            }
            uint8_t *cut = malloc(n ? n : 1);
            memcpy(cut, bytes, n);
            if (aprt_tensor_parse(cut, n, &t, &why) == APRT_OK)
                aprt_tensor_free(&t);
            else
                assert_true(why.text[0] != 0);
            free(cut);
            free(bytes);
        }
    }
}

/* ---- weights ---- */

static int no_work(aprt_device *d)
{
    memcpy(d->output[0], d->param, 24);
    return APRT_OK;
}

static int one_microbatch(aprt_device *d)
{
    return aprt_stage_run(d, 0);
}

static const aprt_port output = {"y", APRT_F32, 1, {6}};
static const aprt_param params[] = {
    {{"w", APRT_F32, 2, {4, 3}}, 2, {2, 3}, {3, 1}, {3, {0}}, 0, 24, 0, NULL, APRT_PLAIN, 0, 0}};

static int open_with(const void *bytes, size_t size, float *y, char *text)
{
    const int32_t first = 0;
    const aprt_stage stage = {.name = "w",
                              .nranks = 1,
                              .param_bytes = 24,
                              .noutputs = 1,
                              .output = &first,
                              .nparams = 1,
                              .param = params,
                              .run = no_work,
                              .list = one_microbatch};
    const aprt_program p = {.abi = APRT_ABI,
                            .name = "w",
                            .nranks = 1,
                            .microbatches = 1,
                            .noutputs = 1,
                            .output = &output,
                            .nstages = 1,
                            .stage = &stage};
    aprt_options o = {.weights = in_folder("w.safetensors")};
    aprt_instance *in;
    void *out[] = {y};
    FILE *f = fopen(o.weights, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
    int status = aprt_open(&p, &o, &in);
    if (status == APRT_OK)
        status = aprt_run(in, NULL, out);
    strcpy(text, aprt_error(in));
    aprt_close(in);
    return status;
}

static size_t make_weights(const char *header, uint8_t *out)
{
    size_t n = strlen(header);
    memset(out, 0, 8);
    out[0] = (uint8_t)n;
    out[1] = (uint8_t)(n >> 8);
    memcpy(out + 8, header, n);
    for (int i = 0; i < 12; i++) {
        float x = (float)i;
        memcpy(out + 8 + n + 4 * i, &x, 4);
    }
    return 8 + n + 48;
}

static void weights_checked(void **state)
{
    (void)state;
    static const struct {
        const char *header, *text;
    } cases[] = {
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,48]}}", ""},
        {"{\"__metadata__\":{\"a\":\"b\"},\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,48]}}   ", ""},
        {"{\"v\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,48]}}", "\"w\" is missing"},
        {"{}", "\"w\" is missing"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[3,4],\"data_offsets\":[0,48]}}",
         "is f32[3,4], the program needs f32[4,3]"},
        {"{\"w\":{\"dtype\":\"I32\",\"shape\":[4,3],\"data_offsets\":[0,48]}}", "is i32[4,3], the program"},
        {"{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,3],\"data_offsets\":[0,48]}}", "is ?[4,3]"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,52]}}", "outside"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,44]}}", "not those of its shape"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[48,0]}}", "outside"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[-8,40]}}", "two whole numbers"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,4e300]}}", "two whole numbers"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0.5,48]}}", "two whole numbers"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,3]}}", "two whole numbers"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,\"3\"],\"data_offsets\":[0,48]}}", "strange shape"},
        {"{\"w\":{\"shape\":[4,3],\"data_offsets\":[0,48]}}", "no dtype"},
        {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,48]}}", "no shape"},
        {"{\"w\":7}", "two whole numbers"},
        {"[]", "no JSON object"},
        {"{", "no JSON object"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,48]},\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],"
         "\"data_offsets\":[0,48]}}",
         "there twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[512];
        float y[6];
        char text[512];
        size_t n = make_weights(cases[i].header, bytes);
        int status = open_with(bytes, n, y, text);
        if (!*cases[i].text) {
            assert_int_equal(status, APRT_OK);
            for (int j = 0; j < 6; j++)
                assert_true(y[j] == (float)(3 + j));
        } else {
            if (!strstr(text, cases[i].text))
                print_message("%s: %s\n", cases[i].header, text);
            assert_int_equal(status, APRT_ERR_ENV);
            assert_non_null(strstr(text, cases[i].text));
        }
    }
}

static void mutated_weights(void **state)
{
    (void)state;
    uint8_t original[512], bytes[512];
    size_t size = make_weights("{\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,48]}}", original);
    uint32_t seed = 5;
    for (int turn = 0; turn < 3000; turn++) {
        float y[6];
        char text[512];
        size_t n = size;
        memcpy(bytes, original, size);
        for (int k = 0; k <= turn % 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            size_t at = (seed >> 8) % (size - 48);
            bytes[at] = (uint8_t)(turn % 2 ? seed >> 24 : bytes[at] ^ 1u << (seed >> 29));
            if (turn % 7 == 0)
                n = at;
        }
        if (open_with(bytes, n, y, text) != APRT_OK)
            assert_true(text[0] != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_then_read), cmocka_unit_test(npy_variants),    cmocka_unit_test(files_of_others),
        cmocka_unit_test(mutated_tensors), cmocka_unit_test(weights_checked), cmocka_unit_test(mutated_weights),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
