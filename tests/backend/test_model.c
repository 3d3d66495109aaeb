/* What an application and a user of the emitted program see: the main program, two models in one program, C++,
 * warnings, the same bytes twice, a compiler that fails. */
#include "tests/backend/harness.h"

#include <sys/wait.h>

static const char program[] =
    "local @t ranks 2 axes [tp=2 stride 1] arena 256 params 64\n"
    "input \"ids\" i64[4]\ninput \"scale=1\" f32[1]\noutput \"y/out\" f32[4,4]\noutput \"y_out\" i64[4]\n"
    "param 0 \"table\" f32[5,4] box [5,2] strides [4,1] from 2*tp at 0 bytes 40 "
    "data([0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19])\n"
    "kernel nest @lookup \"gather\" {\n  read i64 [1,0]\n  read f32 [0,1]\n  read f32 [0,0]\n  write f32 [4,1]\n"
    "  ints 1\n  outer [4] inner [2]\n  row:\n    %0 = load 0 : i64\n"
    "  inner:\n    %1 = gather 1 at %0 - int 0 stride 2 extent 5 limit 5 : f32\n    %2 = load 2 : f32\n"
    "    %3 = mul %1, %2 : f32\n    store 3, %3 : f32\n}\n"
    "kernel nest @copy {\n  read i64 [1]\n  write i64 [1]\n  outer [4] inner []\n  row:\n    %0 = load 0 : i64\n"
    "    store 1, %0 : i64\n}\n"
    "call @lookup(input(0), param(0), input(1), output(0)+2*tp) ints(0) ps 1000 loc(\"emb\", \"Gather\")\n"
    "call @copy(input(0), output(1)) when zero(tp)\n";

static void start(built *b, const char *name)
{
    b->ctx = ap_ctx_create();
    b->p = parse_local(b->ctx, program);
    build_files(b, name);
}

static void finish(built *b)
{
    remove_files(b);
    ap_ctx_release(b->ctx);
}

/* Runs `model` with these arguments; what it prints goes to DIR/log. */
static int run_model(const built *b, const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command, "cd %s && ./model %s >log 2>&1", b->dir, arguments);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void read_file(const built *b, const char *file, char *out, size_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", b->dir, file);
    FILE *f = fopen(path, "rb");
    if (!f)
        fprintf(stderr, "%s is missing\n", path);
    assert_non_null(f);
    memset(out, 0, size);
    size_t n = fread(out, 1, size - 1, f);
    assert_true(n < size - 1);
    fclose(f);
}

static void expect_log(const built *b, const char *text)
{
    char log[4096];
    read_file(b, "log", log, sizeof log);
    if (!strstr(log, text))
        fprintf(stderr, "\"%s\" is not in:\n%s", text, log);
    assert_non_null(strstr(log, text));
}

static void python(const built *b, const char *code)
{
    char command[2048];
    snprintf(command, sizeof command, "cd %s && " AP_PYTHON " -c '%s'", b->dir, code);
    shell(command);
}

static void main_program(void **state)
{
    (void)state;
    built b = {0};
    start(&b, "emb");
    python(&b, "import numpy as np\n"
               "np.save(\"ids\", np.array([4,0,2,2])); np.save(\"bad\", np.array([4,0,5,2]))\n"
               "np.save(\"scale\", np.array([2],np.float32)); np.save(\"wide\", np.array([2,3],np.float32))\n");
    assert_int_equal(run_model(&b, "ids.npy scale.npy --output-dir out"), 0);
    expect_log(&b, "y/out f32[4,4] min 0 max 38 mean 19");
    python(&b, "import numpy as np\n"
               "t = np.arange(20).reshape(5,4)[[4,0,2,2]]*2\n"
               "assert (np.load(\"out/0_y_out.npy\") == t).all()\n"
               "assert (np.load(\"out/1_y_out.npy\") == [4,0,2,2]).all()\n");
    assert_int_equal(run_model(&b, "--input scale=1=scale.npy --repeat 3 --profile --input ids=ids.npy"), 0);
    expect_log(&b, "of 3 runs");
    expect_log(&b, "lookup");
    assert_int_equal(run_model(&b, "--help"), 0);
    expect_log(&b, "scale=1");
    assert_int_equal(run_model(&b, "bad.npy scale.npy"), 1);
    expect_log(&b, "emb: rank ");
    expect_log(&b, "instruction 0 (lookup), node \"emb\" (Gather): index 5 is outside [0, 5)");
    assert_int_equal(run_model(&b, "scale.npy ids.npy"), 1);
    expect_log(&b, "scale.npy is f32[1], input \"ids\" is i64[4]");
    assert_int_equal(run_model(&b, "ids.npy wide.npy"), 1);
    expect_log(&b, "wide.npy is f32[2], input \"scale=1\" is f32[1]");
    assert_int_equal(run_model(&b, "ids.npy"), 2);
    expect_log(&b, "input \"scale=1\" is missing");
    assert_int_equal(run_model(&b, "ids.npy scale.npy ids.npy"), 2);
    assert_int_equal(run_model(&b, "--input ids=ids.npy --input ids=ids.npy"), 2);
    expect_log(&b, "given twice");
    assert_int_equal(run_model(&b, "--input nothing=ids.npy"), 2);
    expect_log(&b, "no input \"nothing\"");
    assert_int_equal(run_model(&b, "--repeat 0 ids.npy scale.npy"), 2);
    assert_int_equal(run_model(&b, "--what"), 2);
    assert_int_equal(run_model(&b, "ids.npy missing.npy"), 4);
    expect_log(&b, "missing.npy: No such file");
    assert_int_equal(run_model(&b, "ids.npy emb.h"), 1);
    assert_int_equal(run_model(&b, "ids.npy scale.npy --weights emb.h"), 4);
    expect_log(&b, "not a safetensors file");
    assert_int_equal(run_model(&b, "ids.npy scale.npy --weights nowhere"), 4);
    assert_int_equal(run_model(&b, "ids.npy scale.npy --output-dir emb.h"), 4);
    finish(&b);
}

static void weights_read_elsewhere(void **state)
{
    (void)state;
    built b = {0};
    start(&b, "emb");
    python(&b, "import json, struct, numpy as np\n"
               "f = open(\"weights.safetensors\", \"rb\").read()\n"
               "n = struct.unpack(\"<Q\", f[:8])[0]\n"
               "assert (n + 8) % 64 == 0\n"
               "h = json.loads(f[8:8+n])\n"
               "e = h[\"param/table\"]\n"
               "assert e[\"dtype\"] == \"F32\" and e[\"shape\"] == [5,4] and e[\"data_offsets\"] == [0,80], e\n"
               "assert len(f) == 8 + n + 80\n"
               "assert (np.frombuffer(f[8+n:], np.float32) == np.arange(20)).all()\n");
    finish(&b);
}

static void same_bytes_twice(void **state)
{
    (void)state;
    built a = {0}, b = {0};
    char command[256];
    start(&a, "emb");
    start(&b, "emb");
    snprintf(command, sizeof command, "diff -r -x model -x '*.a' %s %s", a.dir, b.dir);
    shell(command);
    finish(&a);
    finish(&b);
}

/* Two models in one program, several instances, run from several threads; the header from C++. */
static const char application[] =
    "#include \"one.h\"\n#include \"two.h\"\n#include <pthread.h>\n#include <stdio.h>\n#include <string.h>\n"
    "static one_instance *shared;\n"
    "static void *work(void *user)\n{\n"
    "    int64_t ids[4] = {4, 0, 2, 2}, copy[4];\n    float scale = 2, y[16];\n"
    "    const void *in[] = {ids, &scale};\n    void *out[] = {y, copy};\n"
    "    for (int i = 0; i < 200; i++) {\n        memset(y, 0, sizeof y);\n"
    "        if (one_run(shared, in, out) || y[0] != 32 || y[15] != 22)\n            return user;\n    }\n"
    "    return NULL;\n}\n"
    "int main(int argc, char **argv)\n{\n"
    "    one_options o = {argv[1]};\n    two_options o2 = {argv[2]};\n    two_instance *two[2];\n    one_instance "
    "*bad;\n"
    "    pthread_t t[3];\n    int64_t ids[4] = {1, 1, 1, 1}, copy[4];\n    float scale = 3, y[16];\n"
    "    const void *in[] = {ids, &scale};\n    void *out[] = {y, copy};\n"
    "    if (argc != 3 || one_INPUTS != 2 || strcmp(two_output[1].name, \"y_out\") || one_input[0].dtype != 7)\n"
    "        return 10;\n"
    "    if (one_open(&o, &shared) || two_open(&o2, &two[0]) || two_open(&o2, &two[1]))\n        return 11;\n"
    "    for (int i = 0; i < 3; i++)\n        pthread_create(&t[i], NULL, work, shared);\n"
    "    for (int i = 0; i < 3; i++) {\n        void *r;\n        pthread_join(t[i], &r);\n"
    "        if (r)\n            return 12;\n    }\n"
    "    if (two_run(two[1], in, out) || y[0] != 12 || two_run(two[0], in, NULL) != 2)\n        return 13;\n"
    "    puts(two_error(two[0]));\n"
    "    o.weights = \"/nonexistent\";\n"
    "    if (one_open(&o, &bad) != 4 || !*one_error(bad) || one_run(bad, in, out) != 2 || !*one_error(bad))\n"
    "        return 14;\n"
    "    one_close(bad);\n    one_close(shared);\n    two_close(two[0]);\n    two_close(two[1]);\n    "
    "two_close(NULL);\n"
    "    return 0;\n}\n";

static void two_models_in_one_program(void **state)
{
    (void)state;
    built a = {0}, b = {0};
    char command[4096], path[128];
    start(&a, "one");
    start(&b, "two");
    snprintf(path, sizeof path, "%s/app.c", a.dir);
    check(a.ctx, ap_file_write(a.ctx, path, application, sizeof application - 1));
    snprintf(command, sizeof command,
             "cc -std=c17 -Wall -Wextra -Werror %s -I%s -I%s %s -o %s/app %s/libone.a %s/libtwo.a -L%s/../lib "
             "-lautopar_rt -lcjson -lpthread -lm && %s/app %s/weights.safetensors %s/weights.safetensors",
             HARNESS_SANITIZE, a.dir, b.dir, path, a.dir, a.dir, b.dir, b.bin, a.dir, a.dir, b.dir);
    shell(command);
    snprintf(command, sizeof command,
             "cd %s && for f in one.h; do echo \"#include \\\"$f\\\"\"; done > h.cc && "
             "g++ -Wall -Wextra -Werror -fsyntax-only h.cc",
             a.dir);
    shell(command);
    /* every name that the library shows has the prefix */
    snprintf(
        command, sizeof command,
        "! nm -g --defined-only %s/libone.a | awk 'NF == 3 && $2 != \"W\" {print $3}' | grep -v -E '^(one_|__odr)'",
        a.dir);
    shell(command);
    finish(&a);
    finish(&b);
}

static void no_warnings(void **state)
{
    (void)state;
    built b = {0};
    char command[1024];
    start(&b, "emb");
    snprintf(command, sizeof command,
             "cd %s && for f in kernels program main; do cc -std=c17 -O2 -Wall -Wextra -Wshadow -Wstrict-prototypes "
             "-Werror -fopenmp-simd -I%s/../include -c $f.c -o /dev/null || exit 1; done",
             b.dir, b.bin);
    shell(command);
    finish(&b);
}

static void cmake_builds_it(void **state)
{
    (void)state;
#ifndef AP_SANITIZE_FLAGS /* the library of a sanitized build wants its flags */
    built b = {0};
    char command[1024];
    start(&b, "emb");
    snprintf(command, sizeof command,
             "cd %s && rm model libemb.a && cmake -S . -B build -DCMAKE_PREFIX_PATH=%s/.. >/dev/null && "
             "cmake --build build >/dev/null && ./model --help >/dev/null",
             b.dir, b.bin);
    shell(command);
    finish(&b);
#endif
}

static void compiler_fails(void **state)
{
    (void)state;
    built b = {0};
    char path[128], include[600];
    start(&b, "emb");
    snprintf(include, sizeof include, "%s/../include", b.bin);
    snprintf(path, sizeof path, "%s/main.c", b.dir);
    check(b.ctx, ap_file_write(b.ctx, path, "int main(void) { return nonsense; }\n", 36));
    ap_backend_toolchain tools = {.include_dir = include, .lib_dir = include};
    uint32_t before = b.ctx->diags.len;
    assert_int_equal(ap_backend_c_build(b.ctx, b.dir, "emb", &tools), AP_ERR_ENV);
    assert_int_equal(b.ctx->diags.len, before + 1);
    assert_non_null(strstr(b.ctx->diags.at[before].text, "compiling main.c failed"));
    assert_non_null(strstr(b.ctx->diags.at[before].more, "nonsense"));
    setenv("CC", "no-such-compiler -v", 1);
    assert_int_equal(ap_backend_c_build(b.ctx, b.dir, "emb", &tools), AP_ERR_ENV);
    unsetenv("CC");
    assert_non_null(strstr(b.ctx->diags.at[before + 1].text, "no-such-compiler"));
    finish(&b);
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_program *p = ap_program_of_local(parse_local(ctx, program));
    ap_backend_options options = {.dir = "/tmp", .name = "a-b", .header = ""};
    assert_int_equal(ap_backend_c_emit(ctx, p, &options), AP_ERR_USAGE);
    options.name = "1a";
    assert_int_equal(ap_backend_c_emit(ctx, p, &options), AP_ERR_USAGE);
    options = (ap_backend_options){.dir = "/nonexistent/folder", .name = "a", .header = ""};
    assert_int_equal(ap_backend_c_emit(ctx, p, &options), AP_ERR_ENV);
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(main_program),     cmocka_unit_test(weights_read_elsewhere),
        cmocka_unit_test(same_bytes_twice), cmocka_unit_test(two_models_in_one_program),
        cmocka_unit_test(no_warnings),      cmocka_unit_test(cmake_builds_it),
        cmocka_unit_test(compiler_fails),   cmocka_unit_test(bad_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
